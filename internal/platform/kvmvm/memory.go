//go:build linux && amd64

package kvmvm

import (
	"github.com/maf-sandbox/maf-sandbox-go/internal/platform"
)

// at gives the bytes of [addr, addr+n) if the guest has need on all of them.
// A range of no bytes is nowhere, so its address is not looked at: it may lie
// beyond memory.
func (m *Machine) at(addr, n uint64, need platform.Prot) ([]byte, bool) {
	if n == 0 {
		return nil, true
	}
	if !m.rights.Allow(addr, n, uint64(len(m.mem)), need) {
		return nil, false
	}
	return m.mem[addr : addr+n], true
}

// CopyIn implements platform.Memory.
func (m *Machine) CopyIn(dst []byte, addr uint64) bool {
	b, ok := m.at(addr, uint64(len(dst)), platform.Read)
	copy(dst, b)
	return ok
}

// CopyOut implements platform.Memory.
func (m *Machine) CopyOut(addr uint64, src []byte) bool {
	b, ok := m.at(addr, uint64(len(src)), platform.Write)
	copy(b, src)
	return ok
}

// Load implements platform.Memory.
func (m *Machine) Load(addr uint64, src []byte) bool {
	b, ok := m.at(addr, uint64(len(src)), 0)
	copy(b, src)
	return ok
}

// Zero implements platform.Memory.
func (m *Machine) Zero(addr, n uint64) bool {
	b, ok := m.at(addr, n, platform.Write)
	if n < sparseSize || m.backing == nil || !m.p.pagemapScan {
		clear(b)
		return ok
	}
	for lo, hi := addr, addr+n; ok && lo < hi; {
		end, data := m.backing.Split(lo, hi)
		if data != nil || !m.clearSparse(lo, end) {
			clear(m.mem[lo:end])
		}
		lo = end
	}
	return ok
}

// sparseSize is the length from which it pays to ask which pages of a range
// hold anything: a stack of 8 MiB of which a few pages were used is cleared in
// microseconds, where writing to all of it makes 2,048 pages.
const sparseSize = 256 << 10

// clearSparse clears what was ever written to of a range outside the backing.
// It reports false when the range is not page aligned or cannot be scanned.
func (m *Machine) clearSparse(lo, hi uint64) bool {
	if lo%platform.PageSize != 0 || hi%platform.PageSize != 0 {
		return false
	}
	base := address(m.mem)
	for at := base + lo; at < base+hi; {
		n, next, err := m.p.pagemap.scan(at, base+hi, &m.found)
		if err != nil {
			return false
		}
		for _, r := range m.found[:n] {
			clear(m.mem[r.Start-base : r.End-base])
		}
		at = next
	}
	return true
}

// Move implements platform.Memory.
func (m *Machine) Move(dst, src, n uint64) bool {
	to, ok := m.at(dst, n, platform.Write)
	if !ok {
		return false
	}
	from, ok := m.at(src, n, platform.Read)
	copy(to, from)
	return ok
}
