//go:build linux && amd64

package kvmvm

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/maf-sandbox/maf-sandbox-go/internal/platform"
)

// giveBackPages is how many changed pages are worth copying back: measured,
// copying 16 MiB costs about what dropping and touching them again does, and
// dropping gives the memory back to the host.
const giveBackPages = 16 << 20 / platform.PageSize

// Revert implements platform.Machine. The changed pages are those of the
// private mapping that are no longer the template's: anonymous ones.
func (m *Machine) Revert(c *platform.Context) (int, error) {
	if m.backing == nil {
		return 0, fmt.Errorf("%w: a booted machine has nothing to return to", platform.ErrMachine)
	}
	if m.dead {
		return 0, fmt.Errorf("%w: it was shut down", platform.ErrMachine)
	}
	pages, err := m.scan()
	if errors.Is(err, errTooMany) || errors.Is(err, errNoScan) {
		err = m.drop()
	}
	if err == nil {
		err = m.Restore(c)
	}
	return pages, err
}

var (
	errTooMany = errors.New("too many changed pages")
	errNoScan  = errors.New("no way to find changed pages")
)

// drop forgets every private page at once.
func (m *Machine) drop() error {
	if err := unix.Madvise(m.mem, unix.MADV_DONTNEED); err != nil {
		return fmt.Errorf("%w: give memory back: %w", platform.ErrMachine, err)
	}
	return nil
}

// scan finds the changed pages and copies the template's bytes back.
func (m *Machine) scan() (int, error) {
	if !m.p.pagemapScan {
		return m.scanEntries()
	}
	base := address(m.mem)
	pages := 0
	for at, end := base, base+uint64(len(m.mem)); at < end; {
		n, next, err := m.p.pagemap.scan(at, end, &m.found)
		if err != nil {
			return pages, fmt.Errorf("%w: %w", errNoScan, err)
		}
		for _, r := range m.found[:n] {
			pages += int((r.End - r.Start) / platform.PageSize)
		}
		if pages > giveBackPages {
			return pages, errTooMany
		}
		for _, r := range m.found[:n] {
			m.copyBack(r.Start-base, r.End-base)
		}
		at = next
	}
	return pages, nil
}

// Changed implements platform.Machine.
func (m *Machine) Changed() []platform.Range {
	if !m.p.pagemapScan {
		return nil
	}
	var out []platform.Range
	base := address(m.mem)
	for at, end := base, base+uint64(len(m.mem)); at < end; {
		n, next, err := m.p.pagemap.scan(at, end, &m.found)
		if err != nil {
			return nil
		}
		for _, r := range m.found[:n] {
			out = append(out, platform.Range{Lo: r.Start - base, Hi: r.End - base})
		}
		at = next
	}
	return out
}

// scanEntries reads one pagemap entry a page, for kernels before 6.7.
func (m *Machine) scanEntries() (int, error) {
	base := address(m.mem)
	pages := 0
	err := m.p.pagemap.entries(base, base+uint64(len(m.mem)), func(addr uint64) bool {
		if pages++; pages > giveBackPages {
			return false
		}
		m.copyBack(addr-base, addr-base+platform.PageSize)
		return true
	})
	if err != nil {
		return pages, errNoScan
	}
	if pages > giveBackPages {
		return pages, errTooMany
	}
	return pages, nil
}

// copyBack makes [lo,hi) what the template has.
func (m *Machine) copyBack(lo, hi uint64) {
	for lo < hi {
		end, data := m.backing.Split(lo, hi)
		if data != nil {
			copy(m.mem[lo:end], data)
		} else {
			clear(m.mem[lo:end])
		}
		lo = end
	}
}
