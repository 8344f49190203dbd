package vfs

import (
	"maps"
	"slices"
)

// Dirent is one entry of a folder.
type Dirent struct {
	Name  string
	Inode uint64
	Kind  Kind
}

// ReadDir lists a folder: ".", "..", then the names in order. The list is a
// snapshot, later changes do not show in it. It is empty for
// a removed folder and nil for what is no folder.
func (fs *FS) ReadDir(ino *Inode) []Dirent {
	switch {
	case ino.kind != Dir:
		return nil
	case ino.removed(): // Linux does not list these at all
		return []Dirent{}
	}
	var names []string
	switch {
	case !ino.base:
		names = slices.Sorted(maps.Keys(ino.children))
	case ino == &fs.dev:
		for _, d := range devices {
			names = append(names, d.name)
		}
	case ino == &fs.root:
		names = slices.Clone(fs.base.ReadDir("/"))
		names = append(names, "dev", "tmp", "work")
		slices.Sort(names)
		names = slices.Compact(names)
	default:
		names = fs.base.ReadDir(ino.path)
	}
	out := make([]Dirent, 0, len(names)+2)
	out = append(out, Dirent{".", ino.number, Dir}, Dirent{"..", ino.parent.number, Dir})
	for _, name := range names {
		if d, ok := ino.entry(name); ok {
			out = append(out, d)
		}
	}
	return out
}

// entry describes one name of a folder, without making an inode for it if
// there is none yet: most names that are listed are never opened.
func (ino *Inode) entry(name string) (Dirent, bool) {
	if c := ino.children[name]; c != nil {
		return Dirent{name, c.number, c.kind}, true
	}
	fs := ino.fs
	if ino == &fs.root || ino == &fs.dev {
		c := ino.child(name)
		if c == nil {
			return Dirent{}, false
		}
		return Dirent{name, c.number, c.kind}, true
	}
	info, ok := fs.base.Lookup(ino.path + "/" + name)
	return Dirent{name, info.Inode, info.Kind}, ok
}
