//go:build linux

package vfs

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"strings"
	"syscall"
	"testing"
)

// An op is one operation on a tree. The same sequence of them is done to trees
// of this package and to the real file system, and what comes out is compared.
type op struct {
	code     opCode
	at, to   int // handles at which paths start; -1 is the top
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

// numHandles is how many files are open at once.
const numHandles = 6

// source gives numbers from 0 to n-1.
type source interface{ intn(n int) int }

type randSource struct{ *rand.Rand }

func (r randSource) intn(n int) int { return r.IntN(n) }

// byteSource takes its numbers from fuzzed bytes, and is done when they are
// used up.
type byteSource struct{ b []byte }

func (s *byteSource) intn(n int) int {
	if len(s.b) == 0 {
		return 0
	}
	v := int(s.b[0])
	s.b = s.b[1:]
	if n > 256 && len(s.b) > 0 {
		v = v<<8 | int(s.b[0])
		s.b = s.b[1:]
	}
	return v % n
}

// genPath makes a path of a few short names. With at most one ".." to each,
// and at most 40 links followed, no path leads higher than 45 levels.
func genPath(s source) string {
	var b strings.Builder
	for i, up := s.intn(5)/2, false; i >= 0; i-- {
		switch n := s.intn(24); {
		case n == 0:
			b.WriteString(".")
		case n == 1 && !up:
			b.WriteString("..")
			up = true
		case n == 2 && s.intn(8) == 0:
			b.WriteString(strings.Repeat("long", 64))
		default:
			b.WriteByte("abcdefg"[n%7])
		}
		if i > 0 || s.intn(12) == 0 {
			b.WriteString("/")
		}
	}
	if s.intn(64) == 0 {
		return ""
	}
	return b.String()
}

func genOp(s source) op {
	o := op{code: opCode(s.intn(int(numOps))), at: s.intn(numHandles*2) - numHandles, to: s.intn(numHandles*2) - numHandles}
	o.at, o.to = max(o.at, -1), max(o.to, -1)
	switch o.code {
	case opClose, opRead, opWrite, opTruncate, opAllocate:
		o.at = s.intn(numHandles)
		o.off, o.len = int64(s.intn(30000)), int64(s.intn(12000))
		if s.intn(20) == 0 {
			o.off += 1 << 33
		}
		return o
	case opOpen:
		o.flags = s.intn(4)
		for _, f := range []int{syscall.O_CREAT, syscall.O_CREAT, syscall.O_EXCL, syscall.O_TRUNC, syscall.O_NOFOLLOW, syscall.O_DIRECTORY, openPath} {
			if s.intn(4) == 0 {
				o.flags |= f
			}
		}
		if o.flags&syscall.O_CREAT != 0 {
			// Both at once are refused by new kernels only, and O_PATH makes
			// no file.
			o.flags &^= syscall.O_DIRECTORY | openPath
		}
	case opRename:
		o.flags = []int{0, 0, 0, 1, 2, 2, 3, 8}[s.intn(8)]
	case opTmpfile:
		o.flags = s.intn(3)
	default:
		o.flags = s.intn(2)
	}
	o.mode = 0o755
	if s.intn(12) == 0 {
		o.mode = []uint32{0o700, 0o644, 0o600, 0o500, 0o300, 0o200, 0o100, 0}[s.intn(8)]
	}
	if o.code == opChmod && s.intn(4) == 0 {
		// Mends the top, without which nothing works.
		o.at, o.path, o.mode = -1, ".", 0o755
		return o
	}
	o.path, o.path2 = genPath(s), genPath(s)
	return o
}

// handle is an open file of a tree.
type handle struct {
	ino   *Inode
	flags int
}

func (h handle) reads() bool {
	return h.flags&openPath == 0 && (h.flags&3 == syscall.O_RDONLY || h.flags&3 == syscall.O_RDWR)
}

func (h handle) writes() bool {
	return h.flags&openPath == 0 && (h.flags&3 == syscall.O_WRONLY || h.flags&3 == syscall.O_RDWR)
}

// layerTree does operations to a tree of this package.
type layerTree struct {
	fs   *FS
	top  *Inode
	open [numHandles]handle
}

func (l *layerTree) start(i int) *Inode {
	if i < 0 || l.open[i].ino == nil {
		return l.top
	}
	return l.open[i].ino
}

func (l *layerTree) held() []*Inode {
	var list []*Inode
	for _, h := range l.open {
		if h.ino != nil {
			list = append(list, h.ino)
		}
	}
	return list
}

// keep makes an open file the one with number i.
func (l *layerTree) keep(i int, h handle) {
	l.fs.Ref(h.ino)
	l.fs.Unref(l.open[i].ino)
	l.open[i] = h
}

// do does an operation and says what came of it.
func (l *layerTree) do(o op) string {
	fs, at, to := l.fs, l.start(o.at), l.start(o.to)
	switch o.code {
	case opOpen, opTmpfile:
		if o.code == opTmpfile {
			o.flags |= openTmpfile | syscall.O_DIRECTORY
		}
		ino, e := fs.Open(at, o.path, o.flags, o.mode)
		if e != 0 {
			return e.Error()
		}
		l.keep(max(o.to, 0), handle{ino, o.flags})
		return l.describe(ino)
	case opClose:
		fs.Unref(l.open[o.at].ino)
		l.open[o.at] = handle{}
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
			e = fs.Link(ino, to, o.path2)
		}
		return e.Error()
	case opRename:
		return fs.Rename(at, o.path, to, o.path2, o.flags).Error()
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
		ino, e := fs.Open(at, o.path, syscall.O_RDONLY|syscall.O_DIRECTORY, 0)
		if e != 0 {
			return e.Error()
		}
		list := fs.ReadDir(ino)
		if list == nil {
			return syscall.ENOENT.Error()
		}
		var names []string
		for _, d := range list {
			names = append(names, d.Name, fmt.Sprint(d.Kind))
		}
		return strings.Join(names, " ")
	}
	return l.onFile(o, l.open[o.at])
}

