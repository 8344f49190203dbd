//go:build unix

package image

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// DefaultName is the image that is used when none is named.
const DefaultName = "default"

// origin says how a file or folder on the host looked when it was captured.
type origin struct {
	Path string `json:"path"`
	Size int64  `json:"size"`
	// Time is the modification time in nanoseconds since 1970.
	Time int64 `json:"time"`
}

func (s *Store) originFile(name string) string {
	// Names do not begin with a dot, so this is no name's ref.
	return filepath.Join(s.dir, refFolder, "."+name+".json")
}

// writeOrigin notes what an image was captured from. The note stays on this
// machine; images do not contain it.
func (s *Store) writeOrigin(name string, paths []string) error {
	origins := make([]origin, 0, len(paths))
	for _, p := range paths {
		st, err := os.Stat(p)
		if err != nil {
			return err
		}
		origins = append(origins, origin{p, sizeOf(st), st.ModTime().UnixNano()})
	}
	b, err := json.Marshal(origins)
	if err != nil {
		return err
	}
	return writeFile(s.originFile(name), b)
}

// sizeOf gives a file's size; that of a folder depends on its history.
func sizeOf(st fs.FileInfo) int64 {
	if st.IsDir() {
		return 0
	}
	return st.Size()
}

// fresh reports whether what an image was captured from still looks the same.
func (s *Store) fresh(name string) bool {
	b, err := os.ReadFile(s.originFile(name))
	if err != nil {
		return false
	}
	var origins []origin
	if json.Unmarshal(b, &origins) != nil || len(origins) == 0 {
		return false
	}
	for _, o := range origins {
		st, err := os.Stat(o.Path)
		if err != nil || sizeOf(st) != o.Size || st.ModTime().UnixNano() != o.Time {
			return false
		}
	}
	return true
}

// Current is Default without a capture: where Default would try one, the error is
// ErrNotFound.
func (s *Store) Current() (path string, err error) {
	path, err = s.Resolve(DefaultName)
	if err == nil && !s.fresh(DefaultName) {
		return "", fmt.Errorf("the image %s is of a Python that has changed: %w", DefaultName, ErrNotFound)
	}
	return path, err
}

// Default gives the file of the image called "default". When there is none, or
// what it was captured from has changed, it captures the first python3 on PATH
// that will do and reports built. One process captures; others wait for it. An
// image that is there is used on when a new capture is not possible.
func (s *Store) Default(ctx context.Context, log func(line string)) (path string, built bool, err error) {
	path, err = s.Resolve(DefaultName)
	if err == nil && s.fresh(DefaultName) {
		return path, false, nil
	}
	o := Options{Log: log}
	unlock, err := s.lock(ctx, o.logf)
	if err != nil {
		return "", false, err
	}
	defer unlock()
	// Another process may have captured while this one waited.
	old, oldErr := s.Resolve(DefaultName)
	if oldErr == nil && s.fresh(DefaultName) {
		return old, false, nil
	}
	info, err := s.build(ctx, o, DefaultName)
	switch {
	case err == nil:
		return info.Path, true, nil
	case oldErr == nil && ctx.Err() == nil:
		o.logf("the Python on this machine has changed and cannot be captured, so the old image is used: %v", err)
		return old, false, nil
	case oldErr != nil && !errors.Is(oldErr, ErrNotFound):
		return "", false, fmt.Errorf("%w (and the old image cannot be used: %w)", err, oldErr)
	}
	return "", false, err
}
