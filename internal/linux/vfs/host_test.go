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

// hostTree does operations to the host's file system.
type hostTree struct {
	top  int
	open [numOpen]openFile
}

func (h *hostTree) start(i int) int {
	if i < 0 || h.open[i].fd < 0 {
		return h.top
	}
	return h.open[i].fd
}

func (h *hostTree) close(i int) {
	if h.open[i].fd >= 0 {
		_ = unix.Close(h.open[i].fd)
	}
	h.open[i] = openFile{fd: -1}
}

func (h *hostTree) closeAll() {
	for i := range h.open {
		h.close(i)
	}
}

func errText(err error) string {
	var e syscall.Errno
	errors.As(err, &e)
	return e.Error()
}

func (h *hostTree) do(o op) string {
	at, to := h.start(o.at), h.start(o.to)
	switch o.code {
	case opOpen:
		return h.doOpen(o, o.flags)
	case opTmpfile:
		return h.doOpen(o, o.flags|unix.O_TMPFILE)
	case opClose:
		h.close(o.at)
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
		return h.describe(at, o.path, (1-o.flags)*unix.AT_SYMLINK_NOFOLLOW)
	case opChmod:
		return errText(unix.Fchmodat(at, o.path, o.mode, 0))
	case opList:
		return h.list(at, o.path)
	}
	return h.onFile(o, h.open[o.at])
}

func (h *hostTree) doOpen(o op, flags int) string {
	fd, err := unix.Openat(h.start(o.at), o.path, flags|unix.O_CLOEXEC|unix.O_NONBLOCK, o.mode)
	if err != nil {
		return errText(err)
	}
	i := max(o.to, 0)
	h.close(i)
	h.open[i] = openFile{fd: fd, flags: flags}
	return h.describe(fd, "", unix.AT_EMPTY_PATH)
}

func (h *hostTree) onFile(o op, f openFile) string {
	var st unix.Stat_t
	if f.fd < 0 || unix.Fstat(f.fd, &st) != nil || st.Mode&unix.S_IFMT != unix.S_IFREG {
		return "none"
	}
	switch {
	case o.code == opRead && f.reads():
		b := make([]byte, o.len)
		n, err := unix.Pread(f.fd, b, o.off)
		return fmt.Sprintf("%v %x", errText(err), b[:max(n, 0)])
	case o.code == opWrite && f.writes():
		n, err := unix.Pwrite(f.fd, pattern(o), o.off)
		return fmt.Sprintf("%v %d", errText(err), max(n, 0))
	case o.code == opTruncate && f.writes():
		return errText(unix.Ftruncate(f.fd, o.off))
	case o.code == opAllocate && f.writes():
		return errText(unix.Fallocate(f.fd, 0, o.off%100000, o.len))
	}
	return "not open for that"
}

func (h *hostTree) describe(at int, path string, flags int) string {
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
	for i, f := range h.open {
		var other unix.Stat_t
		if f.fd >= 0 && unix.Fstat(f.fd, &other) == nil && other.Ino == st.Ino {
			same += fmt.Sprint(" is ", i)
		}
	}
	return fmt.Sprintf("mode %o links %d size %d to %q%s", st.Mode, st.Nlink, st.Size, target, same)
}

// list lists a folder in the order of this package. A folder that has been
// removed is ENOENT, which callers of this package see as an empty list.
func (h *hostTree) list(at int, path string) string {
	fd, err := unix.Openat(at, path, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return errText(err)
	}
	defer func() { _ = unix.Close(fd) }()
	kinds := map[byte]Kind{unix.DT_REG: File, unix.DT_DIR: Dir, unix.DT_LNK: Symlink}
	var entries []string
	for {
		b := make([]byte, 1<<16)
		n, err := unix.Getdents(fd, b)
		if err != nil && err != unix.ENOENT {
			return errText(err)
		}
		if n <= 0 {
			break
		}
		for b = b[:n]; len(b) > 0; {
			size := int(b[16]) | int(b[17])<<8
			name, _, _ := strings.Cut(string(b[19:size]), "\x00")
			entries = append(entries, fmt.Sprint(name, " ", kinds[b[18]]))
			b = b[size:]
		}
	}
	slices.Sort(entries)
	return strings.Join(entries, " ")
}

