package linux

import (
	"slices"
	"syscall"

	"github.com/maf-sandbox/maf-sandbox-go/internal/linux/vfs"
	"github.com/maf-sandbox/maf-sandbox-go/internal/platform"
)

// The mmap flags and advice the guest uses (include/uapi/asm-generic/mman*.h).
const (
	mapShared     = 0x01
	mapPrivate    = 0x02
	mapType       = 0x0f
	mapFixed      = 0x10
	mapAnonymous  = 0x20
	mapDenyWrite  = 0x800
	mapFixedNoRep = 0x100000

	madviseDontneed = 4
	madviseFree     = 8
)

// memory is the process's address space beyond what the layout fixes: the brk,
// and which parts of the heap are handed out.
type memory struct {
	// brk is the current break; brkFresh the highest it ever was: everything
	// from there on has never been touched and reads as zero.
	brk, brkFresh uint64
	// free are the heap's free ranges, sorted, never adjacent.
	free []platform.Range
	// fresh: the heap from here on was never handed out and reads as zero.
	fresh uint64
	// end is the end of this guest's heap.
	end uint64
	// inUse marks the layout's objects that are mapped, filled those whose
	// bytes have been put in place since the boot.
	inUse, filled []bool
	// shared are the shared mappings of files that can change.
	shared []sharedMapping
	// denied counts requests for memory that were refused.
	denied int
}

func (m *memory) clone() memory {
	c := *m
	c.free = slices.Clone(m.free)
	c.inUse = slices.Clone(m.inUse)
	c.filled = slices.Clone(m.filled)
	return c
}

func newMemory(l *Layout, end uint64) memory {
	return memory{
		brk: l.Brk.Lo, brkFresh: l.Brk.Lo,
		free: []platform.Range{{Lo: l.Heap.Lo, Hi: end}}, fresh: l.Heap.Lo, end: end,
		inUse: make([]bool, len(l.Objects)), filled: make([]bool, len(l.Objects)),
	}
}

// resize changes the end of a heap whose last range is free.
func (m *memory) resize(end uint64) bool {
	if end < m.fresh {
		return false
	}
	if n := len(m.free); n > 0 && m.free[n-1].Hi == m.end {
		if m.free[n-1].Lo >= end {
			m.free = m.free[:n-1]
		} else {
			m.free[n-1].Hi = end
		}
	} else if end > m.end {
		m.free = append(m.free, platform.Range{Lo: m.end, Hi: end})
	}
	m.end = end
	return true
}

// take hands out n bytes of the heap, first fit, reading as zero.
func (p *Process) take(n uint64) (uint64, bool) {
	m := &p.mem
	for i, r := range m.free {
		if r.Hi-r.Lo < n {
			continue
		}
		if !p.clearUsed(r.Lo, r.Lo+n) {
			return 0, false
		}
		if r.Hi-r.Lo == n {
			m.free = slices.Delete(m.free, i, i+1)
		} else {
			m.free[i].Lo += n
		}
		return r.Lo, true
	}
	m.denied++
	return 0, false
}

// clearPiece is how much memory is cleared or moved at once, in bytes: a few
// milliseconds if every page has to be made.
const clearPiece = 4 << 20

// clearUsed makes a range that is being handed out read as zero. It reports
// false, with the range not to be handed out, when the process is stopping.
func (p *Process) clearUsed(lo, hi uint64) bool {
	if !p.clearTouched(lo, hi) {
		return false
	}
	p.mem.fresh = max(p.mem.fresh, hi)
	return true
}

// clearTouched clears what was ever handed out of a range of the heap.
func (p *Process) clearTouched(lo, hi uint64) bool {
	for hi = min(hi, p.mem.fresh); lo < hi; {
		if p.stopping() {
			return false
		}
		n := min(hi-lo, clearPiece)
		p.cpu.Zero(lo, n)
		lo += n
	}
	return true
}

// takeAt hands out exactly [lo,hi), taking from free what of it is free.
func (p *Process) takeAt(lo, hi uint64) bool {
	m := &p.mem
	if !p.clearUsed(lo, hi) {
		return false
	}
	out := make([]platform.Range, 0, len(m.free)+1)
	for _, r := range m.free {
		if r.Hi <= lo || r.Lo >= hi {
			out = append(out, r)
			continue
		}
		if r.Lo < lo {
			out = append(out, platform.Range{Lo: r.Lo, Hi: lo})
		}
		if r.Hi > hi {
			out = append(out, platform.Range{Lo: hi, Hi: r.Hi})
		}
	}
	m.free = out
	return true
}

