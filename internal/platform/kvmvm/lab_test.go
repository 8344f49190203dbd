//go:build linux && amd64

package kvmvm

import (
	"bytes"
	"encoding/hex"
	"hash/crc32"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/maf-sandbox/maf-sandbox-go/internal/platform"
)

// An outcome is a set of ways in which an attempt may end. Processors and kinds
// of KVM differ in which of the sound ones they choose.
type outcome uint8

const (
	faults outcome = 1 << iota
	shutsDown
	// harmless: the guest goes on, as any process could.
	harmless
	// endless: KVM never gets behind the instruction, but can be interrupted.
	endless
)

func (o outcome) String() string {
	s := ""
	for i, name := range []string{"fault", "shutdown", "harmless", "endless"} {
		if o&(1<<i) != 0 {
			s += name + " "
		}
	}
	return s
}

// An attempt is something a hostile guest does. A system call follows it.
type attempt struct {
	name string
	// code is in hexadecimal.
	code string
	// regs: RIP, RSP and RFLAGS have values of their own if 0.
	regs platform.Regs
	may  outcome
}

// A lab lets hostile guests loose on clones of one template and looks at what
// is left.
type lab struct {
	p   *Platform
	b   *platform.Backing
	c   *platform.Context
	sum uint32
	m   *Machine // the subject, nil when the last one died
	// reverts counts those of the subject.
	reverts int
}

func newLab(t *testing.T) *lab {
	t.Helper()
	l := &lab{p: testPlatform(t)}
	l.b, l.c = testTemplate(t, l.p, nil)
	l.sum = l.sumBacking()
	t.Cleanup(func() {
		l.discard(t)
		l.checkHost(t)
		l.checkOther(t)
		checkMemory(t, l.subject(t), l.b)
		l.discard(t)
	})
	return l
}

func (l *lab) discard(t *testing.T) {
	t.Helper()
	if l.m == nil {
		return
	}
	if err := l.m.Close(); err != nil {
		t.Error(err)
	}
	l.m, l.reverts = nil, 0
}

// subject gives the machine to try things on.
func (l *lab) subject(t *testing.T) *Machine {
	t.Helper()
	if l.m == nil {
		m, err := l.p.Clone(l.b, memSize, testSpans, l.c)
		if err != nil {
			t.Fatal(err)
		}
		l.m = m.(*Machine)
	}
	return l.m
}

// try makes an attempt and checks what it led to, for the guest, for the host
// and for the next guest.
func (l *lab) try(t *testing.T, a attempt) {
	t.Helper()
	code, err := hex.DecodeString(string(bytes.ReplaceAll([]byte(a.code), []byte(" "), nil)))
	if err != nil {
		t.Fatal(err)
	}
	code = append(code, 0x0F, 0x05)
	m := l.subject(t)
	if !m.Load(codeAddr, code) {
		t.Fatal("code not loaded")
	}
	r := a.regs
	for reg, v := range map[*uint64]uint64{&r.RIP: codeAddr, &r.RSP: dataEnd - 256, &r.RFLAGS: 0x202} {
		if *reg == 0 {
			*reg = v
		}
	}
	*m.Regs() = r
	e, got := attend(t, m)
	if got&a.may == 0 {
		t.Errorf("ended with %+v at %#x, want: %v", e, m.Regs().RIP, a.may)
	}
	if f := m.Regs().RFLAGS; got != shutsDown && f&0x3000 != 0 {
		t.Errorf("the guest has I/O privilege: %#x", f)
	}
	l.checkSystem(t, code)
	if m.dead {
		checkDead(t, m)
		l.discard(t)
		l.checkHost(t)
		l.checkOther(t)
		return
	}
	checkRing(t, m)
	l.revert(t)
}

// patience is how long an attempt may take before it counts as endless.
const patience = 2 * time.Second

// attend runs a guest to its first real exit, or until patience ends.
func attend(t *testing.T, m *Machine) (platform.Exit, outcome) {
	t.Helper()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var late atomic.Bool
	defer time.AfterFunc(patience, func() { late.Store(true); m.Interrupt() }).Stop()
	for {
		e, err := m.Run()
		switch {
		case err != nil:
			t.Fatalf("run: %v", err)
		case e.Kind == platform.Syscall:
			return e, harmless
		case e.Kind == platform.Fault:
			return e, faults
		case e.Kind == platform.Shutdown:
			return e, shutsDown
		case late.Load():
			return e, endless
		}
	}
}

// revert puts the subject back and compares it with the template: all of its
// memory now and then, and what the template holds bytes of every time.
func (l *lab) revert(t *testing.T) {
	t.Helper()
	if _, err := l.m.Revert(l.c); err != nil {
		t.Fatal(err)
	}
	if l.reverts++; l.reverts%16 == 0 {
		checkMemory(t, l.m, l.b)
	}
	for _, r := range l.b.Ranges {
		if !bytes.Equal(l.m.mem[r.Lo:r.Hi], l.piece(r.Lo, r.Hi)) {
			t.Errorf("after the revert memory of %#x to %#x differs", r.Lo, r.Hi)
		}
	}
	var got platform.Context
	if err := l.m.Save(&got); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(*l.c, got); diff != "" {
		t.Errorf("after the revert: %s", diff)
	}
}

// checkSystem compares everything that a guest may not write to with the
// template, before anything is put back.
func (l *lab) checkSystem(t *testing.T, code []byte) {
	t.Helper()
	text := bytes.Clone(l.piece(codeAddr, readOnly))
	copy(text, code)
	if got := l.m.mem[codeAddr:readOnly]; !bytes.Equal(got, text) {
		t.Errorf("the guest's text was written to: %x, want %x", got[:len(code)], code)
	}
	for _, r := range []platform.Range{
		{Lo: 0, Hi: stackLow}, {Lo: stackTop, Hi: platform.ClockPage}, {Lo: readOnly, Hi: dataAddr},
	} {
		if !bytes.Equal(l.m.mem[r.Lo:r.Hi], l.piece(r.Lo, r.Hi)) {
			t.Errorf("memory of %#x to %#x was written to", r.Lo, r.Hi)
		}
	}
}

// piece gives the template's bytes of a range that the backing holds.
func (l *lab) piece(lo, hi uint64) []byte {
	_, b := l.b.Split(lo, hi)
	return b
}

func (l *lab) sumBacking() uint32 {
	sum := uint32(0)
	for _, r := range l.b.Ranges {
		sum = crc32.Update(sum, crc32.IEEETable, l.piece(r.Lo, r.Hi))
	}
	return sum
}

// checkHost sees to it that the memory all guests start from is what it was.
func (l *lab) checkHost(t *testing.T) {
	t.Helper()
	if l.sumBacking() != l.sum {
		t.Fatal("the template's memory was written to")
	}
}

// checkOther makes another machine, which has to work.
func (l *lab) checkOther(t *testing.T) {
	t.Helper()
	b, err := l.p.Clone(l.b, memSize, testSpans, l.c)
	if err != nil {
		t.Fatal(err)
	}
	m := b.(*Machine)
	defer func() { _ = m.Close() }()
	m.Load(codeAddr+0x900, []byte{0xFF, 0xC0, 0x0F, 0x05}) // inc eax; syscall
	*m.Regs() = platform.Regs{RIP: codeAddr + 0x900, RAX: 41, RSP: dataEnd, RFLAGS: 0x202}
	if e := finish(t, m); e.Kind != platform.Syscall || m.Regs().RAX != 42 {
		t.Fatalf("the next machine ends with %+v and says %d", e, m.Regs().RAX)
	}
}
