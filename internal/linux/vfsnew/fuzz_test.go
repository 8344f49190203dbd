package vfs

import (
	"encoding/binary"
	"slices"
	"testing"
)

// script turns fuzzed bytes into choices; it is all zeros once they are used up.
type script []byte

func (s *script) next() int {
	if len(*s) == 0 {
		return 0
	}
	b := (*s)[0]
	*s = (*s)[1:]
	return int(b)
}

// number gives small and huge values, negative ones too.
func (s *script) number() int64 {
	b := []byte{byte(s.next()), byte(s.next()), 0, 0, 0, 0, 0, 0}
	if s.next()%8 == 0 {
		for i := 2; i < 8; i++ {
			b[i] = byte(s.next())
		}
	}
	return int64(binary.LittleEndian.Uint64(b))
}

var fuzzPaths = []string{
	"/tmp/a", "/tmp/b", "a", "b", "a/b", "a/a", "../tmp/a/b", "/work/a", "/work/b/", ".", "..", "a/..", "/", "",
	"/usr/lib/python3.13/os.py", "/lib", "/dev/null", "/usr/x", "/loop",
}

func (s *script) path() string { return fuzzPaths[s.next()%len(fuzzPaths)] }

// FuzzOperations does any sequence of operations on a small tree. None panics,
// and the accounts agree with a recount.
func FuzzOperations(f *testing.F) {
	f.Add([]byte{0, 0, 0, 8, 0, 66, 0, 9, 0, 0, 4, 1, 1, 10, 0, 3, 0, 0})
	f.Add([]byte{0, 0, 0, 12, 0, 0, 0, 1, 0, 0, 13, 0, 1, 0, 5, 0, 0, 1, 2})
	f.Add([]byte{8, 9, 2, 65, 0, 9, 0, 255, 255, 1, 200, 11, 0, 0, 1, 1, 7, 0, 0, 0})
	base := testBase()
	f.Fuzz(func(t *testing.T, data []byte) {
		fs := New(base, Limits{Bytes: 20 * chunkSize, Inodes: 12}, tick())
		m := mutator{fs: fs, script: data}
		for i := 0; len(m.script) > 0 && i < 1000; i++ {
			m.step()
			checkAccounts(t, fs, m.open)
		}
		for len(m.open) > 0 {
			m.close(0)
		}
		checkAccounts(t, fs, nil)
		saved := export(t, fs)
		if _, err := Import(base, fs.limits, tick(), saved); err != nil {
			t.Fatal(err)
		}
	})
}

// mutator does the operations of a script.
type mutator struct {
	fs *FS
	script
	open []*Inode
}

// dir picks where a relative path begins.
func (m *mutator) dir() *Inode {
	dirs := []*Inode{&m.fs.root, &m.fs.tmp, &m.fs.work}
	for _, ino := range m.open {
		if ino.kind == Dir {
			dirs = append(dirs, ino)
		}
	}
	return dirs[m.next()%len(dirs)]
}

func (m *mutator) close(i int) {
	m.fs.Unref(m.open[i])
	m.open = slices.Delete(m.open, i, i+1)
}

func (m *mutator) step() {
	fs := m.fs
	op, dir, path := m.next(), m.dir(), m.path()
	switch op % 9 {
	case 0:
		_ = fs.Mkdir(dir, path, 0o700|uint32(m.next()))
	case 1:
		_ = fs.Rmdir(dir, path)
	case 2:
		_ = fs.Unlink(dir, path)
	case 3:
		_ = fs.Symlink(m.path(), dir, path)
	case 4:
		if ino, e := fs.Resolve(dir, path, m.next()%2 == 0); e == 0 {
			_ = fs.Link(ino, m.dir(), m.path())
		}
	case 5, 6:
		_ = fs.Rename(dir, path, m.dir(), m.path(), m.next()%4)
	case 7:
		flags := m.next() | m.next()<<8 | m.next()<<16
		if ino, e := fs.Open(dir, path, flags, 0o600|uint32(m.next())); e == 0 {
			fs.Ref(ino)
			m.open = append(m.open, ino)
		}
	default:
		m.use()
	}
}

// use does something to what is open.
func (m *mutator) use() {
	if len(m.open) == 0 {
		return
	}
	i := m.next() % len(m.open)
	ino, fs := m.open[i], m.fs
	switch m.next() % 9 {
	case 0, 1:
		_, _ = fs.WriteAt(ino, make([]byte, 100*m.next()), m.number())
	case 2:
		_, _ = ino.ReadAt(make([]byte, 100*m.next()), m.number())
	case 3:
		_ = fs.Truncate(ino, m.number())
	case 4:
		_ = fs.Allocate(ino, m.number(), m.number())
	case 5:
		_ = fs.Chmod(ino, uint32(m.next()|m.next()<<8))
	case 6:
		_, _ = fs.Path(ino)
		_ = fs.ReadDir(ino)
		_ = ino.Stat()
	case 7:
		_ = fs.Link(ino, m.dir(), m.path())
	default:
		m.close(i)
	}
}