// give takes [lo,hi) of the heap back.
func (m *memory) give(lo, hi uint64) {
	i, _ := slices.BinarySearchFunc(m.free, lo, func(r platform.Range, t uint64) int {
		switch {
		case r.Lo < t:
			return -1
		case r.Lo > t:
			return 1
		}
		return 0
	})
	m.free = slices.Insert(m.free, i, platform.Range{Lo: lo, Hi: hi})
	out := m.free[:1]
	for _, r := range m.free[1:] {
		if last := &out[len(out)-1]; r.Lo <= last.Hi {
			last.Hi = max(last.Hi, r.Hi)
		} else {
			out = append(out, r)
		}
	}
	m.free = out
}

// maxRanges bounds the free list, whose upkeep costs its length at every call:
// Linux's own default for what makes ranges (vm.max_map_count).
const maxRanges = 65530

// crowded reports that no range may be made any more.
func (m *memory) crowded() bool { return len(m.free) >= maxRanges }

// inHeap reports whether [lo,hi) is a non-empty part of this guest's heap.
func (p *Process) inHeap(lo, hi uint64) bool {
	return lo >= p.layout.Heap.Lo && lo < hi && hi <= p.mem.end
}

// lengthOf rounds a guest's length up to pages; 0 when it is nothing or too
// much for any guest.
func lengthOf(n uint64) uint64 {
	if n == 0 || n > 1<<46 {
		return 0
	}
	return pageUp(n)
}

func sysBrk(p *Process, a *args) uint64 {
	m := &p.mem
	want := a[0]
	if want < p.layout.Brk.Lo || want > p.layout.Brk.Hi {
		if want != 0 {
			m.denied++
		}
		return m.brk
	}
	if want > m.brk {
		if e := min(want, m.brkFresh); m.brk < e {
			p.cpu.Zero(m.brk, e-m.brk)
		}
		m.brkFresh = max(m.brkFresh, want)
	}
	m.brk = want
	return m.brk
}

func sysMmap(p *Process, a *args) uint64 {
	addr, prot, flags, off := a[0], a[2], a[3], a[5]
	n := lengthOf(a[1])
	switch {
	case a[1] == 0:
		return fail(syscall.EINVAL)
	case n == 0:
		p.mem.denied++
		return fail(syscall.ENOMEM)
	case off%platform.PageSize != 0 || flags&mapType != mapPrivate && flags&mapType != mapShared:
		return fail(syscall.EINVAL)
	}
	var src *vfs.Inode
	var f *description
	if flags&mapAnonymous == 0 {
		f = p.fds.get(a[4])
		if f == nil {
			return fail(syscall.EBADF)
		}
		ino := f.inode()
		if ino == nil || ino.Kind() != vfs.File {
			return fail(syscall.ENODEV)
		}
		if !f.canRead() {
			return fail(syscall.EACCES)
		}
		if flags&mapType == mapShared && prot&syscall.PROT_WRITE != 0 && !f.canWrite() {
			return fail(syscall.EACCES)
		}
		src = ino
	}
	at := p.mapAt(addr, n, prot, flags, src, off)
	if src != nil && flags&mapType == mapShared && errnoOf(at) == 0 {
		if e := p.share(at, at+n, f, off); e != 0 {
			if p.inHeap(at, at+n) {
				p.mem.give(at, at+n)
			}
			return fail(e)
		}
	}
	return at
}

// mapAt chooses the place of a mapping and fills it.
func (p *Process) mapAt(addr, n, prot, flags uint64, src *vfs.Inode, off uint64) uint64 {
	if flags&(mapFixed|mapFixedNoRep) != 0 {
		return p.mapFixedAt(addr, n, prot, flags, src, off)
	}
	if at, ok := p.mapObject(n, prot, flags, src, off); ok {
		return at
	}
	if prot&syscall.PROT_EXEC != 0 {
		return fail(syscall.EACCES)
	}
	at, ok := p.take(n)
	if !ok {
		return fail(syscall.ENOMEM)
	}
	if src != nil {
		if e := p.copyFile(at, n, src, off); e != 0 {
			p.mem.give(at, at+n)
			return fail(e)
		}
	}
	return at
}

