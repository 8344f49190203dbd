//go:build linux

package vfs

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// handle is a file or a folder that is open in both trees.
type handle struct {
	fd  int
	ino *Inode
}

// oracle does every operation twice: in a folder of the host and in a tree.
type oracle struct {
	t        *testing.T
	rng      *rand.Rand
	fs       *FS
	host     string // the folder of the host that stands for /work
	exchange bool
	dirs     []handle // dirs[0] is never closed
	files    []handle
	log      []string
}

// The two sides of the folder in which paths begin. It is some folders down,
// so that a path may climb a little without leaving what is compared.
const startBelow = "qx/qx/qx/qx/qx"

func newOracle(t *testing.T, seed uint64) *oracle {
	o := &oracle{t: t, rng: rand.New(rand.NewPCG(seed, 0)), host: t.TempDir()}
	o.fs = New(testBase(), Limits{Bytes: 1 << 26, Inodes: 10000}, tick())
	if err := os.MkdirAll(filepath.Join(o.host, startBelow), 0o700); err != nil {
		t.Fatal(err)
	}
	for p := "/work"; len(p) < len("/work/"+startBelow); {
		p += "/qx"
		ok(t, o.fs.Mkdir(o.fs.Root(), p, 0o700))
	}
	fd, err := unix.Open(filepath.Join(o.host, startBelow), unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	ino := mustResolve(t, o.fs, "/work/"+startBelow)
	o.fs.Ref(ino)
	o.dirs = []handle{{fd, ino}}
	probe := unix.Renameat2(fd, "qa", fd, "qb", unix.RENAME_EXCHANGE)
	o.exchange = probe == unix.ENOENT
	t.Cleanup(func() {
		for _, h := range append(o.dirs, o.files...) {
			_ = unix.Close(h.fd)
		}
	})
	return o
}

func (o *oracle) pick(s ...string) string { return s[o.rng.IntN(len(s))] }

func (o *oracle) name() string { return o.pick("qa", "qb", "qc", "qd", "qe") }

// path makes a relative path, odd ones included.
func (o *oracle) path() string {
	var parts []string
	for range o.rng.IntN(3) {
		parts = append(parts, o.name())
	}
	p := strings.Join(append(parts, o.name()), o.pick("/", "/", "/", "//", "/./"))
	switch o.rng.IntN(24) {
	case 0:
		return p + "/"
	case 1:
		return p + "/."
	case 2:
		return p + "/.."
	case 3:
		return p + "/../" + o.name()
	case 4:
		return o.pick("", ".", "..", "./", "qa//", strings.Repeat("q", 255), strings.Repeat("q", 256))
	}
	return p
}

// target makes the target of a link, for the host and for the tree.
func (o *oracle) target() (string, string) {
	switch o.rng.IntN(8) {
	case 0:
		p := startBelow + "/" + o.path()
		return o.host + "/" + p, "/work/" + p
	case 1:
		p := o.pick(".", "..", "./", "../"+o.name())
		return p, p
	}
	p := o.path()
	return p, p
}

func (o *oracle) dir() handle { return o.dirs[o.rng.IntN(len(o.dirs))] }

// same compares the outcome of one operation.
func (o *oracle) same(err error, e syscall.Errno, format string, args ...any) bool {
	o.t.Helper()
	o.log = append(o.log, fmt.Sprintf(format, args...)+": "+errnoText(e))
	host := syscall.Errno(0)
	if err != nil && !errors.As(err, &host) {
		o.t.Fatal(err)
	}
	if host != e {
		o.t.Fatalf("%s; the host says %s", strings.Join(o.log[max(0, len(o.log)-40):], "\n"), errnoText(host))
	}
	return e == 0
}

// step does one random operation.
func (o *oracle) step() {
	d, p := o.dir(), o.path()
	switch o.rng.IntN(14) {
	case 0, 1:
		o.same(unix.Mkdirat(d.fd, p, 0o700), o.fs.Mkdir(d.ino, p, 0o700), "mkdir %d %q", d.fd, p)
	case 2:
		o.same(unix.Unlinkat(d.fd, p, unix.AT_REMOVEDIR), o.fs.Rmdir(d.ino, p), "rmdir %d %q", d.fd, p)
	case 3:
		o.same(unix.Unlinkat(d.fd, p, 0), o.fs.Unlink(d.ino, p), "unlink %d %q", d.fd, p)
	case 4:
		host, guest := o.target()
		o.same(unix.Symlinkat(host, d.fd, p), o.fs.Symlink(guest, d.ino, p), "symlink %q to %d %q", guest, d.fd, p)
	case 5:
		o.link(d, p)
	case 6, 7, 8:
		o.rename(d, p)
	case 9, 10:
		o.open(d, p)
	case 11:
		o.stat(d, p)
	default:
		o.use()
	}
}

func (o *oracle) link(d handle, p string) {
	to, q := o.dir(), o.path()
	flags, follow := 0, o.rng.IntN(2) == 0
	if follow {
		flags = unix.AT_SYMLINK_FOLLOW
	}
	ino, e := o.fs.Resolve(d.ino, p, follow)
	if e == 0 {
		e = o.fs.Link(ino, to.ino, q)
	}
	o.same(unix.Linkat(d.fd, p, to.fd, q, flags), e, "link %d %q to %d %q (%v)", d.fd, p, to.fd, q, follow)
}

func (o *oracle) rename(d handle, p string) {
	to, q := o.dir(), o.path()
	flags := o.rng.IntN(4)
	if flags == RenameExchange && !o.exchange {
		flags = 0
	}
	o.same(unix.Renameat2(d.fd, p, to.fd, q, uint(flags)), o.fs.Rename(d.ino, p, to.ino, q, flags),
		"rename %d %q to %d %q (%d)", d.fd, p, to.fd, q, flags)
}

func (o *oracle) open(d handle, p string) {
	flags := []int{unix.O_RDONLY, unix.O_WRONLY, unix.O_RDWR}[o.rng.IntN(3)]
	for _, f := range []int{unix.O_EXCL, unix.O_TRUNC, unix.O_NOFOLLOW, unix.O_PATH} {
		if o.rng.IntN(4) == 0 {
			flags |= f
		}
	}
	if o.rng.IntN(2) == 0 {
		flags |= unix.O_CREAT
	} else {
		flags &^= unix.O_EXCL // undefined without O_CREAT
		if o.rng.IntN(4) == 0 {
			flags |= unix.O_DIRECTORY
		}
	}
	fd, err := unix.Openat(d.fd, p, flags|unix.O_CLOEXEC, 0o600)
	ino, e := o.fs.Open(d.ino, p, flags, 0o600)
	if !o.same(err, e, "open %d %q %#x", d.fd, p, flags) {
		return
	}
	o.fs.Ref(ino)
	h := handle{fd, ino}
	switch {
	case ino.Kind() == Dir && len(o.dirs) < 6:
		o.dirs = append(o.dirs, h)
	case ino.Kind() == File && flags&unix.O_ACCMODE == unix.O_RDWR && flags&unix.O_PATH == 0 && len(o.files) < 6:
		o.files = append(o.files, h)
	default:
		o.close(h)
	}
}

func (o *oracle) close(h handle) {
	o.fs.Unref(h.ino)
	if err := unix.Close(h.fd); err != nil {
		o.t.Fatal(err)
	}
}

func (o *oracle) stat(d handle, p string) {
	flags, follow := unix.AT_SYMLINK_NOFOLLOW, o.rng.IntN(2) == 0
	if follow {
		flags = 0
	}
	var st unix.Stat_t
	err := unix.Fstatat(d.fd, p, &st, flags)
	ino, e := o.fs.Resolve(d.ino, p, follow)
	if o.same(err, e, "stat %d %q (%v)", d.fd, p, follow) {
		o.sameStat(&st, ino)
	}
}

func (o *oracle) sameStat(st *unix.Stat_t, ino *Inode) {
	o.t.Helper()
	s := ino.Stat()
	if s.Mode != st.Mode || s.Mode&unix.S_IFMT == unix.S_IFREG && (s.Size != st.Size || s.Nlink != st.Nlink) {
		o.t.Fatalf("%s\n%+v, the host has %+v", strings.Join(o.log[max(0, len(o.log)-40):], "\n"), s, *st)
	}
}

// use reads, writes, cuts or closes something open.
func (o *oracle) use() {
	if o.rng.IntN(4) == 0 && len(o.dirs) > 1 {
		i := 1 + o.rng.IntN(len(o.dirs)-1)
		o.close(o.dirs[i])
		o.dirs = slices.Delete(o.dirs, i, i+1)
		return
	}
	if len(o.files) == 0 {
		return
	}
	i := o.rng.IntN(len(o.files))
	h := o.files[i]
	off := int64(o.rng.IntN(20000))
	b := make([]byte, o.rng.IntN(10000))
	switch o.rng.IntN(6) {
	case 0, 1:
		for j := range b {
			b[j] = byte(o.rng.Uint32())
		}
		n, err := unix.Pwrite(h.fd, b, off)
		m, e := o.fs.WriteAt(h.ino, b, off)
		if o.same(err, e, "write %d: %d at %d", h.fd, len(b), off) && n != m {
			o.t.Fatalf("wrote %d bytes, the host %d", m, n)
		}
	case 2:
		o.same(unix.Ftruncate(h.fd, off), o.fs.Truncate(h.ino, off), "truncate %d to %d", h.fd, off)
	case 3:
		o.close(h)
		o.files = slices.Delete(o.files, i, i+1)
	default:
		c := slices.Clone(b)
		n, err := unix.Pread(h.fd, b, off)
		m, e := h.ino.ReadAt(c, off)
		if o.same(err, e, "read %d: %d at %d", h.fd, len(b), off) && string(b[:n]) != string(c[:m]) {
			o.t.Fatalf("read other bytes than the host")
		}
	}
}

// compare walks both trees and compares everything in them.
func (o *oracle) compare() {
	count := 0
	err := filepath.WalkDir(o.host, func(p string, d os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		count++
		ino := mustResolve(o.t, o.fs, "/work"+strings.TrimPrefix(p, o.host))
		if p == o.host {
			return nil
		}
		var st unix.Stat_t
		if err := unix.Lstat(p, &st); err != nil {
			return err
		}
		o.sameStat(&st, ino)
		switch {
		case d.Type()&os.ModeSymlink != 0:
			target, err := os.Readlink(p)
			if rest, abs := strings.CutPrefix(target, o.host); abs {
				target = "/work" + rest
			}
			if err != nil || target != ino.ReadLink() {
				o.t.Fatalf("%s points to %q, the host's to %q, %v", p, ino.ReadLink(), target, err)
			}
		case d.Type().IsRegular():
			b, err := os.ReadFile(p)
			if err != nil || string(b) != readAll(o.t, ino) {
				o.t.Fatalf("%s has other content than the host's, %v", p, err)
			}
		}
		return nil
	})
	if err != nil {
		o.t.Fatal(err)
	}
	if n := len(layerPaths(o.fs)); n != count+1 { // /tmp
		o.t.Fatalf("%d names, the host has %d", n, count)
	}
	held := []*Inode{}
	for _, h := range append(slices.Clone(o.dirs), o.files...) {
		held = append(held, h.ino)
	}
	checkAccounts(o.t, o.fs, held)
}

// layerPaths lists everything in the layer through ReadDir and Resolve.
func layerPaths(fs *FS) []string {
	out := []string{"/tmp", "/work"}
	for i := 0; i < len(out); i++ {
		ino, e := fs.Resolve(fs.Root(), out[i], false)
		if e != 0 || ino.Kind() != Dir {
			continue
		}
		for _, d := range fs.ReadDir(ino)[2:] {
			out = append(out, out[i]+"/"+d.Name)
		}
	}
	return out
}

func TestTreeBehavesAsTheHostsFileSystem(t *testing.T) {
	for seed := range uint64(6) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			o := newOracle(t, seed)
			for i := range 3000 {
				o.step()
				if i%250 == 0 {
					o.compare()
				}
			}
			o.compare()
		})
	}
}
