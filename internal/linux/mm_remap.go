package linux

import (
	"slices"
	"syscall"

	"github.com/maf-sandbox/maf-sandbox-go/internal/platform"
)

// Flags of mremap (include/uapi/linux/mman.h); MREMAP_FIXED is not offered.
const (
	mremapMayMove = 1
	mremapFixed   = 2
)

// touchesFree reports whether any of [lo,hi) is free.
func (p *Process) touchesFree(lo, hi uint64) bool {
	return slices.ContainsFunc(p.mem.free, func(r platform.Range) bool { return r.Lo < hi && r.Hi > lo })
}

// sysMremap changes the size of a part of the heap, moving it if it has to and
// may.
func sysMremap(p *Process, a *args) uint64 {
	old, oldLen, newLen, flags := a[0], lengthOf(a[1]), lengthOf(a[2]), a[3]
	switch {
	case old%platform.PageSize != 0 || newLen == 0 || oldLen == 0 || flags&^mremapMayMove != 0:
		return fail(syscall.EINVAL)
	case old+oldLen < old || !p.inHeap(old, old+oldLen) || p.touchesFree(old, old+oldLen):
		return fail(syscall.EFAULT)
	case newLen == oldLen:
		return old
	case newLen < oldLen && p.mem.crowded(), p.splitsTooMany(old, old+oldLen), p.splitsTooMany(old+newLen, old+oldLen):
		return fail(syscall.ENOMEM)
	case newLen < oldLen:
		p.unshare(old+newLen, old+oldLen)
		p.mem.give(old+newLen, old+oldLen)
		return old
	case old+newLen > old && old+newLen <= p.mem.end && p.isFree(old+oldLen, old+newLen):
		if !p.takeAt(old+oldLen, old+newLen) {
			return fail(syscall.ENOMEM)
		}
		if e := p.resizeShared(old, oldLen, old, newLen); e != 0 {
			p.mem.give(old+oldLen, old+newLen)
			return fail(e)
		}
		return old
	case flags&mremapMayMove == 0:
		p.mem.denied++
		return fail(syscall.ENOMEM)
	}
	at, ok := p.take(newLen)
	if !ok {
		return fail(syscall.ENOMEM)
	}
	for done := uint64(0); done < oldLen; {
		n := min(oldLen-done, clearPiece)
		if p.stopping() || !p.cpu.Move(at+done, old+done, n) {
			p.mem.give(at, at+newLen)
			return fail(syscall.ENOMEM)
		}
		done += n
	}
	if e := p.resizeShared(old, oldLen, at, newLen); e != 0 {
		p.mem.give(at, at+newLen)
		return fail(e)
	}
	p.unshare(old, old+oldLen)
	p.mem.give(old, old+oldLen)
	return at
}
