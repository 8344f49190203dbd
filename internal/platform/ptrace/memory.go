//go:build linux && amd64

package ptrace

import (
	"golang.org/x/sys/unix"

	"github.com/maf-sandbox/maf-sandbox-go/internal/platform"
)

// The memory of a clone is only mapped in its process: pages that it shares
// with the template until it writes to them can be had in no other way. Each
// access is a read or a write of /proc/pid/mem. (process_vm_readv would be a
// little faster, but the kernel asks each time whether it is permitted, and
// a worker behind Landlock may not touch a process that is not.) Such a write
// disregards the rights of pages, so ours decide.

// fd is the file by which memory is reached: its offsets are the addresses.
func (m *Machine) fd() int {
	if m.file >= 0 {
		return m.file
	}
	return m.child.mem
}

func (m *Machine) read(b []byte, addr uint64) bool {
	n, err := unix.Pread(m.fd(), b, int64(addr))
	return err == nil && n == len(b)
}

func (m *Machine) write(b []byte, addr uint64) bool {
	n, err := unix.Pwrite(m.fd(), b, int64(addr))
	return err == nil && n == len(b)
}

// force writes to what the guest may not write to. Some kernels let only the
// tracing thread do that (proc_mem.force_override=ptrace).
func (m *Machine) force(b []byte, addr uint64) (ok bool) {
	if m.write(b, addr) {
		return true
	}
	m.thread.do(func() { ok = m.write(b, addr) })
	return ok
}

// allow reports whether the guest has need on all of a range. A range of no
// bytes is nowhere, so its address is not looked at.
func (m *Machine) allow(addr, n uint64, need platform.Prot) bool {
	return n == 0 || m.rights.Allow(addr, n, m.size, need)
}

// CopyIn implements platform.Memory.
func (m *Machine) CopyIn(dst []byte, addr uint64) bool {
	if len(dst) == 0 {
		return true
	}
	return m.allow(addr, uint64(len(dst)), platform.Read) && m.read(dst, addr)
}

// CopyOut implements platform.Memory.
func (m *Machine) CopyOut(addr uint64, src []byte) bool {
	if len(src) == 0 {
		return true
	}
	return m.allow(addr, uint64(len(src)), platform.Write) && m.write(src, addr)
}

// Load implements platform.Memory.
func (m *Machine) Load(addr uint64, src []byte) bool {
	if len(src) == 0 {
		return true
	}
	return m.allow(addr, uint64(len(src)), 0) && m.force(src, addr)
}

// zeros is what is written to clear memory.
var zeros [256 << 10]byte

// clear writes zeros over [lo,hi).
func (m *Machine) clear(lo, hi uint64) bool {
	for lo < hi {
		n := min(hi-lo, uint64(len(zeros)))
		if !m.force(zeros[:n], lo) {
			return false
		}
		lo += n
	}
	return true
}

// Zero implements platform.Memory.
func (m *Machine) Zero(addr, n uint64) bool {
	if n == 0 {
		return true
	}
	if !m.allow(addr, n, platform.Write) {
		return false
	}
	if m.file >= 0 {
		return m.punch(addr, addr+n)
	}
	if n < sparseSize || m.backing == nil || addr%platform.PageSize != 0 || n%platform.PageSize != 0 {
		return m.clear(addr, addr+n)
	}
	for lo, hi := addr, addr+n; lo < hi; {
		end, data := m.backing.Split(lo, hi)
		if data != nil || !m.clearSparse(lo, end) {
			if !m.clear(lo, end) {
				return false
			}
		}
		lo = end
	}
	return true
}

// sparseSize is the length from which it pays to ask which pages of a range
// hold anything.
const sparseSize = 256 << 10

// clearSparse clears what was ever written to of a range outside the backing.
// It reports false when that is not known.
func (m *Machine) clearSparse(lo, hi uint64) bool {
	changed, err := m.changed(lo, hi, giveBackPages)
	if err != nil {
		return m.give(lo, hi) == nil
	}
	for _, r := range changed {
		if !m.clear(r.Lo, r.Hi) {
			return false
		}
	}
	return true
}

// punch clears [lo,hi) of the memory file, giving whole pages back.
func (m *Machine) punch(lo, hi uint64) bool {
	from, to := (lo+platform.PageSize-1)&^(platform.PageSize-1), hi&^(platform.PageSize-1)
	if from >= to {
		return m.clear(lo, hi)
	}
	err := unix.Fallocate(m.file, unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, int64(from), int64(to-from))
	return err == nil && m.clear(lo, from) && m.clear(to, hi)
}

// Move implements platform.Memory.
func (m *Machine) Move(dst, src, n uint64) bool {
	if n == 0 {
		return true
	}
	if !m.allow(dst, n, platform.Write) || !m.allow(src, n, platform.Read) {
		return false
	}
	buf := make([]byte, min(n, uint64(len(zeros))))
	for done := uint64(0); done < n; {
		b := buf[:min(n-done, uint64(len(buf)))]
		at := done
		if dst > src { // from the end, where the ranges may overlap
			at = n - done - uint64(len(b))
		}
		if !m.read(b, src+at) || !m.write(b, dst+at) {
			return false
		}
		done += uint64(len(b))
	}
	return true
}
