package image

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
)

// The file, all numbers little endian:
//
//	offset  0  8 bytes   magic
//	        8  uint32    format version
//	       12  uint32    zero
//	       16  uint64    offset of the manifest
//	       24  uint64    size of the manifest
//	       32  32 bytes  SHA-256 of the manifest: the image's ID
//	       64            file contents, ELF files aligned to a page, others
//	                     to 64 bytes
//	                     object table, index, manifest; the file ends here
//
// The tables come last so that contents can be written as they are read.
const (
	magic         = "\x89MAFIMG\n"
	formatVersion = 1
	headerSize    = 64
	fileAlign     = 64
	objectAlign   = 4096
)

// Bounds on what an image may hold, checked before anything is allocated.
const (
	maxManifest = 4 << 20
	maxTable    = 256 << 20
	maxEntries  = 1 << 20
	maxObjects  = 1 << 16
	maxLoads    = 64
	maxPath     = 4096
	// minEntry and minObject are the sizes of the smallest encodings; they
	// bound a count by the bytes that are there.
	minEntry  = 3
	minObject = 7
)

type header struct {
	manifestOff, manifestSize int64
	digest                    [sha256.Size]byte
}

func (h header) encode() []byte {
	b := append(make([]byte, 0, headerSize), magic...)
	b = binary.LittleEndian.AppendUint32(b, formatVersion)
	b = binary.LittleEndian.AppendUint32(b, 0)
	b = binary.LittleEndian.AppendUint64(b, uint64(h.manifestOff))
	b = binary.LittleEndian.AppendUint64(b, uint64(h.manifestSize))
	return append(b, h.digest[:]...)
}

func decodeHeader(b []byte, fileSize int64) (header, error) {
	if len(b) < headerSize || !bytes.HasPrefix(b, []byte(magic)) {
		return header{}, damaged("not an image file")
	}
	if v := binary.LittleEndian.Uint32(b[8:]); v != formatVersion {
		return header{}, damaged("format %d, and this program reads format %d", v, formatVersion)
	}
	off, size := binary.LittleEndian.Uint64(b[16:]), binary.LittleEndian.Uint64(b[24:])
	if size > maxManifest || off < headerSize || off > uint64(fileSize) || uint64(fileSize)-off != size {
		return header{}, damaged("the file is cut off or too long")
	}
	h := header{manifestOff: int64(off), manifestSize: int64(size)}
	copy(h.digest[:], b[32:])
	return h, nil
}

// section returns the bytes of a table after checking place and digest.
func section(file []byte, s Section, what string) ([]byte, error) {
	size := int64(len(file))
	if s.Size < 0 || s.Size > maxTable || s.Offset < headerSize || s.Offset > size || s.Size > size-s.Offset {
		return nil, damaged("the %s lies outside the file", what)
	}
	b := file[s.Offset : s.Offset+s.Size]
	if sum := sha256.Sum256(b); hex.EncodeToString(sum[:]) != s.SHA256 {
		return nil, damaged("the %s does not match its digest", what)
	}
	return b, nil
}

// cursor reads the tables. After the first error every read gives zero. What it
// gives are pieces of the table.
type cursor struct {
	b   []byte
	err error
}

func (c *cursor) fail(why string) {
	if c.err == nil {
		c.err = damaged("table: %s", why)
	}
	c.b = nil
}

func (c *cursor) number() uint64 {
	var v uint64
	for i := 0; i < len(c.b) && i < binary.MaxVarintLen64; i++ {
		x := c.b[i]
		v |= uint64(x&0x7f) << (7 * i)
		if x < 0x80 {
			c.b = c.b[i+1:]
			return v
		}
	}
	c.fail("bad number")
	return 0
}

func (c *cursor) take(n uint64) []byte {
	if n > uint64(len(c.b)) {
		c.fail("cut off")
		return nil
	}
	s := c.b[:n]
	c.b = c.b[n:]
	return s
}

func (c *cursor) text() []byte {
	n := c.number()
	if n > maxPath {
		c.fail("text too long")
		return nil
	}
	return c.take(n)
}

// count reads a number of items of at least size bytes each.
func (c *cursor) count(limit, size uint64) int {
	n := c.number()
	if n > limit || n > uint64(len(c.b))/size {
		c.fail("too many items")
		return 0
	}
	return int(n)
}

func (c *cursor) end() error {
	if c.err == nil && len(c.b) > 0 {
		c.fail("trailing bytes")
	}
	return c.err
}

func appendText(b []byte, s string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(s))), s...)
}

func encodeObjects(objects []Object) []byte {
	b := binary.AppendUvarint(nil, uint64(len(objects)))
	for _, o := range objects {
		b = appendText(b, o.Path)
		position := uint64(0)
		if o.Position {
			position = 1
		}
		for _, v := range []uint64{position, o.Low, o.High, o.Align, uint64(len(o.Loads))} {
			b = binary.AppendUvarint(b, v)
		}
		for _, l := range o.Loads {
			for _, v := range []uint64{l.Off, l.Filesz, l.Vaddr, l.Memsz, uint64(l.Flags)} {
				b = binary.AppendUvarint(b, v)
			}
		}
	}
	return b
}

func decodeObjects(b []byte) ([]Object, error) {
	c := &cursor{b: b}
	objects := make([]Object, c.count(maxObjects, minObject))
	for i := range objects {
		o := &objects[i]
		o.Path = string(c.text())
		o.Position = c.number() == 1
		o.Low, o.High, o.Align = c.number(), c.number(), c.number()
		o.Loads = make([]Load, c.count(maxLoads, 5))
		for j := range o.Loads {
			l := &o.Loads[j]
			l.Off, l.Filesz, l.Vaddr, l.Memsz = c.number(), c.number(), c.number(), c.number()
			l.Flags = uint32(c.number())
		}
		if c.err != nil {
			return nil, c.err
		}
		if !cleanPath(o.Path) || i > 0 && objects[i-1].Path >= o.Path {
			return nil, damaged("object table: bad or repeated path %q", o.Path)
		}
		if err := o.check(); err != nil {
			return nil, damaged("object table: %v", err)
		}
	}
	return objects, c.end()
}

// check validates what no loadable ELF file can lack.
func (o *Object) check() error {
	if len(o.Loads) == 0 || o.Align == 0 || o.Align&(o.Align-1) != 0 {
		return fmt.Errorf("%s: no segments or a bad alignment", o.Path)
	}
	end := uint64(0)
	for _, l := range o.Loads {
		if l.Filesz > l.Memsz || l.Vaddr < end || l.Vaddr+l.Memsz < l.Vaddr || l.Off+l.Filesz < l.Off {
			return fmt.Errorf("%s: overlapping or overflowing segments", o.Path)
		}
		end = l.Vaddr + l.Memsz
	}
	if o.Low != o.Loads[0].Vaddr || o.High != end {
		return fmt.Errorf("%s: segments outside the span", o.Path)
	}
	return nil
}
