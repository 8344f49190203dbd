//go:build linux

package vfs

import (
	"slices"
	"strings"
)

// Dirent is an entry of a folder.
type Dirent struct {
	Name  string
	Inode uint64
	Kind  Kind
}

// ReadDir lists a folder as it is now: ".", "..", and the names in order. It
// is nil for a folder that has been removed, and for what is no folder.
func (fs *FS) ReadDir(ino *Inode) []Dirent {
	if ino.kind != Dir || ino.nlink == 0 {
		return nil
	}
	list := []Dirent{{".", ino.number, Dir}, {"..", ino.parent.number, Dir}}
	if ino.layer {
		list = slices.Grow(list, len(ino.children))
		for name, c := range ino.children {
			list = append(list, Dirent{name, c.number, c.kind})
		}
	} else {
		list = fs.listBase(ino, list)
	}
	slices.SortFunc(list[2:], func(a, b Dirent) int { return strings.Compare(a.Name, b.Name) })
	return list
}

// listBase lists a folder of the base and what is mounted in it. Inodes are
// not made for that.
func (fs *FS) listBase(ino *Inode, list []Dirent) []Dirent {
	own := func(c *Inode) { list = append(list, Dirent{c.name, c.number, c.kind}) }
	switch ino {
	case &fs.root:
		own(&fs.dev)
		own(&fs.tmp)
		own(&fs.work)
	case &fs.dev:
		for i := range fs.devices {
			own(&fs.devices[i])
		}
	}
	for _, name := range fs.base.ReadDir(ino.path) {
		if fs.mounted(ino, name) != nil {
			continue
		}
		if info, ok := fs.base.Lookup(ino.childPath(name)); ok {
			list = append(list, Dirent{name, info.Inode, info.Kind})
		}
	}
	return list
}
