//go:build linux

package vfs

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
)

// levels is how deep below the top operations start: no path of genPath leads
// higher.
const levels = 45

// realTree does operations to the real file system.
type realTree struct {
	top   int
	open  [numHandles]int
	flags [numHandles]handle
}

func (r *realTree) start(i int) int {
	if i < 0 || r.open[i] < 0 {
		return r.top
	}
	return r.open[i]
}

func errText(err error) string {
	var e syscall.Errno
	errors.As(err, &e)
	return e.Error()
}

func (r *realTree) do(o op) string {
	at, to := r.start(o.at), r.start(o.to)
	switch o.code {
	case opOpen, opTmpfile:
		if o.code == opTmpfile {
			o.flags |= unix.O_TMPFILE
		}
		fd, err := unix.Openat(at, o.path, o.flags|unix.O_CLOEXEC|unix.O_NONBLOCK, o.mode)
		if err != nil {
			return errText(err)
		}
		i := max(o.to, 0)
		if r.open[i] >= 0 {
			_ = unix.Close(r.open[i])
		}
		r.open[i], r.flags[i] = fd, handle{flags: o.flags}
		return r.describe(fd, "", unix.AT_EMPTY_PATH)
	case opClose:
		if r.open[o.at] >= 0 {
			_ = unix.Close(r.open[o.at])
		}
		r.open[o.at] = -1
		return ""
	case opMkdir:
		return errText(unix.Mkdirat(at, o.path, o.mode))
	case opRmdir:
		return errText(unix.Unlinkat(at, o.path, unix.AT_REMOVEDIR))
	case opUnlink:
		return errText(unix.Unlinkat(at, o.path, 0))
	case opSymlink:
		return errText(unix.Symlinkat(o.path2, at, o.path))
	case opLink:
		return errText(unix.Linkat(at, o.path, to, o.path2, o.flags*unix.AT_SYMLINK_FOLLOW))
	case opRename:
		return errText(unix.Renameat2(at, o.path, to, o.path2, uint(o.flags)))
	case opStat:
		return r.describe(at, o.path, (1-o.flags)*unix.AT_SYMLINK_NOFOLLOW)
	case opChmod:
		return errText(unix.Fchmodat(at, o.path, o.mode, 0))
	case opList:
		return r.list(at, o.path)
	}
	return r.onFile(o)
}

func (r *realTree) onFile(o op) string {
	fd, h := r.open[o.at], r.flags[o.at]
	var st unix.Stat_t
	if fd < 0 || unix.Fstat(fd, &st) != nil || st.Mode&unix.S_IFMT != unix.S_IFREG {
		return "none"
	}
	switch {
	case o.code == opRead && h.reads():
		b := make([]byte, o.len)
		n, err := unix.Pread(fd, b, o.off)
		return fmt.Sprintf("%v %x", errText(err), b[:max(n, 0)])
	case o.code == opWrite && h.writes():
		n, err := unix.Pwrite(fd, pattern(o), o.off)
		return fmt.Sprintf("%v %d", errText(err), max(n, 0))
	case o.code == opTruncate && h.writes():
		return errText(unix.Ftruncate(fd, o.off))
	case o.code == opAllocate && h.writes():
		return errText(unix.Fallocate(fd, 0, o.off%100000, o.len))
	}
	return "not open for that"
}

func (r *realTree) describe(at int, path string, flags int) string {
	var st unix.Stat_t
	if err := unix.Fstatat(at, path, &st, flags); err != nil {
		return errText(err)
	}
	target := ""
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFDIR:
		st.Size = 0
	case unix.S_IFLNK:
		b := make([]byte, maxPath)
		n, _ := unix.Readlinkat(at, path, b)
		target = string(b[:max(n, 0)])
	}
	same := ""
	for i, fd := range r.open {
		var other unix.Stat_t
		if fd >= 0 && unix.Fstat(fd, &other) == nil && other.Ino == st.Ino {
			same += fmt.Sprint(" is ", i)
		}
	}
	return fmt.Sprintf("mode %o links %d size %d to %q%s", st.Mode, st.Nlink, st.Size, target, same)
}

func (r *realTree) list(at int, path string) string {
	fd, err := unix.Openat(at, path, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return errText(err)
	}
	defer func() { _ = unix.Close(fd) }()
	b := make([]byte, 1<<16)
	n, err := unix.Getdents(fd, b)
	if err != nil {
		return errText(err)
	}
	kinds := map[byte]Kind{unix.DT_REG: File, unix.DT_DIR: Dir, unix.DT_LNK: Symlink}
	var entries []string
	for b = b[:n]; len(b) > 0; {
		size := int(b[16]) | int(b[17])<<8
		name, _, _ := strings.Cut(string(b[19:size]), "\x00")
		entries = append(entries, fmt.Sprint(name, " ", kinds[b[18]]))
		b = b[size:]
	}
	slices.Sort(entries)
	return strings.Join(entries, " ")
}

