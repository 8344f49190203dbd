package image

import (
	"crypto/sha256"
	"encoding/binary"
	"path"
	"slices"
	"sort"
	"strings"
	"sync"
)

// Kind says what an Entry is.
type Kind uint8

// The kinds of entries.
const (
	File Kind = iota + 1
	Dir
	Symlink
)

// executableBit marks an executable file in an encoded kind.
const executableBit = 0x10

// Entry describes one path of the image.
type Entry struct {
	Kind Kind
	// Size is the file's size, or the length of a link's target, in bytes.
	Size int64
	// Executable says that a file has the executable bit.
	Executable bool
	// Target is what a Symlink points to, relative to its own folder.
	Target string
	// Inode is unique within the image and the same each time it is opened.
	Inode uint64
}

// record is an entry with where its content is.
type record struct {
	path, target string
	kind         Kind
	executable   bool
	off, size    int64
	sum          string // 32 raw bytes

	once sync.Once // checks the content on first use
	err  error
}

func encodeIndex(records []*record) []byte {
	b := binary.AppendUvarint(nil, uint64(len(records)))
	for _, r := range records {
		kind := byte(r.kind)
		if r.executable {
			kind |= executableBit
		}
		b = appendText(append(b, kind), r.path)
		switch r.kind {
		case File:
			b = binary.AppendUvarint(b, uint64(r.off))
			b = binary.AppendUvarint(b, uint64(r.size))
			b = append(b, r.sum...)
		case Symlink:
			b = appendText(b, r.target)
		}
	}
	return b
}

// decodeIndex reads the index of a file whose contents lie in
// [headerSize, dataEnd). Records come sorted by path, so duplicates show.
func decodeIndex(b []byte, dataEnd int64) ([]record, error) {
	c := &cursor{b: string(b)}
	records := make([]record, c.count(maxEntries, minEntry))
	dirs := make(map[string]bool)
	for i := range records {
		r := &records[i]
		if err := r.decode(c, dataEnd); err != nil {
			return nil, err
		}
		if i > 0 && records[i-1].path >= r.path {
			return nil, damaged("index: %q is repeated or out of order", r.path)
		}
		if i == 0 && (r.path != "/" || r.kind != Dir) || i > 0 && !dirs[path.Dir(r.path)] {
			return nil, damaged("index: %q has no parent folder", r.path)
		}
		if r.kind == Dir {
			dirs[r.path] = true
		}
	}
	if err := c.end(); err != nil {
		return nil, err
	}
	return records, checkOverlap(records)
}

func (r *record) decode(c *cursor, dataEnd int64) error {
	kind := c.take(1)
	if c.err != nil {
		return c.err
	}
	r.kind, r.executable = Kind(kind[0]&^executableBit), kind[0]&executableBit != 0
	r.path = c.text()
	switch r.kind {
	case File:
		off, size := c.number(), c.number()
		r.sum = c.take(sha256.Size)
		if off%fileAlign != 0 || off < headerSize || off > uint64(dataEnd) || size > uint64(dataEnd)-off {
			c.fail("content outside the file")
		}
		r.off, r.size = int64(off), int64(size)
	case Dir:
	case Symlink:
		r.target = c.text()
		r.size = int64(len(r.target))
		if r.target == "" || strings.ContainsRune(r.target, 0) {
			c.fail("bad link target")
		}
	default:
		c.fail("unknown kind of entry")
	}
	if r.executable && r.kind != File {
		c.fail("an executable that is no file")
	}
	if c.err == nil && !cleanPath(r.path) {
		return damaged("index: bad path %q", r.path)
	}
	return c.err
}

func checkOverlap(records []record) error {
	type span struct{ lo, hi int64 }
	spans := make([]span, 0, len(records))
	for i := range records {
		if r := &records[i]; r.kind == File && r.size > 0 {
			spans = append(spans, span{r.off, r.off + r.size})
		}
	}
	slices.SortFunc(spans, func(a, b span) int {
		if a.lo < b.lo {
			return -1
		}
		return 1
	})
	for i := 1; i < len(spans); i++ {
		if spans[i].lo < spans[i-1].hi {
			return damaged("index: contents overlap")
		}
	}
	return nil
}

// find returns the position of a path, or that of the first one after it.
func find(records []record, p string) (int, bool) {
	i := sort.Search(len(records), func(i int) bool { return records[i].path >= p })
	return i, i < len(records) && records[i].path == p
}

// children lists the base names in folder dir, sorted.
func children(records []record, dir string) []string {
	prefix := dir + "/"
	if dir == "/" {
		prefix = "/"
	}
	var names []string
	i, _ := find(records, prefix)
	if dir == "/" {
		i++
	}
	for i < len(records) && strings.HasPrefix(records[i].path, prefix) {
		name := records[i].path[len(prefix):]
		if sub := strings.IndexByte(name, '/'); sub >= 0 {
			// Skip the whole subtree: '0' is the byte after '/'.
			next, _ := find(records[i:], prefix+name[:sub]+"0")
			i += next
			continue
		}
		names = append(names, name)
		i++
	}
	return names
}
