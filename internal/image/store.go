//go:build unix

package image

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/maf-sandbox/maf-sandbox-go/internal/private"
)

const (
	refFolder  = "refs"
	lockFile   = "lock"
	tempPrefix = ".tmp-"
	// minIDPrefix is the shortest start of an ID that names an image, in
	// hexadecimal digits.
	minIDPrefix = 6
)

// maxName bounds the names of images.
const maxName = 64

// validName reports whether an image can be called so. (A regular expression would
// be compiled, in 0.2 ms and 50 KiB, at the start of every worker.)
func validName(name string) bool {
	for i, c := range []byte(name) {
		letter := c >= 'a' && c <= 'z' || c >= '0' && c <= '9'
		if !letter && (i == 0 || c != '.' && c != '_' && c != '-') {
			return false
		}
	}
	return name != "" && len(name) <= maxName
}

// Store is a private folder of images:
//
//	<id>.img          an image, read-only
//	refs/<name>       the ID that a name stands for
//	refs/.<name>.json what the image was captured from, by size and time
//	lock              held while the folder is changed
//
// It may be used by any number of processes of one user.
type Store struct {
	dir string
	// capture is Capture, except in tests.
	capture func(context.Context, io.WriteSeeker, Options) (*Captured, error)
}

// Info describes an image of a store.
type Info struct {
	// ID is the image's ID, Names the names that stand for it, sorted.
	ID    string   `json:"id"`
	Names []string `json:"names"`
	// Path is the file, Size its length in bytes.
	Path string `json:"path"`
	Size int64  `json:"size"`
	// Created is when the file was written.
	Created time.Time `json:"created"`
	// Manifest describes the content; nil when the file is damaged.
	Manifest *Manifest `json:"manifest"`
	// Problem says why Manifest is missing.
	Problem string `json:"problem,omitempty"`
}

// OpenStore opens the store in a folder and creates it for this user alone if
// it is missing. A folder that is a link, belongs to someone else or lets
// others in gives ErrUnsafeFolder.
func OpenStore(dir string) (*Store, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	for _, d := range []string{dir, filepath.Join(dir, refFolder)} {
		if err := private.Folder(d); err != nil {
			return nil, fmt.Errorf("image store: %w", err)
		}
	}
	return &Store{dir, Capture}, nil
}

func (s *Store) file(id string) string  { return filepath.Join(s.dir, id+suffix) }
func (s *Store) ref(name string) string { return filepath.Join(s.dir, refFolder, name) }

func (s *Store) lock(ctx context.Context, logf func(string, ...any)) (func(), error) {
	return lock(ctx, filepath.Join(s.dir, lockFile), func() {
		logf("waiting for another maf-sandbox that is changing the images")
	})
}

// Build captures a Python and keeps it under a name, which it takes over if
// another image had it. The same content is kept once.
func (s *Store) Build(ctx context.Context, o Options, name string) (Info, error) {
	if !validName(name) {
		return Info{}, fmt.Errorf("%w %q: use small letters, digits, '.', '_' and '-', at most 64", ErrName, name)
	}
	unlock, err := s.lock(ctx, o.logf)
	if err != nil {
		return Info{}, err
	}
	defer unlock()
	return s.build(ctx, o, name)
}

// build is Build with the lock held.
func (s *Store) build(ctx context.Context, o Options, name string) (Info, error) {
	s.sweep()
	f, err := os.CreateTemp(s.dir, tempPrefix+"*")
	if err != nil {
		return Info{}, err
	}
	kept := false
	defer func() {
		if !kept {
			_ = os.Remove(f.Name())
		}
	}()
	made, err := s.capture(ctx, f, o)
	if err == nil {
		err = errors.Join(f.Chmod(0o400), f.Sync())
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return Info{}, err
	}
	// An image that is there already is replaced by its equal: what is open
	// keeps the old file, and one that was damaged is mended.
	if err := os.Rename(f.Name(), s.file(made.ID)); err != nil {
		return Info{}, err
	}
	kept = true
	if err := syncFolder(s.dir); err != nil {
		return Info{}, err
	}
	if err := s.writeOrigin(name, made.Origin); err != nil {
		return Info{}, err
	}
	if err := writeFile(s.ref(name), []byte(made.ID+"\n")); err != nil {
		return Info{}, err
	}
	names, err := s.names()
	if err != nil {
		return Info{}, err
	}
	return info(s.file(made.ID), names)
}

// sweep removes what captures that were killed have left. The lock is held, so
// nothing of it is in use.
func (s *Store) sweep() {
	for _, dir := range []string{s.dir, filepath.Join(s.dir, refFolder)} {
		left, err := filepath.Glob(filepath.Join(dir, tempPrefix+"*"))
		if err != nil {
			continue
		}
		for _, name := range left {
			_ = os.Remove(name)
		}
	}
}

