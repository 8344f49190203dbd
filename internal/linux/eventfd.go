package linux

import (
	"encoding/binary"
	"math"
	"syscall"
)

const (
	// eventSemaphore is EFD_SEMAPHORE.
	eventSemaphore = 1
	// maxCounter is the most that an eventfd counts to.
	maxCounter = math.MaxUint64 - 1
)

// counterSize is how much of an eventfd or a timerfd is read or written.
const counterSize = 8

// eventFile is a counter that can be waited for.
type eventFile struct {
	node
	count     uint64
	semaphore bool
}

func (f *eventFile) read(_ *Process, b []byte, _ int64) (int, syscall.Errno) {
	switch {
	case len(b) < counterSize:
		return 0, syscall.EINVAL
	case f.count == 0:
		return 0, syscall.EAGAIN
	}
	got := f.count
	if f.semaphore {
		got = 1
	}
	f.count -= got
	f.outs++
	binary.LittleEndian.PutUint64(b, got)
	return counterSize, 0
}

func (f *eventFile) write(_ *Process, b []byte, _ int64) (int, syscall.Errno) {
	if len(b) < counterSize {
		return 0, syscall.EINVAL
	}
	add := binary.LittleEndian.Uint64(b)
	switch {
	case add > maxCounter:
		return 0, syscall.EINVAL
	case add > maxCounter-f.count:
		return 0, syscall.EAGAIN
	}
	f.count += add
	f.ins++
	return counterSize, 0
}

func (f *eventFile) record(n uint64) int { return int(min(n, counterSize)) }

func (f *eventFile) poll(*Process) uint16 {
	got := uint16(0)
	if f.count > 0 {
		got |= pollReadable
	}
	if f.count < maxCounter {
		got |= pollWritable
	}
	return got
}

func (f *eventFile) release(*Process) {}

func sysEventfd(p *Process, a *args) uint64 { return sysEventfd2(p, &args{a[0], 0}) }

func sysEventfd2(p *Process, a *args) uint64 {
	if a[1]&^(eventSemaphore|syscall.O_NONBLOCK|syscall.O_CLOEXEC) != 0 {
		return fail(syscall.EINVAL)
	}
	f := &eventFile{node: p.newNode(0o600), count: uint64(uint32(a[0])), semaphore: a[1]&eventSemaphore != 0}
	return p.put1(&description{file: f, flags: syscall.O_RDWR | int(a[1])&syscall.O_NONBLOCK}, a[1]&syscall.O_CLOEXEC != 0)
}
