//go:build linux

package platformtest

import (
	"bytes"
	"encoding/binary"
	"errors"
	"runtime"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/maf-sandbox/maf-sandbox-go/internal/platform"
)

// WhatCannotBeMade tries to make machines that there cannot be.
func WhatCannotBeMade(t *testing.T, p platform.Platform, b *platform.Backing, c *platform.Context) {
	t.Helper()
	bad, wild := *c, *c
	bad.XSave = nil
	wild.FSBase = 1 << 63
	clone := func(size uint64, c *platform.Context) func() (platform.Machine, error) {
		return func() (platform.Machine, error) { return p.Clone(b, size, Spans, c) }
	}
	boot := func(size uint64, spans []platform.Span) func() (platform.Machine, error) {
		return func() (platform.Machine, error) { m, _, err := p.Boot(size, spans, nil); return m, err }
	}
	for name, fn := range map[string]func() (platform.Machine, error){
		"context of another kind": clone(MemSize, &bad),
		"non-canonical base":      clone(MemSize, &wild),
		"too small for backing":   clone(HeapAddr, c),
		"too small":               clone(4096, c),
		"too large":               clone(1<<47, c),
		"boot of nothing":         boot(0, Spans),
		"boot of bad spans":       boot(MemSize, []platform.Span{{Lo: 0, Hi: 4096}}),
	} {
		if m, err := fn(); !errors.Is(err, platform.ErrMachine) || m != nil {
			t.Errorf("%s: %v, %v", name, m, err)
		}
	}
}

// HalfMadeMachinesAreTakenApart makes machines while there are up to room
// descriptors, of which not all can be made. count counts what else must not be
// left behind.
func HalfMadeMachinesAreTakenApart(t *testing.T, p platform.Platform, room uint64, count func() int) {
	t.Helper()
	b, c := Template(t, p, Dirty)
	var old unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &old); err != nil {
		t.Fatal(err)
	}
	before, others := OpenDescriptors(t), count()
	failed := 0
	for room := range room {
		// The count includes the listing's own descriptor, closed again.
		limit := unix.Rlimit{Cur: uint64(before) - 1 + room, Max: old.Max}
		var errs [2]error
		var ms [2]platform.Machine
		var fd int
		if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
			t.Fatal(err)
		}
		ms[0], errs[0] = p.Clone(b, MemSize, Spans, c)
		ms[1], fd, errs[1] = p.Boot(MemSize, Spans, nil)
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
	if n, k := OpenDescriptors(t), count(); n != before || k != others {
		t.Errorf("%d descriptors and %d others before, %d and %d after", before, others, n, k)
	}
}

