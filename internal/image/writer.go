//go:build unix

package image

import (
	"bufio"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"path"
	"slices"
	"strings"
)

// writer lays an image out in a file.
type writer struct {
	f       io.WriteSeeker
	b       *bufio.Writer
	off     int64
	records []*record
	objects []Object
	bytes   int64
}

func newWriter(f io.WriteSeeker) (*writer, error) {
	w := &writer{f: f, b: bufio.NewWriterSize(f, 1<<20)}
	// The header follows when the digest is known.
	return w, w.write(make([]byte, headerSize))
}

func (w *writer) write(b []byte) error {
	n, err := w.b.Write(b)
	w.off += int64(n)
	return err
}

func (w *writer) align(to int64) error {
	return w.write(make([]byte, (to-w.off%to)%to))
}

// file adds a regular file.
func (w *writer) file(guest string, data []byte, executable bool, align int64) error {
	if err := w.align(align); err != nil {
		return err
	}
	sum := sha256.Sum256(data)
	w.records = append(w.records, &record{
		path: guest, kind: File, executable: executable,
		off: w.off, size: int64(len(data)), sum: string(sum[:]),
	})
	w.bytes += int64(len(data))
	return w.write(data)
}

// object adds a loadable ELF file.
func (w *writer) object(guest string, data []byte, p *program) error {
	o := p.object(guest)
	if err := o.check(); err != nil {
		return err
	}
	w.objects = append(w.objects, o)
	return w.file(guest, data, true, objectAlign)
}

func (w *writer) link(guest, target string) {
	w.records = append(w.records, &record{path: guest, kind: Symlink, target: target})
}

// folders adds the folders that the entries are in, and sorts everything.
func (w *writer) folders() {
	seen := map[string]bool{"/": true}
	dirs := []*record{{path: "/", kind: Dir}}
	for _, r := range w.records {
		for d := path.Dir(r.path); !seen[d]; d = path.Dir(d) {
			seen[d] = true
			dirs = append(dirs, &record{path: d, kind: Dir})
		}
	}
	w.records = append(w.records, dirs...)
	slices.SortFunc(w.records, func(a, b *record) int { return strings.Compare(a.path, b.path) })
	slices.SortFunc(w.objects, func(a, b Object) int { return strings.Compare(a.Path, b.Path) })
}

func (w *writer) table(b []byte) (Section, error) {
	if err := w.align(fileAlign); err != nil {
		return Section{}, err
	}
	sum := sha256.Sum256(b)
	s := Section{Offset: w.off, Size: int64(len(b)), SHA256: hex.EncodeToString(sum[:])}
	if s.Size > maxTable {
		return s, fmt.Errorf("too many files for one image")
	}
	return s, w.write(b)
}

// finish completes the manifest, writes the tables and gives the image's ID.
func (w *writer) finish(m *Manifest) (string, error) {
	w.folders()
	if len(w.records) > maxEntries || len(w.objects) > maxObjects {
		return "", fmt.Errorf("too many files for one image: %d", len(w.records))
	}
	for _, r := range w.records {
		if r.kind == File {
			m.Files++
		}
	}
	m.Format, m.Bytes, m.Objects = formatVersion, w.bytes, w.objects
	var err error
	if m.ObjectTable, err = w.table(encodeObjects(w.objects)); err != nil {
		return "", err
	}
	if m.Index, err = w.table(encodeIndex(w.records)); err != nil {
		return "", err
	}
	raw, err := json.Marshal(m)
	if err != nil {
		return "", err
	}
	if len(raw) > maxManifest {
		return "", fmt.Errorf("too many packages for one image: %d", len(m.Packages))
	}
	h := header{manifestOff: w.off, manifestSize: int64(len(raw)), digest: sha256.Sum256(raw)}
	if err := w.write(raw); err != nil {
		return "", err
	}
	if err := w.b.Flush(); err != nil {
		return "", err
	}
	if _, err := w.f.Seek(0, io.SeekStart); err != nil {
		return "", err
	}
	if _, err := w.f.Write(h.encode()); err != nil {
		return "", err
	}
	return hex.EncodeToString(h.digest[:]), nil
}
