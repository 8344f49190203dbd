//go:build linux

package engine

import (
	"fmt"
	"maps"
	"path"
	"slices"
	"sync"

	"github.com/maf-sandbox/maf-sandbox-go/guest"
	"github.com/maf-sandbox/maf-sandbox-go/internal/image"
	"github.com/maf-sandbox/maf-sandbox-go/internal/linux/vfs"
)

// base is the read-only part of a guest's file tree: the image, and a few files
// that are not part of any image.
type base struct {
	image *image.Image
	// own are those files by path, names their paths sorted, dirs their folders.
	own   map[string]ownFile
	names []string
	dirs  []string
}

// ownFile is a file of the tree's own. Its content is made when it is first
// asked for: a machine that starts from a kept template reads none.
type ownFile struct {
	size    int64
	content func() ([]byte, error)
}

func newOwnFile(size int64, read func() ([]byte, error)) ownFile {
	return ownFile{size: size, content: sync.OnceValues(read)}
}

// ownInode is where the inode numbers of the tree's own files start, far above
// any image's.
const ownInode = 1 << 40

// The made-up users of the guest: programs look up their own name and home.
var accounts = map[string]string{
	"/etc/passwd": "root:x:0:0:root:/nonexistent:/usr/sbin/nologin\nsandbox:x:1000:1000:sandbox:" + workDir + ":/usr/sbin/nologin\n",
	"/etc/group":  "root:x:0:\nsandbox:x:1000:\n",
}

func newBase(im *image.Image) (*base, error) {
	b := &base{image: im, own: map[string]ownFile{}}
	entries, err := guest.Files.ReadDir(".")
	if err != nil {
		return nil, fmt.Errorf("driver: %w", err)
	}
	for _, e := range entries {
		info, err := e.Info()
		if err != nil {
			return nil, fmt.Errorf("driver: %w", err)
		}
		name := e.Name()
		b.own[path.Join(guest.Dir, name)] = newOwnFile(info.Size(), func() ([]byte, error) { return guest.Files.ReadFile(name) })
	}
	for name, text := range accounts {
		b.own[name] = newOwnFile(int64(len(text)), func() ([]byte, error) { return []byte(text), nil })
	}
	b.names = slices.Sorted(maps.Keys(b.own))
	for _, name := range b.names {
		if dir := path.Dir(name); !slices.Contains(b.dirs, dir) {
			b.dirs = append(b.dirs, dir)
		}
	}
	return b, nil
}

// Lookup implements vfs.Base.
func (b *base) Lookup(p string) (vfs.Info, bool) {
	if i := slices.Index(b.dirs, p); i >= 0 {
		return vfs.Info{Kind: vfs.Dir, Inode: ownInode + uint64(i)}, true
	}
	if i, ok := slices.BinarySearch(b.names, p); ok {
		return vfs.Info{Kind: vfs.File, Size: b.own[p].size, Inode: ownInode + uint64(len(b.dirs)+i)}, true
	}
	e, ok := b.image.Lookup(p)
	if !ok {
		return vfs.Info{}, false
	}
	info := vfs.Info{Kind: vfs.File, Size: e.Size, Executable: e.Executable, Target: e.Target, Inode: e.Inode}
	switch e.Kind {
	case image.Dir:
		info.Kind = vfs.Dir
	case image.Symlink:
		info.Kind = vfs.Symlink
	}
	return info, true
}

// ReadDir implements vfs.Base. The driver's folder is not listed by its parent:
// a program has no use for it.
func (b *base) ReadDir(p string) []string {
	if !slices.Contains(b.dirs, p) {
		names := b.image.ReadDir(p)
		if p == "/" && !slices.Contains(names, "etc") {
			names = slices.Sorted(slices.Values(append(slices.Clone(names), "etc")))
		}
		return names
	}
	var names []string
	for _, name := range b.names {
		if path.Dir(name) == p {
			names = append(names, path.Base(name))
		}
	}
	return names
}

// Content implements vfs.Base.
func (b *base) Content(p string) ([]byte, error) {
	if f, ok := b.own[p]; ok {
		return f.content()
	}
	return b.image.Content(p)
}
