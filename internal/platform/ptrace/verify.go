//go:build linux && amd64

package ptrace

import (
	"bytes"
	"fmt"

	"github.com/maf-sandbox/maf-sandbox-go/internal/platform"
)

// Verify compares the whole of a stopped clone with what it was made from: all
// memory that it can reach but the clock page, and the CPU with c. It reads all
// of memory, so it is for tests and suspicions, not for every reset.
func (m *Machine) Verify(c *platform.Context) error {
	if m.backing == nil {
		return fmt.Errorf("%w: a booted machine has nothing to be compared with", platform.ErrMachine)
	}
	for _, s := range m.rights {
		if err := m.compare(s.Lo, min(s.Hi, m.size)); err != nil {
			return err
		}
	}
	// What the next run would set is set now, so that it is the kernel that is
	// asked.
	var err error
	m.thread.do(func() { err = m.settle() })
	if err != nil {
		return fmt.Errorf("%w: %w", platform.ErrMachine, err)
	}
	var got platform.Context
	if err := m.Save(&got); err != nil {
		return err
	}
	return got.Verify(c)
}

// compare finds the first page of [lo,hi) that is not what the backing has.
func (m *Machine) compare(lo, hi uint64) error {
	buf := make([]byte, len(zeros))
	for lo < hi {
		end, want := m.backing.Split(lo, min(hi, lo+uint64(len(buf))))
		got := buf[:end-lo]
		if want == nil {
			want = zeros[:end-lo]
		}
		if !m.read(got, lo) {
			return fmt.Errorf("%w: memory at %#x cannot be read", platform.ErrMachine, lo)
		}
		if !bytes.Equal(got, want) {
			for i := 0; ; i += platform.PageSize {
				if !bytes.Equal(got[i:i+platform.PageSize], want[i:i+platform.PageSize]) {
					return fmt.Errorf("%w: page %#x differs from the template", platform.ErrMachine, lo+uint64(i))
				}
			}
		}
		lo = end
	}
	return nil
}