// mapFixedAt answers MAP_FIXED: the loader's mapping of the later segments of
// an object, which is in place already, or memory of the heap.
func (p *Process) mapFixedAt(addr, n, prot, flags uint64, src *vfs.Inode, off uint64) uint64 {
	hi := addr + n
	if addr%platform.PageSize != 0 || hi < addr {
		return fail(syscall.EINVAL)
	}
	if p.objectAt(addr, hi) >= 0 {
		if src != nil && flags&mapType == mapShared {
			return fail(syscall.EACCES) // an object is nobody else's
		}
		return addr
	}
	if prot&syscall.PROT_EXEC != 0 {
		return fail(syscall.EACCES)
	}
	if !p.inHeap(addr, hi) {
		return fail(syscall.ENOMEM)
	}
	if flags&mapFixedNoRep != 0 && !p.isFree(addr, hi) {
		return fail(syscall.EEXIST)
	}
	if p.splitsTooMany(addr, hi) {
		return fail(syscall.ENOMEM)
	}
	p.unshare(addr, hi)
	if !p.takeAt(addr, hi) {
		return fail(syscall.ENOMEM)
	}
	if src != nil {
		if e := p.copyFile(addr, n, src, off); e != 0 {
			return fail(e)
		}
	}
	return addr
}

func (p *Process) isFree(lo, hi uint64) bool {
	for _, r := range p.mem.free {
		if lo >= r.Lo && hi <= r.Hi {
			return true
		}
	}
	return false
}

// copyFile fills fresh memory with a file's bytes; past the end it stays zero.
func (p *Process) copyFile(at, n uint64, src *vfs.Inode, off uint64) syscall.Errno {
	if off > 1<<62 {
		return syscall.EOVERFLOW
	}
	p.settle(src, int64(off), int64(min(n, 1<<46)))
	if data, ok := src.Content(); ok {
		if off >= uint64(len(data)) {
			return 0
		}
		data = data[off:]
		data = data[:min(n, uint64(len(data)))]
		for len(data) > 0 {
			k := min(len(data), clearPiece)
			if !p.cpu.CopyOut(at, data[:k]) {
				return syscall.EFAULT
			}
			if p.stopping() {
				return syscall.ENOMEM
			}
			at, data = at+uint64(k), data[k:]
		}
		return 0
	}
	buf := p.buffer(transferSize)
	for n > 0 {
		k, e := src.ReadAt(buf[:min(n, uint64(len(buf)))], int64(off))
		if e != 0 || k == 0 {
			return e
		}
		if !p.cpu.CopyOut(at, buf[:k]) {
			return syscall.EFAULT
		}
		if p.stopping() {
			return syscall.ENOMEM
		}
		at, off, n = at+uint64(k), off+uint64(k), n-uint64(k)
	}
	return 0
}

func sysMunmap(p *Process, a *args) uint64 {
	lo, n := a[0], lengthOf(a[1])
	if lo%platform.PageSize != 0 || n == 0 || lo+n < lo {
		return fail(syscall.EINVAL)
	}
	hi := lo + n
	if p.mem.crowded() || p.splitsTooMany(lo, hi) {
		return fail(syscall.ENOMEM)
	}
	for i := range p.layout.Objects {
		if o := &p.layout.Objects[i]; p.mem.inUse[i] && lo <= o.Lo && hi >= o.Hi {
			p.mem.inUse[i] = false
		}
	}
	if lo, hi = max(lo, p.layout.Heap.Lo), min(hi, p.mem.end); lo < hi {
		p.unshare(lo, hi)
		p.mem.give(lo, hi)
	}
	return 0
}

// sysMprotect cannot change rights: page tables are static. It agrees to what
// holds already or is stricter than what holds, and refuses the rest.
func sysMprotect(p *Process, a *args) uint64 {
	lo, n, prot := a[0], lengthOf(a[1]), a[2]
	if a[1] == 0 {
		return 0
	}
	if lo%platform.PageSize != 0 || n == 0 || lo+n < lo {
		return fail(syscall.EINVAL)
	}
	var need platform.Prot
	if prot&syscall.PROT_WRITE != 0 {
		need |= platform.Write
	}
	if prot&syscall.PROT_EXEC != 0 {
		need |= platform.Exec
	}
	if need == 0 {
		return 0
	}
	hi := lo + n
	for _, s := range p.spans {
		if s.Hi <= lo || s.Lo >= hi {
			continue
		}
		if need&^s.Prot != 0 {
			return fail(syscall.EACCES)
		}
	}
	return 0
}

func sysMadvise(p *Process, a *args) uint64 {
	lo, n := a[0], lengthOf(a[1])
	if lo%platform.PageSize != 0 || lo+n < lo {
		return fail(syscall.EINVAL)
	}
	// MADV_FREE may keep the old bytes; only DONTNEED promises zeros.
	if a[2] == madviseDontneed && n != 0 && p.inHeap(lo, lo+n) && !p.isShared(lo, lo+n) && !p.clearTouched(lo, lo+n) {
		return fail(syscall.EAGAIN)
	}
	return 0
}
