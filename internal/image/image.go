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
	index     *index
	indexErr  error

	mu sync.Mutex // guards what follows
	// checked are the files whose content was compared with its digest, by their
	// positions in the index, and what came of it.
	checked map[int]error
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
		if err := guarded(func() { im.index, im.indexErr = decodeIndex(b, im.dataEnd) }); err != nil {
			im.index, im.indexErr = nil, err
		}
	})
	return im.indexErr
}

// record finds the entry at a path. The error is ErrNotFound if there is none.
func (im *Image) record(p string) (at int, r record, err error) {
	if err := im.Load(); err != nil {
		return 0, r, err
	}
	found := false
	err = guarded(func() {
		if at, found = find(im.index, p); found {
			r = im.index.record(at)
		}
	})
	if err == nil && (!found || r.kind == 0) {
		err = fmt.Errorf("%s: no such file in the image: %w", p, ErrNotFound)
	}
	return at, r, err
}

// Lookup describes the entry at a path; links are not followed.
func (im *Image) Lookup(p string) (Entry, bool) {
	i, r, err := im.record(p)
	if err != nil {
		return Entry{}, false
	}
	return Entry{Kind: r.kind, Size: r.size, Executable: r.executable, Target: r.target, Inode: uint64(i) + 1}, true
}

// ReadDir lists the base names in a folder, sorted. It is empty for anything
// that is not a folder.
func (im *Image) ReadDir(p string) []string {
	if _, r, err := im.record(p); err != nil || r.kind != Dir {
		return nil
	}
	var names []string
	if guarded(func() { names = children(im.index, p) }) != nil {
		return nil
	}
	return names
}

// Paths gives the paths of all regular files, sorted.
func (im *Image) Paths() iter.Seq[string] {
	return func(yield func(string) bool) {
		if im.Load() != nil {
			return
		}
		for i := range im.index.len() {
			var r record
			if guarded(func() { r = im.index.record(i) }) != nil || r.kind == File && !yield(r.path) {
				return
			}
		}
	}
}

// Content gives a file's bytes: shared, read-only, valid until Close. Their
// digest is checked once, on first use; bytes that do not match give
// ErrDamaged, a path that is not a file ErrNotFound.
func (im *Image) Content(p string) ([]byte, error) {
	i, r, err := im.record(p)
	if err != nil {
		return nil, err
	}
	if r.kind != File {
		return nil, fmt.Errorf("%s: no such file in the image: %w", p, ErrNotFound)
	}
	b := im.file[r.off : r.off+r.size : r.off+r.size]
	if err := im.check(i, b, r); err != nil {
		return nil, err
	}
	return b, nil
}

// check compares a file's content with its digest, once.
func (im *Image) check(i int, b []byte, r record) error {
	im.mu.Lock()
	err, done := im.checked[i]
	im.mu.Unlock()
	if done {
		return err
	}
	if !matches(b, r.sum) {
		err = damaged("%s does not match its digest", r.path)
	}
	im.mu.Lock()
	defer im.mu.Unlock()
	if im.checked == nil {
		im.checked = map[int]error{}
	}
	im.checked[i] = err
	return err
}

// matches compares the digest of mapped bytes.
func matches(b []byte, sum string) (ok bool) {
	err := guarded(func() {
		got := sha256.Sum256(b)
		ok = string(got[:]) == sum
	})
	return err == nil && ok
}

// guarded calls f, which reads the mapped file. A file that someone has cut off
// since it was mapped faults when it is read: that is damage, not the end of the
// program.
func guarded(f func()) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		r := recover()
		if r == nil {
			return
		}
		if _, fault := r.(interface{ Addr() uintptr }); !fault {
			panic(r)
		}
		err = damaged("the file was cut off while it was open")
	}()
	f()
	return nil
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
