//go:build linux && amd64

package kvmvm

import (
	"bytes"
	"testing"

	"github.com/maf-sandbox/maf-sandbox-go/internal/platform"
	"github.com/maf-sandbox/maf-sandbox-go/internal/platform/platformtest"
)

// Outcomes of attempts.
const (
	faults    = platformtest.Faults
	shutsDown = platformtest.ShutsDown
	harmless  = platformtest.Harmless
	endless   = platformtest.Endless
)

type attempt = platformtest.Attempt

// newLab makes a lab whose attempts are followed by a look at everything that a
// guest may not write to, its flags and its ring.
func newLab(t *testing.T) *platformtest.Lab {
	t.Helper()
	var l *platformtest.Lab
	eyes := eyes
	eyes.After = func(t *testing.T, tested platform.Machine, got platformtest.Outcome, code []byte) bool {
		t.Helper()
		m := tested.(*Machine)
		if f := m.Regs().RFLAGS; got != shutsDown && f&0x3000 != 0 {
			t.Errorf("the guest has I/O privilege: %#x", f)
		}
		checkSystem(t, m, l, code)
		if m.dead {
			checkDead(t, m)
			return true
		}
		checkRing(t, m)
		return false
	}
	l = platformtest.NewLab(t, testPlatform(t), eyes)
	return l
}

// checkSystem compares everything that a guest may not write to with the
// template, before anything is put back.
func checkSystem(t *testing.T, m *Machine, l *platformtest.Lab, code []byte) {
	t.Helper()
	text := bytes.Clone(l.Piece(codeAddr, readOnly))
	copy(text, code)
	if got := m.mem[codeAddr:readOnly]; !bytes.Equal(got, text) {
		t.Errorf("the guest's text was written to: %x, want %x", got[:len(code)], code)
	}
	for _, r := range []platform.Range{
		{Lo: 0, Hi: stackLow}, {Lo: stackTop, Hi: platform.ClockPage}, {Lo: readOnly, Hi: dataAddr},
	} {
		if !bytes.Equal(m.mem[r.Lo:r.Hi], l.Piece(r.Lo, r.Hi)) {
			t.Errorf("memory of %#x to %#x was written to", r.Lo, r.Hi)
		}
	}
}
