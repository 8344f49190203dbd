package vdso

import (
	"encoding/binary"
	"math/bits"
)

// Offsets of the clock page's fields in bytes. Each is a little-endian unsigned
// 64-bit word.
const (
	OffsetTSC0  = 0
	OffsetMult  = 8
	OffsetMono0 = 16
	OffsetReal0 = 24
)

// ClockSize is how many bytes of the clock page are used.
const ClockSize = 32

// Clock is the content of the clock page.
//
// The page may only be written while no guest code runs. A guest stopped in the
// middle of a function notices the change by TSC0, so every change of a field
// comes with a new TSC0.
type Clock struct {
	// TSC0 is the guest's time stamp counter at the moment that the other
	// fields are about.
	TSC0 uint64
	// Mult is the length of a tick in nanoseconds, as 32.32 fixed point. With 0
	// the guest makes system calls instead.
	Mult uint64
	// Mono0 and Real0 are what the monotonic clock and the real-time clock (since
	// the Unix epoch) read at TSC0, in nanoseconds.
	Mono0, Real0 uint64
}

// TickLength is the Mult of a counter that runs at khz kilohertz; 0 if khz is 0.
func TickLength(khz uint64) uint64 {
	if khz == 0 {
		return 0
	}
	const nanosecondsPerMillisecond = 1e6
	return (nanosecondsPerMillisecond << 32) / khz
}

// Bytes gives the clock page's first bytes; the rest of the page is unused.
func (c Clock) Bytes() [ClockSize]byte {
	var b [ClockSize]byte
	binary.LittleEndian.PutUint64(b[OffsetTSC0:], c.TSC0)
	binary.LittleEndian.PutUint64(b[OffsetMult:], c.Mult)
	binary.LittleEndian.PutUint64(b[OffsetMono0:], c.Mono0)
	binary.LittleEndian.PutUint64(b[OffsetReal0:], c.Real0)
	return b
}

// At gives both clocks in nanoseconds when the guest's counter is tsc, exactly
// as the guest computes them: a counter below TSC0 counts as TSC0.
func (c Clock) At(tsc uint64) (monotonic, realtime uint64) {
	var elapsed uint64
	if tsc > c.TSC0 {
		hi, lo := bits.Mul64(tsc-c.TSC0, c.Mult)
		elapsed = hi<<32 | lo>>32
	}
	return c.Mono0 + elapsed, c.Real0 + elapsed
}
