//go:build linux && amd64

package ptrace

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/maf-sandbox/maf-sandbox-go/internal/platform"
	"github.com/maf-sandbox/maf-sandbox-go/internal/platform/pagemap"
)

// giveBackPages is how many changed pages are worth copying back: copying
// 16 MiB costs about what dropping and touching them again does, and dropping
// gives the memory back to the host.
const giveBackPages = 16 << 20 / platform.PageSize

// Revert implements platform.Machine. The changed pages are those of the
// private mapping that are no longer the template's: anonymous ones.
func (m *Machine) Revert(c *platform.Context) (int, error) {
	if m.backing == nil {
		return 0, fmt.Errorf("%w: a booted machine has nothing to return to", platform.ErrMachine)
	}
	if m.dead {
		return 0, fmt.Errorf("%w: its process has ended", platform.ErrMachine)
	}
	pages := 0
	changed, err := m.changed(platform.UserLo, m.size, giveBackPages)
	for _, r := range changed {
		pages += int((r.Hi - r.Lo) / platform.PageSize)
	}
	if err != nil {
		// Too many, or not known.
		err = m.give(platform.ClockPage, m.size)
	} else {
		err = m.copyBack(changed)
	}
	if err == nil {
		err = m.Restore(c)
	}
	return pages, err
}

var errTooMany = errors.New("too many changed pages")

// changed gives the changed pages of [lo,hi): at most most and some beyond
// beside errTooMany.
func (m *Machine) changed(lo, hi uint64, most int) ([]platform.Range, error) {
	if m.child.pagemap < 0 {
		return nil, unix.EBADF
	}
	var out []platform.Range
	pages := 0
	add := func(r platform.Range) error {
		if n := len(out); n > 0 && out[n-1].Hi == r.Lo {
			out[n-1].Hi = r.Hi
		} else {
			out = append(out, r)
		}
		if pages += int((r.Hi - r.Lo) / platform.PageSize); pages > most {
			return errTooMany
		}
		return nil
	}
	if !m.p.scan {
		var full error
		err := pagemap.Entries(m.child.pagemap, lo, hi, func(a uint64) bool {
			full = add(platform.Range{Lo: a, Hi: a + platform.PageSize})
			return full == nil
		})
		return out, errors.Join(err, full)
	}
	for lo < hi {
		n, next, err := pagemap.Scan(m.child.pagemap, lo, hi, &m.found)
		if err != nil {
			return nil, err
		}
		for _, r := range m.found[:n] {
			if err := add(platform.Range{Lo: r.Start, Hi: r.End}); err != nil {
				return out, err
			}
		}
		lo = next
	}
	return out, nil
}

// copyBack makes the ranges what the template has.
func (m *Machine) copyBack(changed []platform.Range) error {
	for _, r := range changed {
		for lo := r.Lo; lo < r.Hi; {
			end, data := m.backing.Split(lo, r.Hi)
			if data != nil && !m.force(data, lo) || data == nil && !m.clear(lo, end) {
				return fmt.Errorf("%w: memory at %#x cannot be put back", platform.ErrMachine, lo)
			}
			lo = end
		}
	}
	return nil
}

// give gives every private page of [lo,hi) back to the host at once; what is
// read there next is the template's.
func (m *Machine) give(lo, hi uint64) (err error) {
	drop := call{what: "give memory back", nr: unix.SYS_MADVISE, args: [6]uint64{lo, hi - lo, unix.MADV_DONTNEED}}
	m.thread.do(func() { err = m.child.make(drop) })
	// The kernel goes on behind holes, and says that there were some.
	if err != nil && !errors.Is(err, unix.ENOMEM) {
		return fmt.Errorf("%w: %w", platform.ErrMachine, err)
	}
	return nil
}

// Changed implements platform.Machine.
func (m *Machine) Changed() []platform.Range {
	if !m.p.scan {
		return nil
	}
	out, err := m.changed(platform.UserLo, m.size, int(m.size/platform.PageSize))
	if err != nil {
		return nil
	}
	return out
}