// onFile does an operation on an open file.
func (l *layerTree) onFile(o op, h handle) string {
	if h.ino == nil || h.ino.kind != File {
		return "none"
	}
	switch {
	case o.code == opRead && h.reads():
		b := make([]byte, o.len)
		n, e := h.ino.ReadAt(b, o.off)
		return fmt.Sprintf("%v %x", e, b[:n])
	case o.code == opWrite && h.writes():
		n, e := l.fs.WriteAt(h.ino, pattern(o), o.off)
		return fmt.Sprintf("%v %d", e, n)
	case o.code == opTruncate && h.writes():
		return l.fs.Truncate(h.ino, o.off).Error()
	case o.code == opAllocate && h.writes():
		return l.fs.Allocate(h.ino, o.off%100000, o.len).Error()
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
	if ino.kind == Dir {
		s.Size = 0
	}
	same := ""
	for i, h := range l.open {
		if h.ino == ino {
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
		if ino.kind == File && ino.size < 1<<20 {
			b := make([]byte, ino.size)
			_, _ = ino.ReadAt(b, 0)
			line += fmt.Sprintf(" %x", b)
		}
		*out = append(*out, line)
		if ino.kind == Dir {
			l.dump(ino, prefix+d.Name+"/", out)
		}
	}
}

// closeAll closes all files.
func (l *layerTree) closeAll() {
	for i := range l.open {
		l.fs.Unref(l.open[i].ino)
		l.open[i] = handle{}
	}
}

// removeAll removes everything below a folder by way of the interface.
func (l *layerTree) removeAll(t testing.TB, dir *Inode) {
	t.Helper()
	must(t, l.fs.Chmod(dir, 0o755))
	for _, d := range l.fs.ReadDir(dir)[2:] {
		if d.Kind != Dir {
			must(t, l.fs.Unlink(dir, d.Name))
			continue
		}
		l.removeAll(t, dir.child(d.Name))
		must(t, l.fs.Rmdir(dir, d.Name))
	}
}
