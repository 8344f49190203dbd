//go:build linux

package platformtest

import (
	"bytes"
	"hash/crc32"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/maf-sandbox/maf-sandbox-go/internal/platform"
)

// An Outcome is a set of ways in which an attempt may end. Processors and
// platforms differ in which of the sound ones they choose.
type Outcome uint8

// The ways.
const (
	Faults Outcome = 1 << iota
	ShutsDown
	// Harmless: the guest goes on, as any process could.
	Harmless
	// Endless: it never gets behind the instruction, but can be interrupted.
	Endless
)

// String lists them.
func (o Outcome) String() string {
	s := ""
	for i, name := range []string{"fault", "shutdown", "harmless", "endless"} {
		if o&(1<<i) != 0 {
			s += name + " "
		}
	}
	return s
}

// An Attempt is something a hostile guest does. A system call follows it.
type Attempt struct {
	Name string
	// Code is in hexadecimal, with spaces.
	Code string
	// Regs: RIP, RSP and RFLAGS have values of their own if 0.
	Regs platform.Regs
	May  Outcome
}

// Eyes are how a platform's own tests look at its machines.
type Eyes struct {
	// Memory compares all of a machine's memory with its template.
	Memory func(t testing.TB, m platform.Machine, b *platform.Backing)
	// Bytes gives guest memory, whatever the guest's rights.
	Bytes func(t testing.TB, m platform.Machine, lo, hi uint64) []byte
	// After looks at what an attempt with code led to, before anything is put
	// back. It tells of a machine that is shut down for good, having made sure.
	After func(t *testing.T, m platform.Machine, got Outcome, code []byte) (dead bool)
	// Settle has the state of a machine that is to be compared written to it; nil
	// where it always is.
	Settle func(m platform.Machine) error
	// Compared are the ranges that are compared after every revert. The template
	// holds their bytes.
	Compared []platform.Range
	// Patience is how long an attempt may take before it counts as endless.
	Patience time.Duration
}

// A Lab lets hostile guests loose on clones of one template and looks at what
// is left.
type Lab struct {
	platform platform.Platform
	backing  *platform.Backing
	context  *platform.Context
	eyes     Eyes
	sum      uint32
	m        platform.Machine // the subject, nil when the last one died
	// reverts counts those of the subject.
	reverts int
}

// NewLab makes a lab, which looks at all that is left when the test ends.
func NewLab(t *testing.T, p platform.Platform, eyes Eyes) *Lab {
	t.Helper()
	l := &Lab{platform: p, eyes: eyes}
	l.backing, l.context = Template(t, p, nil)
	l.sum = l.sumBacking()
	t.Cleanup(func() {
		l.discard(t)
		l.checkHost(t)
		l.checkOther(t)
		eyes.Memory(t, l.Subject(t), l.backing)
		l.discard(t)
	})
	return l
}

func (l *Lab) discard(t *testing.T) {
	t.Helper()
	if l.m == nil {
		return
	}
	if err := l.m.Close(); err != nil {
		t.Error(err)
	}
	l.m, l.reverts = nil, 0
}

// Subject gives the machine to try things on.
func (l *Lab) Subject(t *testing.T) platform.Machine {
	t.Helper()
	if l.m == nil {
		m, err := l.platform.Clone(l.backing, MemSize, Spans, l.context)
		if err != nil {
			t.Fatal(err)
		}
		l.m = m
	}
	return l.m
}

// Try makes an attempt and checks what it led to, for the guest, for the host
// and for the next guest.
func (l *Lab) Try(t *testing.T, a Attempt) {
	t.Helper()
	code := append(Assemble(t, a.Code), 0x0F, 0x05)
	m := l.Subject(t)
	if !m.Load(CodeAddr, code) {
		t.Fatal("code not loaded")
	}
	r := a.Regs
	for reg, v := range map[*uint64]uint64{&r.RIP: CodeAddr, &r.RSP: DataEnd - 256, &r.RFLAGS: Flags} {
		if *reg == 0 {
			*reg = v
		}
	}
	*m.Regs() = r
	e, got, err := l.attend(m)
	if err != nil {
		l.discard(t)
		t.Fatalf("run: %v", err)
	}
	if got&a.May == 0 {
		t.Errorf("ended with %+v at %#x, want: %v", e, m.Regs().RIP, a.May)
	}
	if l.eyes.After(t, m, got, code) {
		l.discard(t)
		l.checkHost(t)
		l.checkOther(t)
		return
	}
	l.Revert(t)
}

// attend runs a guest to its first real exit, or until patience ends.
func (l *Lab) attend(m platform.Machine) (e platform.Exit, got Outcome, err error) {
	ways := map[platform.ExitKind]Outcome{platform.Syscall: Harmless, platform.Fault: Faults, platform.Shutdown: ShutsDown}
	var late atomic.Bool
	platform.OnThread(m, func() {
		defer time.AfterFunc(l.eyes.Patience, func() { late.Store(true); m.Interrupt() }).Stop()
		for err == nil && got == 0 {
			e, err = m.Run()
			if got = ways[e.Kind]; got == 0 && late.Load() {
				got = Endless
			}
		}
	})
	return e, got, err
}

// Revert puts the subject back and compares it with the template: all of its
// memory now and then, and what the template holds bytes of every time.
func (l *Lab) Revert(t *testing.T) {
	t.Helper()
	if _, err := l.m.Revert(l.context); err != nil {
		t.Fatal(err)
	}
	if l.reverts++; l.reverts%16 == 0 {
		l.eyes.Memory(t, l.m, l.backing)
	}
	for _, r := range l.eyes.Compared {
		if !bytes.Equal(l.eyes.Bytes(t, l.m, r.Lo, r.Hi), l.Piece(r.Lo, r.Hi)) {
			t.Errorf("after the revert memory of %#x to %#x differs", r.Lo, r.Hi)
		}
	}
	if l.eyes.Settle != nil {
		if err := l.eyes.Settle(l.m); err != nil {
			t.Fatal(err)
		}
	}
	var got platform.Context
	if err := l.m.Save(&got); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(*l.context, got); diff != "" {
		t.Errorf("after the revert: %s", diff)
	}
}

// Piece gives the template's bytes of a range that the backing holds.
func (l *Lab) Piece(lo, hi uint64) []byte {
	_, b := l.backing.Split(lo, hi)
	return b
}

func (l *Lab) sumBacking() uint32 {
	sum := uint32(0)
	for _, r := range l.backing.Ranges {
		sum = crc32.Update(sum, crc32.IEEETable, l.Piece(r.Lo, r.Hi))
	}
	return sum
}

// checkHost sees to it that the memory all guests start from is what it was.
func (l *Lab) checkHost(t *testing.T) {
	t.Helper()
	if l.sumBacking() != l.sum {
		t.Fatal("the template's memory was written to")
	}
}

// checkOther makes another machine, which has to work.
func (l *Lab) checkOther(t *testing.T) {
	t.Helper()
	m, err := l.platform.Clone(l.backing, MemSize, Spans, l.context)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = m.Close() }()
	const at = CodeAddr + 0x900
	m.Load(at, []byte{0xFF, 0xC0, 0x0F, 0x05}) // inc eax; syscall
	*m.Regs() = platform.Regs{RIP: at, RAX: 41, RSP: DataEnd, RFLAGS: Flags}
	if e := Finish(t, m); e.Kind != platform.Syscall || m.Regs().RAX != 42 {
		t.Fatalf("the next machine ends with %+v and says %d", e, m.Regs().RAX)
	}
}
