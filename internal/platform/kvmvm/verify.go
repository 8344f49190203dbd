//go:build linux && amd64

package kvmvm

import (
	"bytes"
	"fmt"

	"github.com/maf-sandbox/maf-sandbox-go/internal/platform"
)

// Verify compares the whole of a stopped clone with what it was made from: all
// of its memory but the clock page, and the CPU with c. It reads all of memory,
// so it is for tests and suspicions, not for every reset.
func (m *Machine) Verify(c *platform.Context) error {
	if m.backing == nil {
		return fmt.Errorf("%w: a booted machine has nothing to be compared with", platform.ErrMachine)
	}
	if at, ok := m.differs(0, platform.ClockPage); ok {
		return fmt.Errorf("%w: page %#x differs from the template", platform.ErrMachine, at)
	}
	if at, ok := m.differs(platform.UserLo, uint64(len(m.mem))); ok {
		return fmt.Errorf("%w: page %#x differs from the template", platform.ErrMachine, at)
	}
	var got platform.Context
	if err := m.Save(&got); err != nil {
		return err
	}
	return got.Verify(c)
}

// differs finds the first page of [lo,hi) that is not what the backing has.
func (m *Machine) differs(lo, hi uint64) (uint64, bool) {
	var zero [largePage]byte
	for lo < hi {
		end, want := m.backing.Split(lo, min(hi, lo+largePage))
		if want == nil {
			want = zero[:end-lo]
		}
		if !bytes.Equal(m.mem[lo:end], want) {
			for a := lo; ; a += platform.PageSize {
				if !bytes.Equal(m.mem[a:a+platform.PageSize], want[a-lo:a-lo+platform.PageSize]) {
					return a, true
				}
			}
		}
		lo = end
	}
	return 0, false
}
