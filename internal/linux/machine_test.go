package linux

import (
	"bytes"
	"encoding/binary"
	"errors"
	"slices"
	"sync/atomic"

	"github.com/maf-sandbox/maf-sandbox-go/internal/platform"
)

// step is one return of fakeMachine.Run.
type step func(m *fakeMachine) platform.Exit

// fakeMachine is a platform.Machine over a byte slice, whose processor is a
// script.
type fakeMachine struct {
	mem   []byte
	spans []platform.Span
	// touched are the pages that were written to, so that a machine can be
	// cleared cheaply.
	touched   []uint64
	isTouched []bool

	regs   platform.Regs
	fs, gs uint64
	xsave  [64]byte

	// mono and real are the clocks; each reading of them takes a tick.
	mono, real, tick uint64

	script []step
	// idle is called when the script is at its end.
	idle func()
	// stopped is what the registers were when Run was entered last.
	stopped platform.Regs

	interrupted atomic.Bool
	// failure, if set, is what Run, Save and Restore return.
	failure error
}

func newFakeMachine(size uint64, spans []platform.Span) *fakeMachine {
	return &fakeMachine{
		mem: make([]byte, size), spans: spans, isTouched: make([]bool, size/platform.PageSize+1),
		mono: 1e9, real: 1_800_000_000e9, idle: func() {},
	}
}

// clear makes memory what it was at first.
func (m *fakeMachine) clear() {
	for _, page := range m.touched {
		lo := page * platform.PageSize
		clear(m.mem[lo:min(lo+platform.PageSize, uint64(len(m.mem)))])
		m.isTouched[page] = false
	}
	m.touched = m.touched[:0]
}

// touch notes that a range is being written to.
func (m *fakeMachine) touch(addr, n uint64) {
	for page := addr / platform.PageSize; n > 0 && page <= (addr+n-1)/platform.PageSize; page++ {
		if !m.isTouched[page] {
			m.isTouched[page] = true
			m.touched = append(m.touched, page)
		}
	}
}

// allow reports whether every byte of a range has the rights need.
func (m *fakeMachine) allow(addr, n uint64, need platform.Prot) bool {
	if n == 0 {
		return true
	}
	end := addr + n
	if end < addr || end > uint64(len(m.mem)) || addr < platform.UserLo {
		return false
	}
	for _, s := range m.spans {
		if addr >= s.Hi {
			continue
		}
		if addr < s.Lo || s.Prot&need != need {
			return false
		}
		if end <= s.Hi {
			return true
		}
		addr = s.Hi
	}
	return false
}

func (m *fakeMachine) CopyIn(dst []byte, addr uint64) bool {
	if !m.allow(addr, uint64(len(dst)), platform.Read) {
		return false
	}
	if len(dst) > 0 {
		copy(dst, m.mem[addr:])
	}
	return true
}

func (m *fakeMachine) CopyOut(addr uint64, src []byte) bool {
	if !m.allow(addr, uint64(len(src)), platform.Write) {
		return false
	}
	return m.put(addr, src)
}

func (m *fakeMachine) Load(addr uint64, src []byte) bool {
	if !m.allow(addr, uint64(len(src)), 0) {
		return false
	}
	return m.put(addr, src)
}

func (m *fakeMachine) put(addr uint64, src []byte) bool {
	if len(src) > 0 {
		m.touch(addr, uint64(len(src)))
		copy(m.mem[addr:], src)
	}
	return true
}

func (m *fakeMachine) Zero(addr, n uint64) bool {
	if !m.allow(addr, n, platform.Write) {
		return false
	}
	// Only pages that were written to can be anything but zero.
	for at := addr; at < addr+n; {
		end := min(addr+n, (at/platform.PageSize+1)*platform.PageSize)
		if m.isTouched[at/platform.PageSize] {
			clear(m.mem[at:end])
		}
		at = end
	}
	return true
}

