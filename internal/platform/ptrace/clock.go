//go:build linux && amd64

package ptrace

import (
	"time"

	"golang.org/x/sys/unix"

	"github.com/maf-sandbox/maf-sandbox-go/internal/platform"
	"github.com/maf-sandbox/maf-sandbox-go/internal/platform/x86"
	"github.com/maf-sandbox/maf-sandbox-go/internal/vdso"
)

// clock is a machine's clock. A guest reads the host's time stamp counter
// itself.
type clock struct {
	vdso.Clock
	// tick is the length of a tick of the counter; 0 without a usable one.
	tick uint64
}

// reading is the time stamp counter and the monotonic clock at one moment.
type reading struct {
	tsc  uint64
	nano int64
}

// now takes a reading: the one of five between whose counters the least time
// passed.
func now() reading {
	var best reading
	shortest := ^uint64(0)
	for range 5 {
		var ts unix.Timespec
		before := x86.TSC()
		if unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts) != nil {
			return reading{}
		}
		if took := x86.TSC() - before; took < shortest {
			shortest, best = took, reading{before + took/2, ts.Nano()}
		}
	}
	return best
}

// calibration is how long the counter is watched at least. A reading is some
// 50 ns off, which makes 20 millionths of this; a platform that was opened
// earlier does better.
const calibration = 5 * time.Millisecond

// tickSince is the length of a tick of the counter as a vdso.Clock has it,
// measured since an earlier reading; 0 when it cannot be had.
func tickSince(start reading) uint64 {
	if start == (reading{}) || !x86.InvariantTSC() {
		return 0
	}
	end := now()
	for end.nano-start.nano < int64(calibration) {
		if end == (reading{}) {
			return 0
		}
		end = now()
	}
	elapsed := uint64(end.nano - start.nano)
	if end.tsc <= start.tsc {
		return 0
	}
	ticks := end.tsc - start.tsc
	// 32 bits of either are precise enough.
	for elapsed >= 1<<32 {
		elapsed, ticks = elapsed>>1, ticks>>1
	}
	return elapsed << 32 / ticks
}

// epoch is what a host without a usable time stamp counter counts from.
var epoch = time.Now()

// count is the guest's time stamp counter now, or nanoseconds where there is
// no usable one.
func (c *clock) count() uint64 {
	if c.tick == 0 {
		return uint64(time.Since(epoch))
	}
	return x86.TSC()
}

// StartClock implements platform.Machine.
func (m *Machine) StartClock(monotonic uint64) {
	m.setClock(monotonic, uint64(time.Now().UnixNano()))
}

// SyncClock implements platform.Machine.
func (m *Machine) SyncClock() {
	mono, _ := m.Clock()
	m.setClock(mono, uint64(time.Now().UnixNano()))
}

func (m *Machine) setClock(mono, real uint64) {
	m.clock.Clock = vdso.Clock{TSC0: m.clock.count(), Mult: m.clock.tick, Mono0: mono, Real0: real}
	b := m.clock.Bytes()
	// A child that has ended has no clock.
	_ = m.force(b[:], platform.ClockPage)
}

// Clock implements platform.Machine.
func (m *Machine) Clock() (monotonic, realtime uint64) {
	if m.clock.tick == 0 {
		// Without a usable counter the guest asks for every reading.
		elapsed := m.clock.count() - m.clock.TSC0
		return m.clock.Mono0 + elapsed, m.clock.Real0 + elapsed
	}
	return m.clock.At(m.clock.count())
}
