//go:build linux && amd64

package kvmvm

import (
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/maf-sandbox/maf-sandbox-go/internal/platform"
)

// mapGuest maps size bytes of guest memory at a multiple of 2 MiB, so that the
// host can back it with large pages. The mapping is outside the Go heap; slices
// of it stay valid until unmapGuest.
func mapGuest(size uint64, flags, fd int) ([]byte, error) {
	reserve := uintptr(size + largePage)
	p, err := unix.MmapPtr(-1, 0, nil, reserve, unix.PROT_NONE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS|unix.MAP_NORESERVE)
	if err != nil {
		return nil, fmt.Errorf("reserve %d MiB of addresses: %w", size>>20, err)
	}
	lead := -uintptr(p) & (largePage - 1)
	start := unsafe.Add(p, lead)
	if lead > 0 {
		_ = unix.MunmapPtr(p, lead)
	}
	if tail := reserve - lead - uintptr(size); tail > 0 {
		_ = unix.MunmapPtr(unsafe.Add(start, size), tail)
	}
	if _, err = unix.MmapPtr(fd, 0, start, uintptr(size), unix.PROT_READ|unix.PROT_WRITE, flags|unix.MAP_FIXED|unix.MAP_NORESERVE); err != nil {
		_ = unix.MunmapPtr(start, uintptr(size))
		return nil, fmt.Errorf("map guest memory: %w", err)
	}
	return unsafe.Slice((*byte)(start), size), nil
}

func unmapGuest(mem []byte) error {
	return unix.MunmapPtr(unsafe.Pointer(unsafe.SliceData(mem)), uintptr(len(mem)))
}

// overlay maps the backing's ranges copy on write over anonymous guest memory.
func overlay(mem []byte, b *platform.Backing) error {
	for _, r := range b.Ranges {
		if r.Hi > uint64(len(mem)) {
			return fmt.Errorf("%w: backing ends beyond memory", platform.ErrMachine)
		}
		_, err := unix.MmapPtr(b.FD, int64(r.Lo), unsafe.Pointer(&mem[r.Lo]), uintptr(r.Hi-r.Lo),
			unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_FIXED|unix.MAP_NORESERVE)
		if err != nil {
			return fmt.Errorf("map template: %w", err)
		}
	}
	return nil
}

// overlay maps the pieces copy on write, as the backing's own ranges are.
func (l *large) overlay(mem []byte) error {
	for i, lo := range l.at {
		if lo+largePage > uint64(len(mem)) {
			return fmt.Errorf("%w: code ends beyond memory", platform.ErrMachine)
		}
		_, err := unix.MmapPtr(l.fd, int64(i)*largePage, unsafe.Pointer(&mem[lo]), largePage,
			unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_FIXED|unix.MAP_NORESERVE)
		if err != nil {
			return fmt.Errorf("map code: %w", err)
		}
	}
	return nil
}

// address is where guest memory is mapped.
func address(mem []byte) uint64 { return uint64(uintptr(unsafe.Pointer(unsafe.SliceData(mem)))) }
