//go:build linux

package vfs

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"syscall"
	"unicode/utf8"
)

// Saved is an entry of the writable layer in a form that JSON can keep.
type Saved struct {
	// Path is absolute and clean, below /tmp or /work.
	Path string
	// Kind is File, Dir or Symlink.
	Kind Kind
	// Mode has the permission bits.
	Mode uint32
	// Sec and Nsec are the time of the last modification.
	Sec, Nsec int64
	// Target is where a symbolic link points.
	Target string `json:",omitempty"`
	// Data is what a file holds.
	Data []byte `json:",omitempty"`
}

// ErrSaved is returned for a layer that cannot be saved, or a saved one that
// cannot be used.
var ErrSaved = errors.New("saved files")

// maxSaved bounds the bytes of contents that Export keeps. It is meant for
// what a warm-up leaves behind, which is next to nothing.
const maxSaved = 16 << 20

func errSaved(path, why string) error { return fmt.Errorf("%w: %q: %s", ErrSaved, path, why) }

// Export gives the writable layer, each folder before what is in it. Names
// that are not UTF-8, files with several names and more than 16 MiB of
// contents, holes included, are refused. Files without a name are left out.
func (fs *FS) Export() ([]Saved, error) {
	x := export{room: maxSaved}
	for _, root := range []*Inode{&fs.tmp, &fs.work} {
		if err := x.folder(root, "/"+root.name); err != nil {
			return nil, err
		}
	}
	return x.list, nil
}

type export struct {
	list []Saved
	room int64
}

func (x *export) folder(dir *Inode, path string) error {
	names := make([]string, 0, len(dir.children))
	for name := range dir.children {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		if err := x.entry(dir.children[name], path+"/"+name); err != nil {
			return err
		}
	}
	return nil
}

func (x *export) entry(ino *Inode, path string) error {
	s := Saved{
		Path: path, Kind: ino.kind, Mode: ino.mode, Sec: ino.mtime.sec, Nsec: ino.mtime.nsec, Target: ino.target,
	}
	switch {
	case !utf8.ValidString(path) || !utf8.ValidString(ino.target):
		return errSaved(path, "a name is not UTF-8")
	case ino.kind != Dir && ino.nlink > 1:
		return errSaved(path, "it has several names")
	case ino.kind == File && ino.size > x.room:
		return errSaved(path, "too many bytes")
	case ino.kind == File:
		x.room -= ino.size
		s.Data = make([]byte, ino.size)
		ino.data.readAt(s.Data, 0)
	}
	x.list = append(x.list, s)
	if ino.kind == Dir {
		return x.folder(ino, path)
	}
	return nil
}

// Import makes a tree with a saved writable layer. What is saved is not
// trusted: it must be what Export may have given, and fit the limits.
func Import(base Base, lim Limits, clock Clock, saved []Saved) (*FS, error) {
	fs := New(base, lim, clock)
	made := make([]*Inode, 0, min(len(saved), max(lim.Inodes, 0)))
	for i := range saved {
		ino, err := fs.load(&saved[i])
		if err != nil {
			return nil, err
		}
		made = append(made, ino)
	}
	// A folder's time is set when everything is in it.
	for i, ino := range made {
		ino.mtime = stamp{saved[i].Sec, saved[i].Nsec}
	}
	return fs, nil
}

// load makes the inode of a saved entry.
func (fs *FS) load(s *Saved) (*Inode, error) {
	at, why := fs.savedPlace(s.Path)
	if why == "" {
		why = s.problem()
	}
	if why == "" && s.Kind == Dir && at.dir.depth() >= maxDepth {
		why = "too deep"
	}
	if why != "" {
		return nil, errSaved(s.Path, why)
	}
	if s.Kind == Symlink {
		if e := fs.symlink(s.Target, at); e != 0 {
			return nil, fmt.Errorf("%w: %q: %w", ErrSaved, s.Path, e)
		}
		return at.dir.child(at.name), nil
	}
	ino, e := fs.newInode(s.Kind, s.Mode)
	if e != 0 {
		return nil, fmt.Errorf("%w: %q: %w", ErrSaved, s.Path, e)
	}
	at.attach(ino)
	if len(s.Data) == 0 {
		return ino, nil
	}
	if n, e := fs.WriteAt(ino, s.Data, 0); e != 0 || n < len(s.Data) {
		return nil, fmt.Errorf("%w: %q: %w", ErrSaved, s.Path, syscall.ENOSPC)
	}
	return ino, nil
}

// savedPlace finds where a saved entry goes without following any link, or
// says why it cannot go there.
func (fs *FS) savedPlace(path string) (place, string) {
	names := strings.Split(path, "/")
	if len(names) < 3 || names[0] != "" || len(names) > maxDepth+2 {
		return place{}, "not a path below /tmp or /work"
	}
	dir := fs.mounted(&fs.root, names[1])
	if dir == nil || !dir.layer {
		return place{}, "not a path below /tmp or /work"
	}
	name := names[len(names)-1]
	for _, n := range names[2 : len(names)-1] {
		if dir = dir.child(n); dir == nil || dir.kind != Dir {
			return place{}, "no folder to put it into"
		}
	}
	switch {
	case name == "" || lastOf(name) != lastName || len(name) > maxName || strings.IndexByte(name, 0) >= 0:
		return place{}, "a name that cannot be"
	case dir.child(name) != nil:
		return place{}, "it is there twice"
	}
	return place{dir: dir, name: name}, ""
}

// problem says what is wrong with a saved entry apart from its place.
func (s *Saved) problem() string {
	switch s.Kind {
	case File, Dir:
	case Symlink:
		if s.Target == "" || len(s.Target) >= maxPath || strings.IndexByte(s.Target, 0) >= 0 {
			return "a target that cannot be"
		}
	case Device:
		return "devices are not saved"
	default:
		return "unknown kind"
	}
	switch {
	case s.Mode&^0o7777 != 0 || s.Kind == Symlink && s.Mode != 0o777:
		return "a mode that cannot be"
	case s.Nsec < 0 || s.Nsec >= 1e9:
		return "a time that cannot be"
	case s.Kind != File && len(s.Data) > 0:
		return "contents of what is no file"
	case s.Kind != Symlink && s.Target != "":
		return "a target of what is no link"
	}
	return ""
}
