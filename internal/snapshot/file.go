//go:build linux

package snapshot

import (
	"bytes"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"sort"
	"strings"
	"sync"
	"time"

	"github.com/fxamacker/cbor/v2"
	"golang.org/x/sys/unix"

	"github.com/maf-sandbox/maf-sandbox-go/internal/linux"
	"github.com/maf-sandbox/maf-sandbox-go/internal/platform"
	"github.com/maf-sandbox/maf-sandbox-go/internal/private"
)

const (
	// formatVersion changes with the meaning of the files.
	formatVersion = 3
	memorySuffix  = ".mem"
	recordSuffix  = ".state"
	// maxRecord bounds the record file; a template of 4,096 objects needs
	// less than 4 MiB.
	maxRecord = 16 << 20
	// maxMemory bounds the memory file's length (mostly holes).
	maxMemory = 64 << 30
	// extentSize is the most that one checksum covers.
	extentSize = 1 << 20
	// kept is how many templates a folder holds; older ones are removed. Every
	// build of the program and every image has its own.
	kept = 8
)

// castagnoli has hardware support on x86-64. It detects damage; that nobody
// else wrote the file is what the folder's and the file's mode are for.
// The table is made when it is needed: not every process of the program reads a
// template.
var castagnoli = sync.OnceValue(func() *crc32.Table { return crc32.MakeTable(crc32.Castagnoli) })

// extent is a piece of the memory file that is not zero.
type extent struct {
	Off, Len uint64
	CRC      uint32
}

// decoding reads records: in a quarter of the time and memory that JSON takes,
// which every worker has to spend before its first answer.
var decoding = func() cbor.DecMode {
	m, err := cbor.DecOptions{
		DupMapKey: cbor.DupMapKeyEnforcedAPF, IndefLength: cbor.IndefLengthForbidden, TagsMd: cbor.TagsForbidden,
		ExtraReturnErrors: cbor.ExtraDecErrorUnknownField,
	}.DecMode()
	if err != nil {
		panic(err) // constant options
	}
	return m
}()

// record is the file beside the memory file.
type record struct {
	Format  int
	Key     string
	Layout  *linux.Layout
	State   *linux.State
	Context platform.Context
	Ranges  []platform.Range
	Hot     []platform.Range
	Extents []extent
}

// seal puts a record's checksum before it: a line of eight hexadecimal digits.
func seal(b []byte) []byte {
	return append(fmt.Appendf(nil, "%08x\n", crc32.Checksum(b, castagnoli())), b...)
}

// unseal verifies and removes what seal put there.
func unseal(b []byte) ([]byte, error) {
	sum, body, _ := bytes.Cut(b, []byte("\n"))
	if string(sum) != fmt.Sprintf("%08x", crc32.Checksum(body, castagnoli())) {
		return nil, fmt.Errorf("%w: the record's checksum", ErrDamaged)
	}
	return body, nil
}

// Write keeps the template in a folder under a key, which is used as a file
// name, and removes the oldest templates there beyond those that are kept.
func (t *Template) Write(dir, key string) error {
	if err := private.Folder(dir); err != nil {
		return err
	}
	f, err := private.Create(dir)
	if err != nil {
		return err
	}
	r := record{Format: formatVersion, Key: key, Layout: t.Layout, State: t.State, Context: t.Context, Ranges: t.Backing.Ranges, Hot: t.Backing.Hot()}
	if r.Extents, err = t.copyTo(f); err != nil {
		return errors.Join(err, f.Close(), os.Remove(f.Name()))
	}
	// Two writers at once may leave one's memory beside the other's record:
	// the checksums tell, and the template is made again.
	if err := private.Publish(f, filepath.Join(dir, key+memorySuffix)); err != nil {
		return err
	}
	b, err := cbor.Marshal(&r)
	if err != nil {
		return err
	}
	if f, err = private.Create(dir); err != nil {
		return err
	}
	if _, err = f.Write(seal(b)); err != nil {
		return errors.Join(err, f.Close(), os.Remove(f.Name()))
	}
	if err := private.Publish(f, filepath.Join(dir, key+recordSuffix)); err != nil {
		return err
	}
	prune(dir, key)
	private.Sweep(dir)
	return nil
}