// CloseWhileOthersInterrupt closes a machine that others interrupt.
func CloseWhileOthersInterrupt(t *testing.T, p platform.Platform) {
	t.Helper()
	for range 15 {
		m := Guest(t, p, []byte{0xEB, 0xFE})
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

// InterruptEndsEndlessLoops has loops interrupted again and again. look, if not
// nil, looks at the machine then, and says what is wrong with it.
func InterruptEndsEndlessLoops(t *testing.T, p platform.Platform, look func(m platform.Machine) error) {
	t.Helper()
	for name, code := range map[string]string{
		"jump":         "EB FE",
		"pause":        "F3 90 EB FC",
		"cpuid":        "31 C0 0F A2 EB FA",
		"string store": "48 C7 C1 00 00 01 00 BF 00 20 40 00 F3 AA EB F0",
		"rep of none":  "31 C9 F3 AA EB FA",
	} {
		t.Run(name, func(t *testing.T) {
			b := Assemble(t, code)
			m := Guest(t, p, b)
			platform.OnThread(m, func() {
				for i := range 50 {
					if i%2 == 0 {
						m.Interrupt() // before it runs: the next run is the one
					} else {
						go m.Interrupt()
					}
					e, err := m.Run()
					if err != nil || e.Kind != platform.Interrupted {
						t.Errorf("%d: %+v, %v", i, e, err)
						return
					}
					if rip := m.Regs().RIP; rip < CodeAddr || rip >= CodeAddr+uint64(len(b)) {
						t.Errorf("interrupted at %#x", rip)
						return
					}
					if look == nil {
						continue
					}
					if err := look(m); err != nil {
						t.Error(err)
						return
					}
				}
			})
		})
	}
}

// InterruptsLoseNoSystemCall interrupts a guest that counts its system calls.
func InterruptsLoseNoSystemCall(t *testing.T, p platform.Platform) {
	t.Helper()
	m := Guest(t, p, Assemble(t, "48 FF C3 0F 05 EB F9")) // loop: inc rbx; syscall; jmp loop
	done := make(chan struct{})
	go func() {
		defer close(done)
		for range 2000 {
			m.Interrupt()
			runtime.Gosched()
		}
	}()
	calls := uint64(0)
	platform.OnThread(m, func() {
		for running := true; running; {
			select {
			case <-done:
				running = false
			default:
			}
			e, err := m.Run()
			switch {
			case err != nil:
				t.Error(err)
				return
			case e.Kind == platform.Syscall:
				if calls++; m.Regs().RBX != calls || m.Regs().RIP != CodeAddr+5 {
					t.Errorf("after %d calls the guest counts %d at %#x", calls, m.Regs().RBX, m.Regs().RIP)
					return
				}
			case e.Kind != platform.Interrupted:
				t.Errorf("%+v", e)
				return
			}
		}
	})
	<-done
	for calls += 3; !t.Failed() && m.Regs().RBX < calls; {
		Finish(t, m)
	}
}

// RevertRestoresMemory has guest and host change memory, and looks at what a
// revert makes of it. Above giveBack changed pages are dropped, not copied; finds
// says that the platform finds out which were changed.
func RevertRestoresMemory(t *testing.T, p platform.Platform, m platform.Machine, b *platform.Backing, c *platform.Context, eyes Eyes, giveBack uint64, finds bool) {
	t.Helper()
	eyes.Memory(t, m, b)
	for round, tt := range []struct{ from, pages uint64 }{
		{HeapAddr, 3},
		{DataAddr, 16},
		{Guard - 2*platform.PageSize, 4},
		{Guard, 1000},
		{MemSize - platform.PageSize, 1},
		{HeapAddr, giveBack + 100},
		{HeapAddr, 5},
	} {
		m.StartClock(uint64(round) * 1e9)
		r := m.Regs()
		r.RBX, r.RCX, r.RAX = tt.from, tt.pages, 0xA5
		if e := Finish(t, m); e.Kind != platform.Syscall {
			t.Fatalf("round %d: %+v at %#x", round, e, r.RIP)
		}
		// The host writes too, and reads what was never touched.
		m.CopyOut(HeapAddr+70<<10, []byte("host"))
		m.Zero(Guard-100, 200)
		m.Zero(HeapAddr, 2<<20)
		m.Move(MemSize-4096, HeapAddr, 4096)
		m.CopyIn(make([]byte, 4096), MemSize-20<<20)
		pages, err := m.Revert(c)
		if err != nil {
			t.Fatal(err)
		}
		if finds && uint64(pages) < min(tt.pages, giveBack) {
			t.Errorf("round %d: %d pages were found changed, %d were", round, pages, tt.pages)
		}
		eyes.Memory(t, m, b)
		if v, ok := m.(interface {
			Verify(c *platform.Context) error
		}); !ok {
			t.Fatalf("%s cannot verify", p.Name())
		} else if err := v.Verify(c); err != nil {
			t.Errorf("round %d: %v", round, err)
		}
	}
}

// RevertLeavesNothingInRegisters runs code that changes every kind of register,
// with RBX at values for MXCSR and, 8 bytes on, the x87 control word, and looks at
// what a revert makes of it.
func RevertLeavesNothingInRegisters(t *testing.T, m platform.Machine, c *platform.Context) {
	t.Helper()
	control := binary.LittleEndian.AppendUint64(nil, 0x7F80) // MXCSR: round to zero
	control = binary.LittleEndian.AppendUint64(control, 0x0F7F)
	m.CopyOut(DataAddr+256, control)
	r := m.Regs()
	*r = platform.Regs{
		RAX: 1, RBX: DataAddr + 256, RDX: 3, RSI: 4, RDI: 5, RSP: DataEnd - 64, RBP: 6,
		R8: 8, R9: 9, R10: 10, R12: 12, R13: 13, R14: 14, R15: 15, RIP: r.RIP, RFLAGS: Flags,
	}
	m.SetFSBase(HeapAddr)
	if e := Finish(t, m); e.Kind != platform.Syscall {
		t.Fatalf("%+v at %#x", e, r.RIP)
	}
	var changed platform.Context
	if err := m.Save(&changed); err != nil {
		t.Fatal(err)
	}
	if bytes.Equal(changed.XSave, c.XSave) || changed.FSBase == c.FSBase {
		t.Fatal("the guest changed nothing")
	}
	if _, err := m.Revert(c); err != nil {
		t.Fatal(err)
	}
}

// ClonesDoNotSeeEachOther writes in one clone and looks at others.
func ClonesDoNotSeeEachOther(t *testing.T, p platform.Platform, eyes Eyes) {
	t.Helper()
	b, c := Template(t, p, Dirty)
	first, second := Clone(t, p, b, c), Clone(t, p, b, c)
	r := first.Regs()
	r.RBX, r.RCX, r.RAX = HeapAddr, 500, 0x5A
	Finish(t, first)
	first.CopyOut(DataAddr, []byte("secret"))
	first.Load(CodeAddr, []byte("secret"))
	eyes.Memory(t, second, b)
	eyes.Memory(t, Clone(t, p, b, c), b)
}
