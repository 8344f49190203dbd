//go:build linux

package vfs

import (
	"encoding/binary"
	"fmt"
	"strings"
	"syscall"
	"testing"
)

// An op is one operation on a tree. The same sequence of them is done to trees
// of this package and to the host's file system, and what comes out is
// compared; the fuzz target does it to a tree alone.
type op struct {
	code     opCode
	at, to   int // open files at which paths start; -1 is the top
	path     string
	path2    string
	flags    int
	mode     uint32
	off, len int64
}

type opCode int

const (
	opOpen opCode = iota
	opClose
	opMkdir
	opRmdir
	opUnlink
	opSymlink
	opLink
	opRename
	opStat
	opRead
	opWrite
	opTruncate
	opAllocate
	opChmod
	opList
	opTmpfile
	numOps
)

func (o op) String() string {
	return fmt.Sprintf("%d at %d to %d %q %q flags %#x mode %#o off %d len %d",
		o.code, o.at, o.to, o.path, o.path2, o.flags, o.mode, o.off, o.len)
}

// numOpen is how many files are open at once.
const numOpen = 6

// source gives numbers from 0 to n-1.
type source interface{ IntN(n int) int }

// byteSource takes its numbers from fuzzed bytes, and is done when they are
// used up.
type byteSource struct{ b []byte }

func (s *byteSource) IntN(n int) int {
	v := 0
	for k := 1; k < n && len(s.b) > 0; k <<= 8 {
		v = v<<8 | int(s.b[0])
		s.b = s.b[1:]
	}
	return v % n
}

// genPath makes a path of a few short names. With at most one ".." to each,
// and at most 40 links followed, none leads higher than 45 levels.
func genPath(s source) string {
	if s.IntN(64) == 0 {
		return ""
	}
	var b strings.Builder
	for i, up := s.IntN(5)/2, false; i >= 0; i-- {
		switch n := s.IntN(24); {
		case n == 0:
			b.WriteString(".")
		case n == 1 && !up:
			b.WriteString("..")
			up = true
		case n == 2 && s.IntN(8) == 0:
			b.WriteString(strings.Repeat("long", 64))
		default:
			b.WriteByte("abcdefg"[n%7])
		}
		if i > 0 || s.IntN(12) == 0 {
			b.WriteString("/")
		}
	}
	return b.String()
}

func genOp(s source) op {
	o := op{code: opCode(s.IntN(int(numOps))), mode: 0o755}
	switch o.code {
	case opClose, opRead, opWrite, opTruncate, opAllocate:
		o.at = s.IntN(numOpen)
		o.off, o.len = int64(s.IntN(30000)), int64(s.IntN(12000))
		if s.IntN(20) == 0 {
			o.off += 1 << 33
		}
		return o
	}
	o.at, o.to = max(s.IntN(2*numOpen)-numOpen, -1), max(s.IntN(2*numOpen)-numOpen, -1)
	if s.IntN(12) == 0 {
		o.mode = []uint32{0o700, 0o644, 0o600, 0o500, 0o300, 0o200, 0o100, 0}[s.IntN(8)]
	}
	switch o.code {
	case opOpen:
		o.flags = s.IntN(4)
		for _, f := range []int{syscall.O_CREAT, syscall.O_CREAT, syscall.O_EXCL, syscall.O_TRUNC, syscall.O_NOFOLLOW, syscall.O_DIRECTORY, openPath} {
			if s.IntN(4) == 0 {
				o.flags |= f
			}
		}
		if o.flags&syscall.O_CREAT != 0 {
			// Both at once are refused by new kernels only, and O_PATH makes
			// no file.
			o.flags &^= syscall.O_DIRECTORY | openPath
		}
	case opRename:
		o.flags = []int{0, 0, 0, 1, 2, 2, 3, 8}[s.IntN(8)]
	case opTmpfile:
		o.flags = s.IntN(3)
	case opChmod:
		if s.IntN(4) == 0 {
			// Mends the top, without which nothing works.
			o.at, o.path, o.mode = -1, ".", 0o755
			return o
		}
	default:
		o.flags = s.IntN(2)
	}
	o.path, o.path2 = genPath(s), genPath(s)
	return o
}

// openFile is an open file of a tree.
type openFile struct {
	ino   *Inode
	fd    int // of the host
	flags int
}

func (f openFile) reads() bool {
	return f.flags&openPath == 0 && (f.flags&3 == syscall.O_RDONLY || f.flags&3 == syscall.O_RDWR)
}

func (f openFile) writes() bool {
	return f.flags&openPath == 0 && (f.flags&3 == syscall.O_WRONLY || f.flags&3 == syscall.O_RDWR)
}

// layerTree does operations to a tree of this package.
type layerTree struct {
	fs   *FS
	top  *Inode
	open [numOpen]openFile
}

func (l *layerTree) start(i int) *Inode {
	if i < 0 || l.open[i].ino == nil {
		return l.top
	}
	return l.open[i].ino
}

func (l *layerTree) held() []*Inode {
	var list []*Inode
	for _, f := range l.open {
		if f.ino != nil {
			list = append(list, f.ino)
		}
	}
	return list
}

func (l *layerTree) close(i int) {
	if f := l.open[i]; f.ino != nil {
		l.fs.Unref(f.ino)
	}
	l.open[i] = openFile{}
}

