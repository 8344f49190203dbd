package vfs

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Saved is one name of the writable layer, in a form that can be kept in a
// file. Names and targets are bytes because a guest's need not be valid UTF-8,
// which JSON would not keep.
type Saved struct {
	// Parent is the index of the folder in the list, which comes before what
	// is in it; -1 for /tmp and /work, which come first.
	Parent int
	Name   []byte
	Kind   Kind
	// Link is set for a further hard link: the index of the file it is another
	// name of. The fields below are then not used.
	Link int `json:",omitempty"`
	Mode uint32
	// Access and Modify are the time stamps in seconds and nanoseconds.
	Access, Modify [2]int64
	// Target is where a symbolic link points.
	Target []byte `json:",omitempty"`
	// Size is the length of a file, Data its bytes without the holes.
	Size int64    `json:",omitempty"`
	Data []Extent `json:",omitempty"`
}

// Extent is a piece of a file.
type Extent struct {
	Offset int64
	Bytes  []byte
}

var (
	// ErrSaved is returned for a saved layer that cannot be used.
	ErrSaved = errors.New("saved files")
	// ErrUnnamed is returned for a layer that cannot be saved because
	// something without a name is still in use.
	ErrUnnamed = errors.New("files without a name are in use")
)

// Export gives the writable layer, in an order that depends only on its
// content, without the names of sockets, which are nobody's afterwards. The
// bytes are copies. It fails with ErrUnnamed.
func (fs *FS) Export() ([]Saved, error) {
	if fs.orphans > 0 {
		return nil, ErrUnnamed
	}
	out := []Saved{fs.tmp.save(-1), fs.work.save(-1)}
	dirs := []*Inode{&fs.tmp, &fs.work} // dirs[i] is out[i] if that is a folder
	first := make(map[*Inode]int)
	for i := 0; i < len(out); i++ {
		if dirs[i] == nil {
			continue
		}
		for _, name := range slices.Sorted(maps.Keys(dirs[i].children)) {
			c := dirs[i].children[name]
			if c.kind == Socket {
				continue
			}
			if n := first[c]; n > 0 {
				out = append(out, Saved{Parent: i, Name: []byte(name), Kind: c.kind, Link: n})
				dirs = append(dirs, nil)
				continue
			}
			s, dir := c.save(i), c
			s.Name = []byte(name)
			if c.kind != Dir {
				dir = nil
			}
			if c.nlink > 1 {
				first[c] = len(out)
			}
			out, dirs = append(out, s), append(dirs, dir)
		}
	}
	return out, nil
}

// save describes an inode of the layer under its first name.
func (ino *Inode) save(parent int) Saved {
	a, m := ino.times[0], ino.times[1]
	s := Saved{
		Parent: parent, Name: []byte(ino.name), Kind: ino.kind, Mode: ino.mode,
		Access: [2]int64{a.Sec, a.Nsec}, Modify: [2]int64{m.Sec, m.Nsec},
		Size: ino.data.size,
	}
	if ino.target != "" {
		s.Target = []byte(ino.target)
	}
	c := &ino.data
	for _, i := range slices.Sorted(maps.Keys(c.chunks)) {
		at := i * chunkSize
		b := c.chunks[i][:min(chunkSize, c.size-at)]
		if n := len(s.Data) - 1; n >= 0 && s.Data[n].Offset+int64(len(s.Data[n].Bytes)) == at {
			s.Data[n].Bytes = append(s.Data[n].Bytes, b...)
			continue
		}
		s.Data = append(s.Data, Extent{at, slices.Clone(b)})
	}
	return s
}

// Import makes a tree with a saved writable layer. The list may come from
// anywhere: what Export could not have given, or does not fit the limits, is
// refused with ErrSaved. The bytes are copied.
func Import(base Base, lim Limits, clock Clock, saved []Saved) (*FS, error) {
	fs := New(base, lim, clock)
	if len(saved) == 0 {
		return fs, nil
	}
	if len(saved) < 2 || int64(len(saved)) > int64(lim.Inodes)+2 {
		return nil, fmt.Errorf("%w: %d entries", ErrSaved, len(saved))
	}
	made := make([]*Inode, len(saved))
	for i := range saved {
		ino, err := fs.load(made[:i], &saved[i])
		if err != nil {
			return nil, fmt.Errorf("%w: entry %d: %w", ErrSaved, i, err)
		}
		made[i] = ino
	}
	// Last, because the filling of folders has changed their times.
	for i, s := range saved {
		if s.Link == 0 {
			made[i].times[0] = Time{Sec: s.Access[0], Nsec: s.Access[1]}
			made[i].times[1] = Time{Sec: s.Modify[0], Nsec: s.Modify[1]}
		}
	}
	return fs, nil
}

