package bench

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"time"

	"github.com/maf-sandbox/maf-sandbox-go/internal/cgroup"
)

// stock is what there is of things that can leak.
type stock struct {
	processes, descriptors, goroutines, groups int
	// memory is that of this process and those below it, in MiB.
	memory float64
}

// slackMiB is how much memory may come without being a leak: what the heaps of
// a few Go processes keep.
const slackMiB = 16

func takeStock() (stock, error) {
	debug.FreeOSMemory()
	var s stock
	all, err := descendants()
	if err != nil {
		return s, err
	}
	groups, err := filepath.Glob(cgroup.DefaultRoot + "/worker-*")
	if err != nil {
		return s, err
	}
	s.processes, s.goroutines, s.groups = len(all), runtime.NumGoroutine(), len(groups)
	for _, p := range append([]process{{pid: os.Getpid()}}, all...) {
		open, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", p.pid))
		if err != nil {
			return s, err
		}
		s.descriptors += len(open)
		b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.pid))
		if err != nil {
			return s, err
		}
		mib, err := kibibytes(b, "VmRSS:")
		if err != nil {
			return s, err
		}
		s.memory += mib
	}
	return s, nil
}

// leak says what there is more of than before; nil if nothing.
func (s stock) leak(before stock) error {
	for _, x := range []struct {
		name      string
		is, was   float64
		tolerated float64
	}{
		{"processes", float64(s.processes), float64(before.processes), 0},
		{"descriptors", float64(s.descriptors), float64(before.descriptors), 0},
		{"goroutines", float64(s.goroutines), float64(before.goroutines), 0},
		{"control groups", float64(s.groups), float64(before.groups), 0},
		{"MiB of memory", s.memory, before.memory, slackMiB},
	} {
		if x.is > x.was+x.tolerated {
			return fmt.Errorf("something is left: %.0f %s, %.0f before", x.is, x.name, x.was)
		}
	}
	return nil
}

// nothingLeft waits until there is no more of anything than before; what was
// confirmed gone may still be on its way out of this process.
func nothingLeft(ctx context.Context, before stock) error {
	for limit := time.Now().Add(patience); ; {
		now, err := takeStock()
		if err == nil {
			err = now.leak(before)
		}
		if err == nil || time.Now().After(limit) {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(quiet):
		}
	}
}
