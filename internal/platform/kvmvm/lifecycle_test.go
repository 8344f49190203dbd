//go:build linux && amd64

package kvmvm

import (
	"bytes"
	"errors"
	"os"
	"runtime"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/maf-sandbox/maf-sandbox-go/internal/platform"
)

func TestMachinesLeaveNoDescriptorsBehind(t *testing.T) {
	p := testPlatform(t)
	b, c := testTemplate(t, p, dirty)
	before := openDescriptors(t)
	for range 20 {
		m, err := p.Clone(b, memSize, testSpans, c)
		if err != nil {
			t.Fatal(err)
		}
		booted, fd, err := p.Boot(memSize, testSpans, nil)
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(m.Close(), m.Close(), booted.Close(), unix.Close(fd)); err != nil {
			t.Fatal(err)
		}
		m.Interrupt()
	}
	bad := *c
	bad.XSave = nil
	wild := *c
	wild.FSBase = 1 << 63
	for name, fn := range map[string]func() (platform.Machine, error){
		"context of another kind": func() (platform.Machine, error) { return p.Clone(b, memSize, testSpans, &bad) },
		"non-canonical base":      func() (platform.Machine, error) { return p.Clone(b, memSize, testSpans, &wild) },
		"too small for backing":   func() (platform.Machine, error) { return p.Clone(b, heapAddr, testSpans, c) },
		"too small":               func() (platform.Machine, error) { return p.Clone(b, 4096, testSpans, c) },
		"too large":               func() (platform.Machine, error) { return p.Clone(b, maxSize+4096, testSpans, c) },
		"boot of nothing":         func() (platform.Machine, error) { m, _, err := p.Boot(0, testSpans, nil); return m, err },
		"boot of bad spans": func() (platform.Machine, error) {
			m, _, err := p.Boot(memSize, []platform.Span{{Lo: 0, Hi: 4096}}, nil)
			return m, err
		},
	} {
		if m, err := fn(); !errors.Is(err, platform.ErrMachine) || m != nil {
			t.Errorf("%s: %v, %v", name, m, err)
		}
	}
	if n := openDescriptors(t); n != before {
		t.Errorf("%d descriptors before, %d after", before, n)
	}
}

// mappings counts this process's guest memories and processors.
func mappings(t *testing.T) int {
	t.Helper()
	maps, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		t.Fatal(err)
	}
	return bytes.Count(maps, []byte("kvm-vcpu")) + bytes.Count(maps, []byte("memfd:guest"))
}

func TestHalfMadeMachinesAreTakenApart(t *testing.T) {
	p := testPlatform(t)
	b, c := testTemplate(t, p, dirty)
	var old unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &old); err != nil {
		t.Fatal(err)
	}
	before, mapped := openDescriptors(t), mappings(t)
	failed := 0
	for room := range uint64(5) {
		// The count includes the listing's own descriptor, closed again.
		limit := unix.Rlimit{Cur: uint64(before) - 1 + room, Max: old.Max}
		var errs [2]error
		var ms [2]platform.Machine
		var fd int
		if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
			t.Fatal(err)
		}
		ms[0], errs[0] = p.Clone(b, memSize, testSpans, c)
		ms[1], fd, errs[1] = p.Boot(memSize, testSpans, nil)
		if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &old); err != nil {
			t.Fatal(err)
		}
		for i, m := range ms {
			if errs[i] == nil {
				_ = m.Close()
				continue
			}
			failed++
			if m != nil || !errors.Is(errs[i], platform.ErrMachine) {
				t.Errorf("%d descriptors: %v, %v", room, m, errs[i])
			}
		}
		if fd >= 0 {
			_ = unix.Close(fd)
		}
	}
	if failed == 0 {
		t.Error("nothing failed, so nothing was tested")
	}
	if n, m := openDescriptors(t), mappings(t); n != before || m != mapped {
		t.Errorf("%d descriptors and %d mappings before, %d and %d after", before, mapped, n, m)
	}
}

func TestCloseWhileOthersInterrupt(t *testing.T) {
	for range 20 {
		m := newGuest(t, []byte{0xEB, 0xFE})
		var wg sync.WaitGroup
		stop := make(chan struct{})
		for range 3 {
			wg.Go(func() {
				for {
					select {
					case <-stop:
						return
					default:
						m.Interrupt()
						runtime.Gosched()
					}
				}
			})
		}
		if e, err := m.Run(); err != nil || e.Kind != platform.Interrupted {
			t.Errorf("%+v, %v", e, err)
		}
		if err := m.Close(); err != nil {
			t.Error(err)
		}
		close(stop)
		wg.Wait()
	}
}

func TestUnavailableDeviceIsSaid(t *testing.T) {
	_, err := openPlatform()
	if err != nil && !errors.Is(err, platform.ErrUnavailable) {
		t.Errorf("%v", err)
	}
}

func TestScanBufferIsNotOnAStack(t *testing.T) {
	p := testPlatform(t)
	if !p.pagemapScan {
		t.Skip("this kernel has no PAGEMAP_SCAN")
	}
	mem, err := mapGuest(largePage, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS, -1)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unmapGuest(mem) }()
	_ = unix.Madvise(mem, unix.MADV_NOHUGEPAGE)
	const touched = 100
	for i := range touched {
		mem[2*i*platform.PageSize] = 1
	}
	base := address(mem)
	// A local buffer on a fresh small stack, which the call may make grow.
	var wg sync.WaitGroup
	for range 100 {
		wg.Go(func() {
			var r regions
			n, _, err := p.pagemap.scan(base, base+largePage, &r)
			if err != nil || n != touched {
				t.Errorf("%d regions, %v", n, err)
			}
			for i, x := range r[:n] {
				if x.Start != base+uint64(2*i*platform.PageSize) || x.End != x.Start+platform.PageSize {
					t.Errorf("region %d is %+v", i, x)
				}
			}
		})
	}
	wg.Wait()
}

// A machine made before it is known where system calls arrive and one made
// after it behave the same.
func TestProbeChangesNothingThatAGuestSees(t *testing.T) {
	p := testPlatform(t)
	m, _ := bootGuest(t, p, []byte{0x0F, 0x05, 0x0F, 0x05, 0x0F, 0x0B}) // syscall; syscall; ud2
	if err := p.Probe(); err != nil {
		t.Fatal(err)
	}
	n, _ := bootGuest(t, p, []byte{0x0F, 0x05, 0x0F, 0x05, 0x0F, 0x0B})
	for range 3 {
		if a, b := finish(t, m), finish(t, n); a != b || *m.Regs() != *n.Regs() {
			t.Errorf("before the probe %+v %+v, after it %+v %+v", a, *m.Regs(), b, *n.Regs())
		}
	}
}
