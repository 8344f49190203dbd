//go:build linux && amd64

package ptrace

import (
	"testing"

	"golang.org/x/sys/unix"

	"github.com/maf-sandbox/maf-sandbox-go/internal/platform"
	"github.com/maf-sandbox/maf-sandbox-go/internal/platform/platformtest"
)

// The numbers that users are promised are printed by `maf-sandbox bench`; these
// are for profiling.

func BenchmarkOpenPlatform(b *testing.B) {
	testPlatform(b)
	for b.Loop() {
		p, err := New()
		if err != nil {
			b.Fatal(err)
		}
		if err := p.Close(); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkCloneAndClose(b *testing.B) {
	p := testPlatform(b)
	t, c := platformtest.Template(b, p, nil)
	for b.Loop() {
		m, err := p.Clone(t, memSize, platformtest.Spans, c)
		if err != nil {
			b.Fatal(err)
		}
		if err := m.Close(); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkSystemCall(b *testing.B) {
	m := newGuest(b, []byte{0x0F, 0x05, 0xEB, 0xFC})
	m.OnThread(func() {
		for b.Loop() {
			if e, err := m.Run(); err != nil || e.Kind == platform.Fault {
				b.Errorf("%+v, %v", e, err)
				return
			}
		}
	})
}

func BenchmarkSystemCallFromAnotherThread(b *testing.B) {
	m := newGuest(b, []byte{0x0F, 0x05, 0xEB, 0xFC})
	for b.Loop() {
		if e, err := m.Run(); err != nil || e.Kind == platform.Fault {
			b.Fatalf("%+v, %v", e, err)
		}
	}
}

func benchmarkRevert(b *testing.B, pages uint64) {
	p := testPlatform(b)
	t, c := platformtest.Template(b, p, platformtest.Dirty)
	m := clone(b, p, t, c)
	m.OnThread(func() {
		for b.Loop() {
			r := m.Regs()
			r.RBX, r.RCX = heapAddr, pages
			if e, err := m.Run(); err != nil || e.Kind == platform.Fault {
				b.Errorf("%+v, %v", e, err)
				return
			}
			if _, err := m.Revert(c); err != nil {
				b.Error(err)
				return
			}
		}
	})
}

func BenchmarkRunAndRevert100Pages(b *testing.B)  { benchmarkRevert(b, 100) }
func BenchmarkRunAndRevert1000Pages(b *testing.B) { benchmarkRevert(b, 1000) }
func BenchmarkRunAndRevert6000Pages(b *testing.B) { benchmarkRevert(b, 6000) }

// BenchmarkCopyIn4KiB compares the two ways to a child's memory.
func BenchmarkCopyIn4KiB(b *testing.B) {
	p := testPlatform(b)
	t, c := platformtest.Template(b, p, nil)
	m := clone(b, p, t, c)
	buf := make([]byte, 4096)
	b.Run("proc mem", func(b *testing.B) {
		for b.Loop() {
			if !m.CopyIn(buf, heapAddr) {
				b.Fatal("refused")
			}
		}
	})
	b.Run("process_vm_readv", func(b *testing.B) {
		local := []unix.Iovec{{Base: &buf[0], Len: uint64(len(buf))}}
		remote := []unix.RemoteIovec{{Base: heapAddr, Len: len(buf)}}
		for b.Loop() {
			if n, err := unix.ProcessVMReadv(m.child.pid, local, remote, 0); err != nil || n != len(buf) {
				b.Skipf("%d, %v", n, err)
			}
		}
	})
}