// load puts one entry into the tree.
func (fs *FS) load(made []*Inode, s *Saved) (*Inode, error) {
	if s.Mode&^0o7777 != 0 {
		return nil, errors.New("mode")
	}
	for _, t := range [][2]int64{s.Access, s.Modify} {
		if t[1] < 0 || t[1] >= 1e9 {
			return nil, errors.New("time stamp")
		}
	}
	name := string(s.Name)
	if i := len(made); i < 2 {
		top := []*Inode{&fs.tmp, &fs.work}[i]
		if s.Parent != -1 || name != top.name || s.Kind != Dir || s.Link != 0 {
			return nil, errors.New("the writable folders are not the first")
		}
		top.mode = s.Mode
		return top, nil
	}
	dir, err := parentOf(made, s, name)
	if err != nil {
		return nil, err
	}
	if s.Link != 0 {
		return fs.loadLink(made, s, dir, name)
	}
	if s.Kind == Dir && fs.depth(dir)+1 > maxDepth {
		return nil, errors.New("too deep")
	}
	if err := s.checkKind(); err != nil {
		return nil, err
	}
	ino, e := fs.newInode(s.Kind, s.Mode, int64(len(s.Target)))
	if e != 0 {
		return nil, e
	}
	ino.target = string(s.Target)
	dir.attach(name, ino)
	return ino, fs.loadData(ino, s)
}

// parentOf gives the folder of an entry, in which its name is free.
func parentOf(made []*Inode, s *Saved, name string) (*Inode, error) {
	if s.Parent < 0 || s.Parent >= len(made) || made[s.Parent].kind != Dir {
		return nil, errors.New("parent")
	}
	dir := made[s.Parent]
	switch {
	case name == "", name == ".", name == "..", len(name) > maxName, strings.ContainsAny(name, "/\x00"):
		return nil, errors.New("name")
	case dir.children[name] != nil:
		return nil, errors.New("name is taken")
	}
	return dir, nil
}

// checkKind checks the fields that belong to one kind.
func (s *Saved) checkKind() error {
	switch {
	case s.Kind > Symlink:
		return errors.New("kind")
	case s.Kind != File && (s.Size != 0 || len(s.Data) > 0):
		return errors.New("content of what is not a file")
	case s.Kind == Symlink && (len(s.Target) == 0 || len(s.Target) > maxPath || strings.ContainsRune(string(s.Target), 0)),
		s.Kind != Symlink && len(s.Target) > 0:
		return errors.New("target")
	case s.Size < 0 || s.Size > maxFileSize:
		return errors.New("size")
	}
	return nil
}

func (fs *FS) loadLink(made []*Inode, s *Saved, dir *Inode, name string) (*Inode, error) {
	if s.Link < 0 || s.Link >= len(made) || made[s.Link].kind != s.Kind || s.Kind == Dir {
		return nil, errors.New("link")
	}
	ino := made[s.Link]
	if ino.nlink >= maxLinks || fs.inodes >= fs.limits.Inodes {
		return nil, errors.New("too many links")
	}
	fs.inodes++
	dir.attach(name, ino)
	return ino, nil
}

func (fs *FS) loadData(ino *Inode, s *Saved) error {
	for _, x := range s.Data {
		if x.Offset < 0 || x.Offset > s.Size || int64(len(x.Bytes)) > s.Size-x.Offset {
			return errors.New("content past the end")
		}
		if n, e := fs.WriteAt(ino, x.Bytes, x.Offset); e != 0 {
			return e
		} else if n < len(x.Bytes) {
			return errors.New("content does not fit")
		}
	}
	ino.data.size = s.Size
	return nil
}
