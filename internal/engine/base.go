//go:build linux

package engine

import (
	"fmt"
	"maps"
	"path"
	"slices"

	"github.com/maf-sandbox/maf-sandbox-go/guest"
	"github.com/maf-sandbox/maf-sandbox-go/internal/image"
	"github.com/maf-sandbox/maf-sandbox-go/internal/linux/vfs"
)

// base is the read-only part of a guest's file tree: the image, and a few files
// that are not part of any image.
type base struct {
	image *image.Image
	// own are those files by path, names their paths sorted, dirs their folders.
	own   map[string][]byte
	names []string
	dirs  []string
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
	b := &base{image: im, own: map[string][]byte{}}
	entries, err := guest.Files.ReadDir(".")
	if err != nil {
		return nil, fmt.Errorf("driver: %w", err)
	}
	for _, e := range entries {
		data, err := guest.Files.ReadFile(e.Name())
		if err != nil {
			return nil, fmt.Errorf("driver: %w", err)
		}
		b.own[path.Join(guest.Dir, e.Name())] = data
	}
	for name, text := range accounts {
		b.own[name] = []byte(text)
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
		return vfs.Info{Kind: vfs.File, Size: int64(len(b.own[p])), Inode: ownInode + uint64(len(b.dirs)+i)}, true
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
	if data, ok := b.own[p]; ok {
		return data, nil
	}
	return b.image.Content(p)
}
