package linux

import (
	"slices"

	"github.com/maf-sandbox/maf-sandbox-go/internal/linux/vfs"
	"github.com/maf-sandbox/maf-sandbox-go/internal/platform"
)

// objectAt gives the object in use that holds [lo,hi), or -1.
func (p *Process) objectAt(lo, hi uint64) int {
	for i := range p.layout.Objects {
		if o := &p.layout.Objects[i]; p.mem.inUse[i] && lo >= o.Lo && hi <= o.Hi && lo < hi {
			return i
		}
	}
	return -1
}

// mapObject answers the loader's first mapping of a shared object with its
// fixed place. The loader marks its mappings with MAP_DENYWRITE; for an object
// that needs more alignment than a page it first reserves anonymous memory of
// the span plus the alignment, without saying what for.
func (p *Process) mapObject(n, prot, flags uint64, src *vfs.Inode, off uint64) (uint64, bool) {
	i := -1
	switch {
	case src != nil && off == 0 && flags&mapDenyWrite != 0:
		if i = p.objectOf(src); i >= 0 && n != p.layout.Objects[i].Hi-p.layout.Objects[i].Lo {
			i = -1
		}
	case src == nil && prot == 0:
		i = p.reservedFor(n)
	}
	if i < 0 || p.mem.inUse[i] {
		return 0, false
	}
	o := &p.layout.Objects[i]
	if src == nil {
		if src = p.lookup(o.Path); src == nil {
			return 0, false
		}
	}
	if !p.fill(i, src) {
		return 0, false
	}
	return o.Lo, true
}

// objectOf finds the layout's object that an open file is.
func (p *Process) objectOf(ino *vfs.Inode) int {
	path, ok := p.fs.Path(ino)
	if !ok {
		return -1
	}
	i, ok := slices.BinarySearchFunc(p.layout.Objects, path, func(o Place, t string) int {
		switch {
		case o.Path < t:
			return -1
		case o.Path > t:
			return 1
		}
		return 0
	})
	if !ok {
		return -1
	}
	return i
}

// reservedFor finds the over-aligned object, open now, for which the loader
// reserves n bytes.
func (p *Process) reservedFor(n uint64) int {
	for _, d := range p.fds.table {
		if d.file == nil || d.file.inode() == nil {
			continue
		}
		i := p.objectOf(d.file.inode())
		if i < 0 || p.mem.inUse[i] {
			continue
		}
		if o := &p.layout.Objects[i]; o.Align > platform.PageSize && n == o.Hi-o.Lo+o.Align {
			return i
		}
	}
	return -1
}

// fill puts an object's bytes at its place.
func (p *Process) fill(i int, src *vfs.Inode) bool {
	data, ok := src.Content()
	if !ok {
		return false
	}
	if p.load(&p.layout.Objects[i], data, p.mem.filled[i]) != nil {
		return false
	}
	p.mem.inUse[i], p.mem.filled[i] = true, true
	return true
}