// dump describes everything below a folder, and takes the rights to look at
// it.
func (h *hostTree) dump(t *testing.T, dir, prefix string, out *[]string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range entries {
		p := filepath.Join(dir, d.Name())
		line := prefix + d.Name() + " " + h.describe(unix.AT_FDCWD, p, unix.AT_SYMLINK_NOFOLLOW)
		if d.Type().IsRegular() {
			line += contentsOf(t, p)
		}
		*out = append(*out, line)
		if !d.IsDir() {
			continue
		}
		if err := os.Chmod(p, 0o700); err != nil {
			t.Fatal(err)
		}
		h.dump(t, p, prefix+d.Name()+"/", out)
	}
}

// contentsOf reads a file that need not be readable.
func contentsOf(t *testing.T, p string) string {
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
	_ = unix.Setfsgid(ownerID)
	_ = unix.Setfsuid(ownerID)
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
			if err := os.Chown(dir, ownerID, ownerID); err != nil {
				t.Skip("cannot give a folder to an ordinary user:", err)
			}
		}
	}
	return dir
}

func TestTreeAgreesWithTheHostForAnOrdinaryUser(t *testing.T) {
	seeds := uint64(12)
	if testing.Short() {
		seeds = 4
	}
	succeeded := map[opCode]int{}
	for seed := range seeds {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) { compareWithHost(t, seed, 4000, succeeded) })
	}
	for code := range numOps {
		if succeeded[code] == 0 {
			t.Errorf("operation %d never succeeded: the comparison says nothing about it", code)
		}
	}
}

func compareWithHost(t *testing.T, seed uint64, ops int, succeeded map[opCode]int) {
	dir := t.TempDir()
	umask := unix.Umask(0)
	defer unix.Umask(umask)
	h := &hostTree{}
	for i := range h.open {
		h.open[i].fd = -1
	}
	defer h.closeAll()
	l := &layerTree{fs: New(testBase(), Limits{Bytes: 1 << 30, Inodes: 1 << 20}, tick())}
	l.top = &l.fs.work
	for range levels {
		ok(t, l.fs.Mkdir(l.top, "r", 0o755))
		l.top = l.top.child("r")
	}
	top, err := unix.Open(nest(t, dir), unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Close(top) }()
	h.top = top
	back := asUser()
	defer func() { back() }()

	rng := rand.New(rand.NewPCG(seed, 3))
	for i := range ops {
		o := genOp(rng)
		got, want := l.do(o), h.do(o)
		if got != want {
			t.Fatalf("operation %d, %v:\n got %.200s\nwant %.200s", i, o, got, want)
		}
		switch {
		case got == "", strings.HasPrefix(got, "errno 0"), strings.HasPrefix(got, "mode"), strings.HasPrefix(got, ". "):
			succeeded[o.code]++
		}
		if i%50 == 0 {
			checkAccounts(t, l.fs, l.held())
		}
	}
	l.closeAll()
	h.closeAll()
	checkAccounts(t, l.fs, nil)
	back()
	back = func() {}
	var got, want []string
	l.dump(&l.fs.work, "", &got)
	h.dump(t, dir, "", &want)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("trees differ (-host +own):\n%.2000s", diff)
	}
	l.removeAll(t, &l.fs.work)
	checkAccounts(t, l.fs, nil)
	if l.fs.bytes != 0 || l.fs.inodes != 0 {
		t.Errorf("%d bytes and %d inodes are charged for nothing", l.fs.bytes, l.fs.inodes)
	}
}
