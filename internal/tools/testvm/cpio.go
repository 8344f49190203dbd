package main

import (
	"bufio"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
)

// archive writes a cpio archive of the "newc" kind, which the kernel unpacks
// as its first root (Documentation/driver-api/early-userspace/buffer-format).
type archive struct {
	w       *bufio.Writer
	n       int64
	ino     int
	folders map[string]bool
}

func newArchive(w io.Writer) *archive {
	return &archive{w: bufio.NewWriterSize(w, 1<<20), folders: map[string]bool{".": true}}
}

// maxFile bounds a file: its size has 32 bits.
const maxFile = 1<<32 - 1

// entry adds anything; it belongs to user 0.
func (a *archive) entry(name string, mode, gid uint32, size int64, data io.Reader) error {
	if size > maxFile {
		return fmt.Errorf("%s has %d bytes", name, size)
	}
	a.ino++
	const links, major, minor, mtime = 1, 0, 0, 0
	head := fmt.Sprintf("070701%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X%s\x00",
		a.ino, mode, 0, gid, links, mtime, size, major, minor, major, minor, len(name)+1, 0, name)
	if err := a.write(head); err != nil {
		return err
	}
	if data != nil {
		n, err := io.Copy(a.w, data)
		a.n += n
		if err != nil {
			return err
		}
		if n != size {
			return fmt.Errorf("%s changed while it was packed", name)
		}
	}
	return a.write("")
}

// write appends text and fills up to a multiple of four bytes.
func (a *archive) write(text string) error {
	if pad := int(-(a.n + int64(len(text))) & 3); pad > 0 {
		text += strings.Repeat("\x00", pad)
	}
	n, err := a.w.WriteString(text)
	a.n += int64(n)
	return err
}

// folder adds a folder and those above it.
func (a *archive) folder(name string) error { return a.folderWith(name, 0o755) }

// folderWith is folder with rights for one that is not there yet.
func (a *archive) folderWith(name string, mode uint32) error {
	if a.folders[name] {
		return nil
	}
	if err := a.folder(path.Dir(name)); err != nil {
		return err
	}
	a.folders[name] = true
	return a.entry(name, 0o40000|mode, 0, 0, nil)
}

// link adds a symbolic link.
func (a *archive) link(name, target string) error {
	return a.entry(name, 0o120777, 0, int64(len(target)), strings.NewReader(target))
}

// data adds a file with the given content. Names have no leading slash.
func (a *archive) data(name string, mode uint32, content string) error {
	if err := a.folder(path.Dir(name)); err != nil {
		return err
	}
	return a.entry(name, 0o100000|mode, 0, int64(len(content)), strings.NewReader(content))
}

// file adds a copy of a file.
func (a *archive) file(name, from string, mode uint32) error {
	if err := a.folder(path.Dir(name)); err != nil {
		return err
	}
	f, err := os.Open(from)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	return a.entry(name, 0o100000|mode, 0, info.Size(), f)
}

// tree adds the regular files below a folder, if there is one.
func (a *archive) tree(name, from string) error {
	return filepath.WalkDir(from, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			if p == from && os.IsNotExist(err) {
				return nil
			}
			return err
		}
		if !d.Type().IsRegular() {
			return nil
		}
		rel, err := filepath.Rel(from, p)
		if err != nil {
			return err
		}
		return a.file(path.Join(name, filepath.ToSlash(rel)), p, 0o644)
	})
}

func (a *archive) close() error {
	if err := a.entry("TRAILER!!!", 0, 0, 0, nil); err != nil {
		return err
	}
	return a.w.Flush()
}
