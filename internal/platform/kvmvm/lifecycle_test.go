//go:build linux && amd64

package kvmvm

import (
	"bytes"
	"errors"
	"os"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/maf-sandbox/maf-sandbox-go/internal/platform"
	"github.com/maf-sandbox/maf-sandbox-go/internal/platform/platformtest"
)

func TestMachinesLeaveNoDescriptorsBehind(t *testing.T) {
	p := testPlatform(t)
	b, c := platformtest.Template(t, p, platformtest.Dirty)
	before := platformtest.OpenDescriptors(t)
	for range 20 {
		m, err := p.Clone(b, memSize, platformtest.Spans, c)
		if err != nil {
			t.Fatal(err)
		}
		booted, fd, err := p.Boot(memSize, platformtest.Spans, nil)
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(m.Close(), m.Close(), booted.Close(), unix.Close(fd)); err != nil {
			t.Fatal(err)
		}
		m.Interrupt()
	}
	platformtest.WhatCannotBeMade(t, p, b, c)
	if n := platformtest.OpenDescriptors(t); n != before {
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
	platformtest.HalfMadeMachinesAreTakenApart(t, testPlatform(t), 5, func() int { return mappings(t) })
}

func TestCloseWhileOthersInterrupt(t *testing.T) {
	platformtest.CloseWhileOthersInterrupt(t, testPlatform(t))
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
		if a, b := platformtest.Finish(t, m), platformtest.Finish(t, n); a != b || *m.Regs() != *n.Regs() {
			t.Errorf("before the probe %+v %+v, after it %+v %+v", a, *m.Regs(), b, *n.Regs())
		}
	}
}