func (m *fakeMachine) Move(dst, src, n uint64) bool {
	if !m.allow(dst, n, platform.Write) || !m.allow(src, n, platform.Read) {
		return false
	}
	if n > 0 {
		m.touch(dst, n)
		copy(m.mem[dst:dst+n], m.mem[src:src+n])
	}
	return true
}

func (m *fakeMachine) Regs() *platform.Regs { return &m.regs }

func (m *fakeMachine) SetFSBase(addr uint64) bool {
	if addr >= 1<<47 {
		return false
	}
	m.fs = addr
	return true
}

func (m *fakeMachine) Save(c *platform.Context) error {
	if m.failure != nil {
		return m.failure
	}
	c.Regs, c.FSBase, c.GSBase = m.regs, m.fs, m.gs
	c.XSave = append(c.XSave[:0], m.xsave[:]...)
	return nil
}

func (m *fakeMachine) Restore(c *platform.Context) error {
	if m.failure != nil {
		return m.failure
	}
	if len(c.XSave) != len(m.xsave) {
		return errors.New("fake machine: extended state of another size")
	}
	m.regs, m.fs, m.gs = c.Regs, c.FSBase, c.GSBase
	copy(m.xsave[:], c.XSave)
	return nil
}

func (m *fakeMachine) Run() (platform.Exit, error) {
	if m.failure != nil {
		return platform.Exit{}, m.failure
	}
	if m.interrupted.Swap(false) {
		return platform.Exit{Kind: platform.Interrupted}, nil
	}
	m.stopped = m.regs
	if len(m.script) == 0 {
		m.idle()
		return platform.Exit{Kind: platform.Interrupted}, nil
	}
	s := m.script[0]
	m.script = m.script[1:]
	return s(m), nil
}

func (m *fakeMachine) Interrupt() { m.interrupted.Store(true) }

func (m *fakeMachine) StartClock(monotonic uint64) { m.mono = monotonic }

func (m *fakeMachine) SyncClock() {}

func (m *fakeMachine) Clock() (monotonic, realtime uint64) {
	m.mono += m.tick
	m.real += m.tick
	return m.mono, m.real
}

func (m *fakeMachine) Revert(*platform.Context) (int, error) { return 0, nil }

func (m *fakeMachine) Close() error              { return nil }
func (m *fakeMachine) Changed() []platform.Range { return nil }

// protected gives the bytes of everything that the guest may not write to.
func (m *fakeMachine) protected() []byte {
	var b []byte
	for _, s := range m.spans {
		if s.Prot&platform.Write == 0 {
			b = append(b, m.mem[s.Lo:s.Hi]...)
		}
	}
	return b
}

// call makes a step that executes a system call.
func call(nr uint64, a ...uint64) step {
	return func(m *fakeMachine) platform.Exit {
		var v [6]uint64
		copy(v[:], a)
		r := &m.regs
		r.RAX, r.RDI, r.RSI, r.RDX, r.R10, r.R8, r.R9 = nr, v[0], v[1], v[2], v[3], v[4], v[5]
		return platform.Exit{Kind: platform.Syscall}
	}
}

// faultStep makes a step that raises a processor exception.
func faultStep(vector uint8, addr uint64) step {
	return func(*fakeMachine) platform.Exit {
		return platform.Exit{Kind: platform.Fault, Vector: vector, Addr: addr}
	}
}

// words encodes 64-bit values.
func words(v ...uint64) []byte {
	var b []byte
	for _, w := range v {
		b = binary.LittleEndian.AppendUint64(b, w)
	}
	return b
}

// zeros reports whether b is all zero.
func zeros(b []byte) bool { return len(bytes.Trim(b, "\x00")) == 0 }

// sortedRanges reports whether ranges are sorted, apart and inside [lo,hi).
func sortedRanges(free []platform.Range, lo, hi uint64) bool {
	ok := slices.IsSortedFunc(free, func(a, b platform.Range) int {
		if a.Hi < b.Lo {
			return -1
		}
		return 1
	})
	for _, r := range free {
		ok = ok && r.Lo < r.Hi && r.Lo >= lo && r.Hi <= hi
	}
	return ok
}
