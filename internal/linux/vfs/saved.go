package vfs

import (
	"errors"
	"fmt"
	"path"
	"sort"
	"strings"
)

// Saved is an entry of the writable layer in a form that can be kept in a
// file.
type Saved struct {
	Path   string
	Kind   Kind
	Mode   uint32
	Target string `json:",omitempty"`
	Data   []byte `json:",omitempty"`
}

// ErrSaved is returned for a saved layer that cannot be used.
var ErrSaved = errors.New("saved files")

// maxSaved bounds the file contents that Export keeps.
const maxSaved = 16 << 20

// Export gives the writable layer, folders before what is in them. Files with
// several names are refused: the form has no place for them.
func (fs *FS) Export() ([]Saved, error) {
	var out []Saved
	total := int64(0)
	var walk func(dir *Inode, at string) error
	walk = func(dir *Inode, at string) error {
		names := make([]string, 0, len(dir.children))
		for n := range dir.children {
			names = append(names, n)
		}
		sort.Strings(names)
		for _, n := range names {
			c, p := dir.children[n], path.Join(at, n)
			s := Saved{Path: p, Kind: c.kind, Mode: c.mode, Target: c.target}
			if c.kind == File {
				if c.nlink > 1 {
					return fmt.Errorf("%w: %s has several names", ErrSaved, p)
				}
				if total += c.data.size; total > maxSaved {
					return fmt.Errorf("%w: more than %d bytes", ErrSaved, maxSaved)
				}
				s.Data = make([]byte, c.data.size)
				c.data.readAt(s.Data, 0)
			}
			out = append(out, s)
			if c.kind == Dir {
				if err := walk(c, p); err != nil {
					return err
				}
			}
		}
		return nil
	}
	for _, n := range []string{"tmp", "work"} {
		if err := walk(fs.root.children[n], "/"+n); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// Import makes a tree with a saved writable layer.
func Import(base Base, lim Limits, clock Clock, saved []Saved) (*FS, error) {
	fs := New(base, lim, clock)
	for _, s := range saved {
		bad := func(why string) error { return fmt.Errorf("%w: %q: %s", ErrSaved, s.Path, why) }
		if !strings.HasPrefix(s.Path, "/") || path.Clean(s.Path) != s.Path {
			return nil, bad("path is not clean")
		}
		at, e := fs.slot(fs.root, s.Path)
		if e != 0 {
			return nil, bad(e.Error())
		}
		switch s.Kind {
		case Dir:
			if e := fs.Mkdir(fs.root, s.Path, s.Mode|0o300); e != 0 {
				return nil, bad(e.Error())
			}
		case Symlink:
			if e := fs.Symlink(s.Target, fs.root, s.Path); e != 0 {
				return nil, bad(e.Error())
			}
		case File:
			ino := fs.inode(File, s.Mode)
			at.link(ino)
			if n, e := ino.data.writeAt(s.Data, 0); e != 0 || n < len(s.Data) {
				return nil, bad("too large")
			}
		default:
			return nil, bad("unknown kind")
		}
	}
	return fs, nil
}