// copyTo writes the backing's non-zero pages at their offsets.
func (t *Template) copyTo(f *os.File) ([]extent, error) {
	end := t.Backing.Ranges[len(t.Backing.Ranges)-1].Hi
	if err := f.Truncate(int64(end)); err != nil {
		return nil, err
	}
	var out []extent
	for _, r := range t.Backing.Ranges {
		for at := r.Lo; at < r.Hi; {
			lo, hi, err := dataAt(t.Backing.FD, at, r.Hi)
			if err != nil {
				return nil, err
			}
			for at = lo; at < hi; {
				n := min(hi-at, extentSize)
				_, b := t.Backing.Split(at, at+n)
				if b = trim(b); len(b) > 0 {
					if _, err := f.WriteAt(b, int64(at)); err != nil {
						return nil, err
					}
					out = append(out, extent{at, uint64(len(b)), crc32.Checksum(b, castagnoli())})
				}
				at += n
			}
			if lo == hi {
				break
			}
		}
	}
	return out, nil
}

// trim cuts zero pages off the end.
func trim(b []byte) []byte {
	for n := len(b); n > 0; n-- {
		if b[n-1] != 0 {
			return b[:min((n+platform.PageSize-1)&^(platform.PageSize-1), len(b))]
		}
	}
	return nil
}

// dataAt finds the next stretch of data in [at,end); lo == hi means none.
func dataAt(fd int, at, end uint64) (lo, hi uint64, err error) {
	l, err := unix.Seek(fd, int64(at), unix.SEEK_DATA)
	if errors.Is(err, unix.ENXIO) || err == nil && uint64(l) >= end {
		return end, end, nil
	}
	if err != nil {
		return 0, 0, fmt.Errorf("find data: %w", err)
	}
	h, err := unix.Seek(fd, l, unix.SEEK_HOLE)
	if err != nil {
		return 0, 0, fmt.Errorf("find holes: %w", err)
	}
	return uint64(l), min(uint64(h), end), nil
}

// Read opens a template that was kept under a key. It returns ErrAbsent when
// there is none and ErrDamaged when it cannot be used. Memory whose Stamp is
// verified, by whoever calls or by an earlier process since the machine was
// started, is not read again to be checked: that takes several milliseconds.
func Read(dir, key, verified string) (*Template, error) {
	if err := private.Folder(dir); err != nil {
		return nil, err
	}
	f, err := private.Open(filepath.Join(dir, key+recordSuffix))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, ErrAbsent
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrDamaged, err)
	}
	r, err := readRecord(f)
	_ = f.Close()
	if err != nil {
		return nil, err
	}
	if r.Key != key {
		return nil, fmt.Errorf("%w: it is the template of another image or machine", ErrDamaged)
	}
	if verified == "" {
		verified = marked(dir, key)
	}
	t, changed, err := r.open(filepath.Join(dir, key+memorySuffix), verified)
	if err == nil && t.Stamp != verified && time.Since(changed) > settled {
		_ = mark(dir, key, t.Stamp) // only a saving
	}
	return t, err
}

// readRecord reads a whole record at once, and one byte more than is allowed of one
// that is too long. The bytes are outside the Go heap, which an idle worker never
// collects; nothing of what is decoded points to them.
func readRecord(f *os.File) (*record, error) {
	st, err := f.Stat()
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrDamaged, err)
	}
	b, err := unix.Mmap(-1, 0, int(min(max(st.Size(), 1), maxRecord+1)), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		return nil, fmt.Errorf("room for a record: %w", err)
	}
	defer func() { _ = unix.Munmap(b) }()
	if _, err := io.ReadFull(f, b); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrDamaged, err)
	}
	body, err := unseal(b)
	if err != nil {
		return nil, err
	}
	return decode(body)
}