func syncFolder(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

// names maps image IDs to their names, sorted.
func (s *Store) names() (map[string][]string, error) {
	entries, err := os.ReadDir(filepath.Join(s.dir, refFolder))
	if err != nil {
		return nil, err
	}
	names := make(map[string][]string)
	for _, e := range entries {
		if !validName(e.Name()) {
			continue
		}
		if id, err := s.readRef(e.Name()); err == nil {
			names[id] = append(names[id], e.Name())
		}
	}
	return names, nil
}

// readRef gives the ID that a name stands for.
func (s *Store) readRef(name string) (string, error) {
	if !validName(name) {
		return "", fmt.Errorf("no image is called %q: %w", name, ErrNotFound)
	}
	b, err := os.ReadFile(s.ref(name))
	if errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("no image is called %q: %w", name, ErrNotFound)
	}
	if err != nil {
		return "", err
	}
	id := strings.TrimSuffix(string(b), "\n")
	if !isID(id) {
		return "", fmt.Errorf("%s: %w", s.ref(name), damaged("not an image ID"))
	}
	return id, nil
}

// info describes the image file at a path.
func info(file string, names map[string][]string) (Info, error) {
	st, err := os.Lstat(file)
	if err != nil {
		return Info{}, err
	}
	info := Info{Path: file, Size: st.Size(), Created: st.ModTime()}
	im, err := Open(file)
	if err != nil {
		if id := strings.TrimSuffix(filepath.Base(file), suffix); isID(id) {
			info.ID, info.Names = id, slices.Clone(names[id])
		}
		info.Problem = err.Error()
		return info, nil
	}
	info.ID, info.Names, info.Manifest = im.ID(), slices.Clone(names[im.ID()]), im.Manifest()
	return info, im.Close()
}

// Show describes one image, which is named as for Resolve.
func (s *Store) Show(what string) (Info, error) {
	file, err := s.Resolve(what)
	if err != nil {
		return Info{}, err
	}
	names, err := s.names()
	if err != nil {
		return Info{}, err
	}
	return info(file, names)
}

// List describes all images, those with names first, by name. A damaged one is
// listed with its Problem.
func (s *Store) List() ([]Info, error) {
	ids, err := s.ids()
	if err != nil {
		return nil, err
	}
	names, err := s.names()
	if err != nil {
		return nil, err
	}
	infos := make([]Info, 0, len(ids))
	for _, id := range ids {
		info, err := info(s.file(id), names)
		if errors.Is(err, fs.ErrNotExist) {
			continue // removed meanwhile
		}
		if err != nil {
			return nil, err
		}
		infos = append(infos, info)
	}
	slices.SortStableFunc(infos, func(a, b Info) int {
		if (len(a.Names) == 0) != (len(b.Names) == 0) {
			return len(b.Names) - len(a.Names)
		}
		return slices.Compare(a.Names, b.Names)
	})
	return infos, nil
}

// ids lists the images in the folder, sorted.
func (s *Store) ids() ([]string, error) {
	entries, err := os.ReadDir(s.dir)
	if err != nil {
		return nil, err
	}
	var ids []string
	for _, e := range entries {
		if id, ok := strings.CutSuffix(e.Name(), suffix); ok && isID(id) {
			ids = append(ids, id)
		}
	}
	return ids, nil
}

// Resolve finds the image file that a name, the start of an ID (6 digits or
// more) or a file's path stands for, in this order. Only a text with a slash
// or the ending ".img" is taken for a path.
func (s *Store) Resolve(what string) (string, error) {
	if strings.ContainsRune(what, '/') || strings.HasSuffix(what, suffix) {
		p, err := filepath.EvalSymlinks(what)
		if errors.Is(err, fs.ErrNotExist) {
			return "", fmt.Errorf("image file %s: %w", what, ErrNotFound)
		}
		return p, err
	}
	id, err := s.lookup(what)
	if err != nil {
		return "", err
	}
	err = ownFile(s.file(id))
	if errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("the file of the image %s is gone: %w", what, ErrNotFound)
	}
	return s.file(id), err
}

// lookup finds the ID that a name or the start of an ID stands for.
func (s *Store) lookup(what string) (string, error) {
	id, err := s.readRef(what)
	if err == nil || !errors.Is(err, ErrNotFound) {
		return id, err
	}
	if len(what) < minIDPrefix || strings.Trim(what, "0123456789abcdef") != "" {
		return "", err
	}
	ids, listErr := s.ids()
	if listErr != nil {
		return "", listErr
	}
	ids = slices.DeleteFunc(ids, func(id string) bool { return !strings.HasPrefix(id, what) })
	switch len(ids) {
	case 0:
		return "", fmt.Errorf("no image has the name, or an ID that begins with, %q: %w", what, ErrNotFound)
	case 1:
		return ids[0], nil
	}
	return "", fmt.Errorf("the IDs of %d images begin with %q; give more digits: %w", len(ids), what, ErrNotFound)
}

// Remove takes a name away, and the image with it when it was the last one.
// Given the start of an ID it removes the image and all its names. Running
// machines are not affected.
func (s *Store) Remove(what string) error {
	unlock, err := s.lock(context.Background(), func(string, ...any) {})
	if err != nil {
		return err
	}
	defer unlock()
	id, err := s.lookup(what)
	if err != nil {
		return err
	}
	all, err := s.names()
	if err != nil {
		return err
	}
	names := all[id]
	if slices.Contains(names, what) {
		if err := s.removeName(what); err != nil || len(names) > 1 {
			return err
		}
		return remove(s.file(id))
	}
	for _, name := range names {
		if err := s.removeName(name); err != nil {
			return err
		}
	}
	return remove(s.file(id))
}

func (s *Store) removeName(name string) error {
	return errors.Join(remove(s.ref(name)), remove(s.originFile(name)))
}

func remove(name string) error {
	if err := os.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}
