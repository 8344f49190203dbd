//go:build unix

package image

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"path/filepath"
	"runtime/debug"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

// Image is an open image file. It is safe for concurrent use.
type Image struct {
	id       string
	manifest *Manifest
	file     []byte // the whole file, mapped read-only
	dataEnd  int64

	indexOnce sync.Once
	records   []record
	indexErr  error
}

// Open maps an image file and checks its header, manifest and object table.
// The index is read when it is first needed, each file's content when it is
// first used. A file that is not a sound image gives ErrDamaged.
func Open(name string) (*Image, error) {
	file, err := mapFile(name)
	if err != nil {
		return nil, err
	}
	im := &Image{file: file}
	if err := im.init(); err != nil {
		_ = im.Close()
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	// In a store the file's name is a promise too.
	if base := strings.TrimSuffix(filepath.Base(name), suffix); isID(base) && base != im.id {
		_ = im.Close()
		return nil, fmt.Errorf("%s: %w", name, damaged("the content is another image's"))
	}
	return im, nil
}

func (im *Image) init() error {
	h, err := decodeHeader(im.file, int64(len(im.file)))
	if err != nil {
		return err
	}
	raw := im.file[h.manifestOff : h.manifestOff+h.manifestSize]
	if sha256.Sum256(raw) != h.digest {
		return damaged("the manifest does not match the image's ID")
	}
	m, err := decodeManifest(raw)
	if err != nil {
		return err
	}
	table, err := section(im.file, m.ObjectTable, "object table")
	if err != nil {
		return err
	}
	if m.Objects, err = decodeObjects(table); err != nil {
		return err
	}
	im.id, im.manifest = hex.EncodeToString(h.digest[:]), m
	im.dataEnd = m.ObjectTable.Offset
	return nil
}

// mapFile maps a regular file, never following a link in the last component.
func mapFile(name string) ([]byte, error) {
	fd, err := unix.Open(name, unix.O_RDONLY|unix.O_CLOEXEC|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, &fs.PathError{Op: "open image", Path: name, Err: err}
	}
	// A mapping outlives its descriptor; closing a read-only one cannot fail
	// in a way that matters.
	defer func() { _ = unix.Close(fd) }()
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return nil, &fs.PathError{Op: "stat image", Path: name, Err: err}
	}
	if st.Mode&unix.S_IFMT != unix.S_IFREG {
		return nil, fmt.Errorf("%s: %w", name, damaged("not a regular file"))
	}
	if st.Size < headerSize || st.Size != int64(int(st.Size)) {
		return nil, fmt.Errorf("%s: %w", name, damaged("not an image file"))
	}
	file, err := unix.Mmap(fd, 0, int(st.Size), unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		return nil, &fs.PathError{Op: "map image", Path: name, Err: err}
	}
	return file, nil
}

// ID is the hexadecimal SHA-256 of the manifest. Since the manifest says the
// format version and covers every byte, equal IDs mean equal images.
func (im *Image) ID() string { return im.id }

// Manifest describes the image. The caller must not change it.
func (im *Image) Manifest() *Manifest { return im.manifest }

// Close unmaps the file. What Content returned must not be used afterwards.
func (im *Image) Close() error {
	if im.file == nil {
		return nil
	}
	file := im.file
	im.file = nil
	if err := unix.Munmap(file); err != nil {
		return fmt.Errorf("unmap image: %w", err)
	}
	return nil
}

// Load reads the index now, so that its error is not lost. Without it the
// index is read by the first look-up, and nothing is found in a damaged one.
func (im *Image) Load() error {
	im.indexOnce.Do(func() {
		b, err := section(im.file, im.manifest.Index, "index")
		if err != nil {
			im.indexErr = err
			return
		}
		im.records, im.indexErr = decodeIndex(b, im.dataEnd)
		if im.indexErr != nil {
			im.records = nil
		}
	})
	return im.indexErr
}

func (im *Image) record(p string) (int, *record) {
	if im.Load() != nil {
		return 0, nil
	}
	i, ok := find(im.records, p)
	if !ok {
		return 0, nil
	}
	return i, &im.records[i]
}

// Lookup describes the entry at a path; links are not followed.
func (im *Image) Lookup(p string) (Entry, bool) {
	i, r := im.record(p)
	if r == nil {
		return Entry{}, false
	}
	return Entry{Kind: r.kind, Size: r.size, Executable: r.executable, Target: r.target, Inode: uint64(i) + 1}, true
}

// ReadDir lists the base names in a folder, sorted. It is empty for anything
// that is not a folder.
func (im *Image) ReadDir(p string) []string {
	if _, r := im.record(p); r == nil || r.kind != Dir {
		return nil
	}
	return children(im.records, p)
}

// Paths gives the paths of all regular files, sorted.
func (im *Image) Paths() iter.Seq[string] {
	return func(yield func(string) bool) {
		if im.Load() != nil {
			return
		}
		for i := range im.records {
			if r := &im.records[i]; r.kind == File && !yield(r.path) {
				return
			}
		}
	}
}

// Content gives a file's bytes: shared, read-only, valid until Close. Their
// digest is checked once, on first use; bytes that do not match give
// ErrDamaged, a path that is not a file ErrNotFound.
func (im *Image) Content(p string) ([]byte, error) {
	if err := im.Load(); err != nil {
		return nil, err
	}
	_, r := im.record(p)
	if r == nil || r.kind != File {
		return nil, fmt.Errorf("%s: no such file in the image: %w", p, ErrNotFound)
	}
	b := im.file[r.off : r.off+r.size : r.off+r.size]
	r.once.Do(func() {
		if !matches(b, r.sum) {
			r.err = damaged("%s does not match its digest", p)
		}
	})
	if r.err != nil {
		return nil, r.err
	}
	return b, nil
}

// matches compares the digest of mapped bytes. A file that someone has cut off
// since it was mapped faults when it is read: that is damage too, not the end
// of the program.
func matches(b []byte, sum string) (ok bool) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if recover() != nil {
			ok = false
		}
	}()
	got := sha256.Sum256(b)
	return string(got[:]) == sum
}

// Verify checks every byte, and that the tables agree with each other.
func (im *Image) Verify() error {
	if err := im.Load(); err != nil {
		return err
	}
	var errs []error
	files, size := 0, int64(0)
	for p := range im.Paths() {
		b, err := im.Content(p)
		if err != nil {
			errs = append(errs, err)
		}
		files, size = files+1, size+int64(len(b))
	}
	m := im.manifest
	if len(errs) == 0 && (files != m.Files || size != m.Bytes) {
		errs = append(errs, damaged("%d files of %d bytes, and the manifest says %d of %d", files, size, m.Files, m.Bytes))
	}
	need := []string{m.Executable, m.Interp}
	for i := range m.Objects {
		need = append(need, m.Objects[i].Path)
	}
	for _, p := range need {
		if e, ok := im.Lookup(p); !ok || e.Kind != File {
			errs = append(errs, damaged("the manifest names %s, which is no file of the image", p))
		}
	}
	return errors.Join(errs...)
}

// suffix ends the names of image files.
const suffix = ".img"

func isID(s string) bool {
	if len(s) != 2*sha256.Size {
		return false
	}
	_, err := hex.DecodeString(s)
	return err == nil && strings.ToLower(s) == s
}