func (l *layerTree) closeAll() {
	for i := range l.open {
		l.close(i)
	}
}

// do does an operation and says what came of it.
func (l *layerTree) do(o op) string {
	fs, at := l.fs, l.start(o.at)
	switch o.code {
	case opOpen:
		return l.doOpen(o, o.flags)
	case opTmpfile:
		return l.doOpen(o, o.flags|openTmpfile|syscall.O_DIRECTORY)
	case opClose:
		l.close(o.at)
		return ""
	case opMkdir:
		return fs.Mkdir(at, o.path, o.mode).Error()
	case opRmdir:
		return fs.Rmdir(at, o.path).Error()
	case opUnlink:
		return fs.Unlink(at, o.path).Error()
	case opSymlink:
		return fs.Symlink(o.path2, at, o.path).Error()
	case opLink:
		ino, e := fs.Resolve(at, o.path, o.flags == 1)
		if e == 0 {
			e = fs.Link(ino, l.start(o.to), o.path2)
		}
		return e.Error()
	case opRename:
		return fs.Rename(at, o.path, l.start(o.to), o.path2, o.flags).Error()
	case opStat:
		ino, e := fs.Resolve(at, o.path, o.flags == 1)
		if e != 0 {
			return e.Error()
		}
		return l.describe(ino)
	case opChmod:
		ino, e := fs.Resolve(at, o.path, true)
		if e == 0 {
			e = fs.Chmod(ino, o.mode)
		}
		return e.Error()
	case opList:
		return l.list(at, o.path)
	}
	return l.onFile(o, l.open[o.at])
}

func (l *layerTree) doOpen(o op, flags int) string {
	ino, e := l.fs.Open(l.start(o.at), o.path, flags, o.mode)
	if e != 0 {
		return e.Error()
	}
	l.fs.Ref(ino)
	i := max(o.to, 0)
	l.close(i)
	l.open[i] = openFile{ino: ino, flags: flags}
	return l.describe(ino)
}

func (l *layerTree) list(at *Inode, path string) string {
	ino, e := l.fs.Open(at, path, syscall.O_RDONLY|syscall.O_DIRECTORY, 0)
	if e != 0 {
		return e.Error()
	}
	var names []string
	for _, d := range l.fs.ReadDir(ino) {
		names = append(names, fmt.Sprint(d.Name, " ", d.Kind))
	}
	return strings.Join(names, " ")
}

// onFile does an operation on an open file.
func (l *layerTree) onFile(o op, f openFile) string {
	if f.ino == nil || f.ino.Kind() != File {
		return "none"
	}
	switch {
	case o.code == opRead && f.reads():
		b := make([]byte, o.len)
		n, e := f.ino.ReadAt(b, o.off)
		return fmt.Sprintf("%v %x", e, b[:n])
	case o.code == opWrite && f.writes():
		n, e := l.fs.WriteAt(f.ino, pattern(o), o.off)
		return fmt.Sprintf("%v %d", e, n)
	case o.code == opTruncate && f.writes():
		return l.fs.Truncate(f.ino, o.off).Error()
	case o.code == opAllocate && f.writes():
		return l.fs.Allocate(f.ino, o.off%100000, o.len).Error()
	}
	return "not open for that"
}

// pattern is what an operation writes.
func pattern(o op) []byte {
	b := make([]byte, o.len+4)
	for i := int64(0); i < o.len; i += 4 {
		binary.LittleEndian.PutUint32(b[i:], uint32(o.off+i)|1)
	}
	return b[:o.len]
}

// describe tells all of stat that two trees must agree on, and which open
// files are the same one.
func (l *layerTree) describe(ino *Inode) string {
	s := ino.Stat()
	if ino.Kind() == Dir {
		s.Size = 0
	}
	same := ""
	for i, f := range l.open {
		if f.ino == ino {
			same += fmt.Sprint(" is ", i)
		}
	}
	return fmt.Sprintf("mode %o links %d size %d to %q%s", s.Mode, s.Nlink, s.Size, ino.ReadLink(), same)
}

// dump describes everything below a folder.
func (l *layerTree) dump(dir *Inode, prefix string, out *[]string) {
	for _, d := range l.fs.ReadDir(dir)[2:] {
		ino := dir.child(d.Name)
		line := prefix + d.Name + " " + l.describe(ino)
		if size := ino.Stat().Size; d.Kind == File && size < 1<<20 {
			b := make([]byte, size)
			_, _ = ino.ReadAt(b, 0)
			line += fmt.Sprintf(" %x", b)
		}
		*out = append(*out, line)
		if d.Kind == Dir {
			l.dump(ino, prefix+d.Name+"/", out)
		}
	}
}

// removeAll removes everything below a folder by way of the interface.
func (l *layerTree) removeAll(t testing.TB, dir *Inode) {
	t.Helper()
	ok(t, l.fs.Chmod(dir, 0o755))
	for _, d := range l.fs.ReadDir(dir)[2:] {
		if d.Kind != Dir {
			ok(t, l.fs.Unlink(dir, d.Name))
			continue
		}
		l.removeAll(t, dir.child(d.Name))
		ok(t, l.fs.Rmdir(dir, d.Name))
	}
}