func (r *realTree) closeAll() {
	for i := range r.open {
		if r.open[i] >= 0 {
			_ = unix.Close(r.open[i])
		}
		r.open[i] = -1
	}
}

// dump describes everything below a folder, and gives itself the rights to
// look at it.
func (r *realTree) dump(t *testing.T, dir, prefix string, out *[]string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range entries {
		p := filepath.Join(dir, d.Name())
		line := prefix + d.Name() + " " + r.describe(unix.AT_FDCWD, p, unix.AT_SYMLINK_NOFOLLOW)
		if d.Type().IsRegular() {
			line += r.contents(t, p)
		}
		if d.IsDir() {
			if err := os.Chmod(p, 0o700); err != nil {
				t.Fatal(err)
			}
		}
		*out = append(*out, line)
		if d.IsDir() {
			r.dump(t, p, prefix+d.Name()+"/", out)
		}
	}
}

// contents reads a file that need not be readable.
func (r *realTree) contents(t *testing.T, p string) string {
	t.Helper()
	info, err := os.Stat(p)
	if err == nil && info.Size() >= 1<<20 {
		return ""
	}
	if err == nil {
		err = os.Chmod(p, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(p)
	if err == nil {
		// It may be found again under another name.
		err = os.Chmod(p, info.Mode())
	}
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf(" %x", b)
}

// asUser lets the thread use files as an ordinary user until the function that
// it returns is called, since root may do anything.
func asUser() func() {
	if os.Geteuid() != 0 {
		return func() {}
	}
	runtime.LockOSThread()
	_ = unix.Setfsgid(layerOwner)
	_ = unix.Setfsuid(layerOwner)
	return func() {
		_ = unix.Setfsuid(0)
		_ = unix.Setfsgid(0)
		runtime.UnlockOSThread()
	}
}

// nest makes as many folders as levels in each other below dir, for an
// ordinary user, and gives the last one.
func nest(t *testing.T, dir string) string {
	t.Helper()
	for i := range levels + 1 {
		if i > 0 {
			dir = filepath.Join(dir, "r")
			if err := unix.Mkdir(dir, 0o755); err != nil {
				t.Fatal(err)
			}
		}
		if os.Geteuid() == 0 {
			if err := os.Chown(dir, layerOwner, layerOwner); err != nil {
				t.Skip("cannot give a folder to an ordinary user:", err)
			}
		}
	}
	return dir
}

func TestTreeBehavesAsTheRealFileSystem(t *testing.T) {
	if testing.Short() {
		t.Skip("thousands of system calls")
	}
	succeeded := map[opCode]int{}
	for seed := range uint64(12) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) { compareWithReal(t, seed, 4000, succeeded) })
	}
	for code := range numOps {
		if succeeded[code] == 0 {
			t.Errorf("operation %d never succeeded: the comparison says nothing about it", code)
		}
	}
}

func compareWithReal(t *testing.T, seed uint64, ops int, succeeded map[opCode]int) {
	dir := t.TempDir()
	umask := unix.Umask(0)
	defer unix.Umask(umask)
	r := &realTree{}
	for i := range r.open {
		r.open[i] = -1
	}
	defer r.closeAll()
	l := &layerTree{fs: New(mapBase{}, Limits{Bytes: 1 << 30, Inodes: 1 << 20}, ticks())}
	l.top = &l.fs.work
	for range levels {
		must(t, l.fs.Mkdir(l.top, "r", 0o755))
		l.top = l.top.child("r")
	}
	top, err := unix.Open(nest(t, dir), unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Close(top) }()
	r.top = top
	back := asUser()
	defer func() { back() }()

	rnd := randSource{rand.New(rand.NewPCG(seed, 3))}
	for i := range ops {
		o := genOp(rnd)
		got, want := l.do(o), r.do(o)
		if got != want {
			t.Fatalf("operation %d, %v:\n got %.200s\nwant %.200s", i, o, got, want)
		}
		switch {
		case got == "", strings.HasPrefix(got, "errno 0"), strings.HasPrefix(got, "mode"), strings.HasPrefix(got, ". "):
			succeeded[o.code]++
		}
		if i%50 == 0 {
			l.fs.check(t, l.held()...)
		}
	}
	l.closeAll()
	r.closeAll()
	l.fs.check(t)
	back()
	back = func() {}
	var got, want []string
	l.dump(&l.fs.work, "", &got)
	r.dump(t, dir, "", &want)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("trees differ (-real +own):\n%.2000s", diff)
	}
	l.removeAll(t, &l.fs.work)
	l.fs.check(t)
	if l.fs.bytes != 0 || l.fs.inodes != 0 {
		t.Errorf("%d bytes and %d inodes are charged for nothing", l.fs.bytes, l.fs.inodes)
	}
}