// decode validates a record.
func decode(b []byte) (*record, error) {
	bad := func(what string) error { return fmt.Errorf("%w: %s", ErrDamaged, what) }
	if len(b) > maxRecord {
		return nil, bad("record too long")
	}
	r := new(record)
	if err := decoding.Unmarshal(b, r); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrDamaged, err)
	}
	if r.Format != formatVersion || r.Layout == nil || r.State == nil || len(r.Ranges) == 0 {
		return nil, bad("record of another format")
	}
	if err := r.Layout.Check(); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrDamaged, err)
	}
	if err := r.State.Check(r.Layout); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrDamaged, err)
	}
	if r.Ranges[0].Lo != 0 {
		return nil, bad("ranges")
	}
	end := uint64(0)
	for _, x := range r.Ranges {
		if x.Lo < end || x.Hi <= x.Lo || x.Hi > maxMemory {
			return nil, bad("ranges")
		}
		end = x.Hi
	}
	if len(r.Hot) > platform.MaxHot {
		return nil, bad("hot pages")
	}
	at := uint64(0)
	for _, e := range r.Extents {
		if e.Off < at || e.Len == 0 || e.Len > extentSize || e.Off > end-e.Len {
			return nil, bad("extents")
		}
		at = e.Off + e.Len
	}
	return r, nil
}

// open maps the memory file and verifies it, unless it is verified. It tells when
// the file was last changed, too.
func (r *record) open(name, verified string) (t *Template, changed time.Time, err error) {
	f, err := private.Open(name)
	if err != nil {
		return nil, changed, fmt.Errorf("%w: %w", ErrDamaged, err)
	}
	fd, err := unix.FcntlInt(f.Fd(), unix.F_DUPFD_CLOEXEC, 3)
	_ = f.Close()
	if err != nil {
		return nil, changed, fmt.Errorf("%w: %w", ErrDamaged, err)
	}
	mark, changed, err := stamp(fd)
	if err != nil {
		_ = unix.Close(fd)
		return nil, changed, fmt.Errorf("%w: %w", ErrDamaged, err)
	}
	b, err := platform.NewBacking(fd, r.Ranges)
	if err != nil {
		return nil, changed, fmt.Errorf("%w: %w", ErrDamaged, err)
	}
	b.SetHot(r.Hot)
	check := r.Extents
	if mark == verified {
		check = nil
	}
	for _, e := range check {
		end, data := b.Split(e.Off, e.Off+e.Len)
		if end != e.Off+e.Len || crc32.Checksum(data, castagnoli()) != e.CRC {
			_ = b.Close()
			return nil, changed, fmt.Errorf("%w: memory at %#x", ErrDamaged, e.Off)
		}
	}
	return &Template{Layout: r.Layout, State: r.State, Context: r.Context, Backing: b, Spans: r.Layout.Spans(), Stamp: mark}, changed, nil
}

// prune removes the oldest templates of a folder beyond those kept. A process
// that uses one has it mapped and is not disturbed.
func prune(dir, keep string) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return
	}
	type old struct {
		key string
		at  int64
	}
	var found []old
	for _, e := range entries {
		key, ok := strings.CutSuffix(e.Name(), recordSuffix)
		info, err := e.Info()
		if !ok || err != nil || key == keep {
			continue
		}
		found = append(found, old{key, info.ModTime().UnixNano()})
	}
	sort.Slice(found, func(i, j int) bool { return found[i].at > found[j].at })
	for i, o := range found {
		if i >= kept-1 {
			_ = os.Remove(filepath.Join(dir, o.key+recordSuffix))
			_ = os.Remove(filepath.Join(dir, o.key+memorySuffix))
			_ = os.Remove(filepath.Join(dir, o.key+markSuffix))
		}
	}
}
