//go:build linux

package engine

import (
	"fmt"
	"path"
	"slices"

	"github.com/maf-sandbox/maf-sandbox-go/guest"
	"github.com/maf-sandbox/maf-sandbox-go/internal/image"
	"github.com/maf-sandbox/maf-sandbox-go/internal/linux/vfs"
)

// base is the read-only part of a guest's file tree: the image, and the
// driver's own files, which are not part of any image.
type base struct {
	image *image.Image
	own   map[string][]byte
}

// ownInode is where the inode numbers of the driver's files start, far above
// any image's.
const ownInode = 1 << 40

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
	return b, nil
}

// Lookup implements vfs.Base.
func (b *base) Lookup(p string) (vfs.Info, bool) {
	if p == guest.Dir {
		return vfs.Info{Kind: vfs.Dir, Inode: ownInode}, true
	}
	if data, ok := b.own[p]; ok {
		// The name's length tells the few files apart.
		return vfs.Info{Kind: vfs.File, Size: int64(len(data)), Inode: ownInode + uint64(len(p))}, true
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
	if p == guest.Dir {
		names := make([]string, 0, len(b.own))
		for name := range b.own {
			names = append(names, path.Base(name))
		}
		slices.Sort(names)
		return names
	}
	return b.image.ReadDir(p)
}

// Content implements vfs.Base.
func (b *base) Content(p string) ([]byte, error) {
	if data, ok := b.own[p]; ok {
		return data, nil
	}
	return b.image.Content(p)
}
