package image

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"slices"
	"sort"
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

// index is the table as it lies in the mapped file, and where each entry starts.
// Entries are decoded when they are looked up: as objects they would take half a
// megabyte in every process that has the image open, and a millisecond. The file
// may be cut off meanwhile, so whoever reads it does it within guarded.
type index struct {
	b       []byte
	starts  []uint32
	dataEnd int64
}

// decodeIndex checks the index of a file whose contents lie in
// [headerSize, dataEnd). Entries come sorted by path, so duplicates show.
func decodeIndex(b []byte, dataEnd int64) (*index, error) {
	c := &cursor{b: b}
	x := &index{b: b, starts: make([]uint32, 0, c.count(maxEntries, minEntry)), dataEnd: dataEnd}
	files := 0
	var last, known []byte // known is the parent that was looked for last
	for range cap(x.starts) {
		start := len(b) - len(c.b)
		e, err := decodeEntry(c, dataEnd)
		if err != nil {
			return nil, err
		}
		if bytes.Compare(last, e.path) >= 0 {
			return nil, damaged("index: %q is repeated or out of order", e.path)
		}
		parent := parentOf(e.path)
		switch {
		case len(x.starts) == 0:
			if len(e.path) != 1 || e.kind != Dir {
				return nil, damaged("index: it begins with %q", e.path)
			}
		case !bytes.Equal(parent, known):
			if i, ok := find(x, parent); !ok || x.entry(i).kind != Dir {
				return nil, damaged("index: %q has no parent folder", e.path)
			}
			known = parent
		}
		if e.kind == File && e.size > 0 {
			files++
		}
		last = e.path
		x.starts = append(x.starts, uint32(start))
	}
	if err := c.end(); err != nil {
		return nil, err
	}
	if err := x.checkOverlap(files); err != nil {
		return nil, err
	}
	return x, nil
}

// parentOf is the folder of a clean path.
func parentOf(p []byte) []byte { return p[:max(1, bytes.LastIndexByte(p, '/'))] }

// len is the number of entries.
func (x *index) len() int {
	if x == nil {
		return 0
	}
	return len(x.starts)
}

// entry is a record whose texts are pieces of the table.
type entry struct {
	path, target []byte
	kind         Kind
	executable   bool
	off, size    int64
	sum          []byte
}

// entry decodes the i-th entry. It was checked; should the file have been changed
// since, it is empty or another one that is sound.
func (x *index) entry(i int) entry {
	e, err := decodeEntry(&cursor{b: x.b[x.starts[i]:]}, x.dataEnd)
	if err != nil {
		return entry{}
	}
	return e
}

// record copies the i-th entry.
func (x *index) record(i int) record {
	e := x.entry(i)
	return record{
		path: string(e.path), target: string(e.target), kind: e.kind, executable: e.executable,
		off: e.off, size: e.size, sum: string(e.sum),
	}
}

// path is the path of the i-th entry, a piece of the table.
func (x *index) path(i int) []byte {
	c := &cursor{b: x.b[x.starts[i]:]}
	c.take(1)
	return c.text()
}

func decodeEntry(c *cursor, dataEnd int64) (e entry, err error) {
	kind := c.take(1)
	if c.err != nil {
		return e, c.err
	}
	e.kind, e.executable = Kind(kind[0]&^executableBit), kind[0]&executableBit != 0
	e.path = c.text()
	switch e.kind {
	case File:
		off, size := c.number(), c.number()
		e.sum = c.take(sha256.Size)
		if off%fileAlign != 0 || off < headerSize || off > uint64(dataEnd) || size > uint64(dataEnd)-off {
			c.fail("content outside the file")
		}
		e.off, e.size = int64(off), int64(size)
	case Dir:
	case Symlink:
		e.target = c.text()
		e.size = int64(len(e.target))
		if len(e.target) == 0 || bytes.IndexByte(e.target, 0) >= 0 {
			c.fail("bad link target")
		}
	default:
		c.fail("unknown kind of entry")
	}
	if e.executable && e.kind != File {
		c.fail("an executable that is no file")
	}
	if c.err == nil && !cleanPath(e.path) {
		return e, damaged("index: bad path %q", e.path)
	}
	return e, c.err
}

// checkOverlap checks the contents of so many files that have one.
func (x *index) checkOverlap(files int) error {
	type span struct{ lo, hi int64 }
	spans := make([]span, 0, files)
	for i := range x.starts {
		if e := x.entry(i); e.kind == File && e.size > 0 {
			spans = append(spans, span{e.off, e.off + e.size})
		}
	}
	slices.SortFunc(spans, func(a, b span) int { return cmp.Compare(a.lo, b.lo) })
	for i := 1; i < len(spans); i++ {
		if spans[i].lo < spans[i-1].hi {
			return damaged("index: contents overlap")
		}
	}
	return nil
}

// find returns the position of a path, or that of the first one after it.
func find[T string | []byte](x *index, p T) (int, bool) {
	i := sort.Search(x.len(), func(i int) bool { return string(x.path(i)) >= string(p) })
	return i, i < x.len() && string(x.path(i)) == string(p)
}

// children lists the base names in folder dir, sorted.
func children(x *index, dir string) []string {
	prefix := dir + "/"
	if dir == "/" {
		prefix = "/"
	}
	var names []string
	i, _ := find(x, prefix)
	if dir == "/" {
		i++
	}
	for i < x.len() && bytes.HasPrefix(x.path(i), []byte(prefix)) {
		name := x.path(i)[len(prefix):]
		if sub := bytes.IndexByte(name, '/'); sub >= 0 {
			// Skip the whole subtree: '0' is the byte after '/'.
			next, _ := find(x, prefix+string(name[:sub])+"0")
			i = max(next, i+1) // whatever the file has become
			continue
		}
		names = append(names, string(name))
		i++
	}
	return names
}
