package platform

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// NewBacking maps a file as a backing. The ranges are sorted and page aligned.
// The backing owns fd from then on, also when an error is returned.
func NewBacking(fd int, ranges []Range) (*Backing, error) {
	end := uint64(0)
	for _, r := range ranges {
		if r.Lo < end || r.Hi <= r.Lo || r.Lo%PageSize != 0 || r.Hi%PageSize != 0 {
			_ = unix.Close(fd)
			return nil, fmt.Errorf("%w: backing ranges are not sorted pages", ErrMachine)
		}
		end = r.Hi
	}
	var st unix.Stat_t
	err := unix.Fstat(fd, &st)
	if err == nil && (end == 0 || uint64(st.Size) < end) {
		err = fmt.Errorf("file of %d bytes, %d needed", st.Size, end)
	}
	var view []byte
	if err == nil {
		view, err = unix.Mmap(fd, 0, int(end), unix.PROT_READ, unix.MAP_SHARED)
	}
	if err != nil {
		_ = unix.Close(fd)
		return nil, fmt.Errorf("%w: backing: %w", ErrMachine, err)
	}
	return &Backing{FD: fd, Ranges: ranges, view: view}, nil
}

// Split finds the piece of [lo,hi) that starts at lo and lies wholly inside or
// wholly outside the ranges. It gives the piece's end and, inside, its bytes.
func (b *Backing) Split(lo, hi uint64) (end uint64, data []byte) {
	for _, r := range b.Ranges {
		if lo < r.Lo {
			return min(hi, r.Lo), nil
		}
		if lo < r.Hi {
			end = min(hi, r.Hi)
			return end, b.view[lo:end:end]
		}
	}
	return hi, nil
}

// Close releases the backing. No machine may use it any more.
func (b *Backing) Close() error {
	err := unix.Munmap(b.view)
	b.view = nil
	if e := unix.Close(b.FD); err == nil {
		err = e
	}
	return err
}
