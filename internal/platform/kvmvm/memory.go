//go:build linux && amd64

package kvmvm

import (
	"sort"

	"github.com/maf-sandbox/maf-sandbox-go/internal/platform"
)

// rights answers whether a whole range is user memory with a right. It is
// built once for a template and shared by all its machines.
type rights struct{ spans []platform.Span }

// allow reports whether the guest has need on all of [addr, addr+n), which must
// end at or before size.
func (r rights) allow(addr, n, size uint64, need platform.Prot) bool {
	end := addr + n
	if n == 0 {
		return true
	}
	if end < addr || end > size || addr < platform.UserLo {
		return false
	}
	// Nearly every access is to the last two spans or the stack, so look from
	// the end before searching.
	i := len(r.spans) - 1
	if i < 0 || addr < r.spans[i].Lo {
		i = sort.Search(len(r.spans), func(i int) bool { return r.spans[i].Hi > addr })
	}
	for ; i < len(r.spans); i++ {
		s := r.spans[i]
		if addr < s.Lo || s.Prot&need != need {
			return false
		}
		if end <= s.Hi {
			return true
		}
		addr = s.Hi
	}
	return false
}

// CopyIn implements platform.Memory.
func (m *Machine) CopyIn(dst []byte, addr uint64) bool {
	if !m.rights.allow(addr, uint64(len(dst)), uint64(len(m.mem)), platform.Read) {
		return false
	}
	copy(dst, m.mem[addr:])
	return true
}

// CopyOut implements platform.Memory.
func (m *Machine) CopyOut(addr uint64, src []byte) bool {
	if !m.rights.allow(addr, uint64(len(src)), uint64(len(m.mem)), platform.Write) {
		return false
	}
	copy(m.mem[addr:], src)
	return true
}

// Load implements platform.Memory.
func (m *Machine) Load(addr uint64, src []byte) bool {
	if !m.rights.allow(addr, uint64(len(src)), uint64(len(m.mem)), 0) {
		return false
	}
	copy(m.mem[addr:], src)
	return true
}

// Zero implements platform.Memory.
func (m *Machine) Zero(addr, n uint64) bool {
	if !m.rights.allow(addr, n, uint64(len(m.mem)), platform.Write) {
		return false
	}
	clear(m.mem[addr : addr+n])
	return true
}

// Move implements platform.Memory.
func (m *Machine) Move(dst, src, n uint64) bool {
	size := uint64(len(m.mem))
	if !m.rights.allow(dst, n, size, platform.Write) || !m.rights.allow(src, n, size, platform.Read) {
		return false
	}
	copy(m.mem[dst:dst+n], m.mem[src:src+n])
	return true
}
