//go:build linux && amd64

package engine_test

import (
	"context"
	"errors"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/maf-sandbox/maf-sandbox-go/internal/engine"
)

// A hostile program attacks the personality, its own interpreter or the time it
// was given.
type hostile struct {
	name string
	// code follows prelude.
	code string
	// says is what the output has to begin with; alive, that it then ends by
	// itself with exit 0 on a machine that can be used again.
	says  string
	alive bool
	// ends are the kinds of failure it may end with if it is not alive.
	ends []engine.Kind
	// claims: it may claim to have ended well, which a reset does not rely on.
	claims bool
	// cut: it is cancelled as soon as it has said something.
	cut     bool
	timeout time.Duration
}

var (
	crash   = []engine.Kind{engine.KindGuestCrash, engine.KindMemory}
	stopped = []engine.Kind{engine.KindTimeout, engine.KindCanceled}
	either  = []engine.Kind{engine.KindGuestCrash, engine.KindMemory, engine.KindTimeout, engine.KindCanceled}
)

// heap is how much memory the host's own heap has, in bytes.
func heap() int64 {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapSys - m.HeapReleased)
}

// heapGrowth bounds by how much one hostile program may make the host's heap
// grow: its files, twice while they are copied, and its output.
const heapGrowth = 200 << 20

func TestHostileProgramsHurtThemselvesOnly(t *testing.T) {
	tm := template(t, func(c *engine.Config) { c.Grace = 50 * time.Millisecond })
	bystander := machine(t, tm)
	output(t, bystander, "kept = 42", "")
	before := count(t)
	for _, h := range hostiles {
		t.Run(h.name, func(t *testing.T) {
			runtime.GC()
			used := heap()
			vm, err := tm.New(context.Background())
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() {
				if err := vm.Close(); err != nil {
					t.Error(err)
				}
			})
			if h.timeout == 0 {
				h.timeout = patience(time.Minute)
			}
			ctx, cancel := context.WithCancel(context.Background())
			defer cancel()
			req := engine.Request{Code: []byte(prelude + h.code), Timeout: h.timeout}
			if h.cut {
				req.Stdout = writerFunc(cancel)
			}
			res, err := vm.Run(ctx, req)
			h.verify(t, res, err)
			if grown := heap() - used; grown > heapGrowth {
				t.Errorf("the host's heap grew by %d MiB", grown>>20)
			}
			if err != nil && !usable(err) {
				afterwards(t, vm, true)
			} else {
				if h.alive {
					output(t, vm, "print(6*7)", "42\n")
				}
				reset(t, vm)
				if err := vm.Verify(); err != nil {
					t.Error(err)
				}
				output(t, vm, "print(6*7)", "42\n")
			}
			output(t, machine(t, tm), "print(6*7)", "42\n")
			output(t, bystander, "print(kept)", "42\n")
		})
	}
	settles(t, before)
}

func (h hostile) verify(t *testing.T, res engine.Result, err error) {
	t.Helper()
	if !strings.HasPrefix(string(res.Stdout), h.says) {
		t.Errorf("stdout %.200q, want %q first", res.Stdout, h.says)
	}
	if h.alive {
		if err != nil || res.ExitCode != 0 {
			t.Errorf("exit %d, error %v\nstderr %.2000s", res.ExitCode, err, res.Stderr)
		}
		return
	}
	var e *engine.Error
	if err == nil && h.claims {
		return
	}
	if !errors.As(err, &e) {
		t.Errorf("exit %d, error %v, want one of %v\nstderr %.2000s", res.ExitCode, err, h.ends, res.Stderr)
		return
	}
	for _, k := range h.ends {
		if e.Kind == k {
			return
		}
	}
	t.Errorf("error %v (%s), want one of %v\nstderr %.2000s", err, e.Kind, h.ends, res.Stderr)
}
