package linux

import (
	"bytes"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// pointerArg is a system call with one argument that is an address.
type pointerArg struct {
	name string
	nr   uint64
	// args are the arguments, with the address where at says.
	args [6]uint64
	at   int
	// size is how many bytes the call needs there.
	size uint64
	// writes says that the kernel writes there.
	writes bool
	// zero says that address 0 means that there is nothing.
	zero bool
}

// pointerArgs lists every argument that is an address.
func pointerArgs(g *guest) []pointerArg {
	in := g.open(dataPath, syscall.O_RDONLY)
	out := g.open("/work/out", syscall.O_CREAT|syscall.O_RDWR)
	dir := g.open("/work", syscall.O_RDONLY)
	g.must(unix.SYS_SYMLINK, g.str("target"), g.str("/work/link"))
	name, link := g.str("/work/out"), g.str("/work/link")
	buf, one := g.alloc(256), g.iov(g.alloc(16), 8)
	ts := g.bytes(words(0, 0))
	const w, z = true, true
	return []pointerArg{
		{"read", unix.SYS_READ, [6]uint64{in, 0, 8}, 1, 8, w, false},
		{"pread64", unix.SYS_PREAD64, [6]uint64{in, 0, 8, 0}, 1, 8, w, false},
		{"write", unix.SYS_WRITE, [6]uint64{out, 0, 8}, 1, 8, false, false},
		{"write to standard output", unix.SYS_WRITE, [6]uint64{1, 0, 8}, 1, 8, false, false},
		{"pwrite64", unix.SYS_PWRITE64, [6]uint64{out, 0, 8, 0}, 1, 8, false, false},
		{"readv", unix.SYS_READV, [6]uint64{in, 0, 1}, 1, 16, false, false},
		{"writev", unix.SYS_WRITEV, [6]uint64{out, 0, 1}, 1, 16, false, false},
		{"preadv", unix.SYS_PREADV, [6]uint64{in, 0, 1}, 1, 16, false, false},
		{"pwritev", unix.SYS_PWRITEV, [6]uint64{out, 0, 1}, 1, 16, false, false},
		{"open", unix.SYS_OPEN, [6]uint64{}, 0, 2, false, false},
		{"openat", unix.SYS_OPENAT, [6]uint64{dir}, 1, 2, false, false},
		{"creat", unix.SYS_CREAT, [6]uint64{}, 0, 2, false, false},
		{"stat path", unix.SYS_STAT, [6]uint64{0, buf}, 0, 2, false, false},
		{"stat", unix.SYS_STAT, [6]uint64{name}, 1, 144, w, false},
		{"lstat", unix.SYS_LSTAT, [6]uint64{name}, 1, 144, w, false},
		{"fstat", unix.SYS_FSTAT, [6]uint64{in}, 1, 144, w, false},
		{"newfstatat", unix.SYS_NEWFSTATAT, [6]uint64{cwdFD, name}, 2, 144, w, false},
		{"statx path", unix.SYS_STATX, [6]uint64{cwdFD, 0, 0, 0, buf}, 1, 2, false, false},
		{"statx", unix.SYS_STATX, [6]uint64{cwdFD, name}, 4, 256, w, false},
		{"statfs", unix.SYS_STATFS, [6]uint64{name}, 1, 120, w, false},
		{"fstatfs", unix.SYS_FSTATFS, [6]uint64{in}, 1, 120, w, false},
		{"access", unix.SYS_ACCESS, [6]uint64{}, 0, 2, false, false},
		{"faccessat2", unix.SYS_FACCESSAT2, [6]uint64{cwdFD}, 1, 2, false, false},
		{"readlink path", unix.SYS_READLINK, [6]uint64{0, buf, 8}, 0, 2, false, false},
		{"readlink", unix.SYS_READLINK, [6]uint64{link, 0, 6}, 1, 6, w, false},
		{"mkdir", unix.SYS_MKDIR, [6]uint64{}, 0, 2, false, false},
		{"rmdir", unix.SYS_RMDIR, [6]uint64{}, 0, 2, false, false},
		{"unlink", unix.SYS_UNLINK, [6]uint64{}, 0, 2, false, false},
		{"unlinkat", unix.SYS_UNLINKAT, [6]uint64{dir}, 1, 2, false, false},
		{"rename from", unix.SYS_RENAME, [6]uint64{0, name}, 0, 2, false, false},
		{"rename to", unix.SYS_RENAME, [6]uint64{name}, 1, 2, false, false},
		{"link from", unix.SYS_LINK, [6]uint64{0, name}, 0, 2, false, false},
		{"link to", unix.SYS_LINK, [6]uint64{name}, 1, 2, false, false},
		{"symlink target", unix.SYS_SYMLINK, [6]uint64{0, name}, 0, 2, false, false},
		{"symlink", unix.SYS_SYMLINK, [6]uint64{name}, 1, 2, false, false},
		{"chmod", unix.SYS_CHMOD, [6]uint64{0, 0o644}, 0, 2, false, false},
		{"chown", unix.SYS_CHOWN, [6]uint64{0, userID, userID}, 0, 2, false, false},
		{"truncate", unix.SYS_TRUNCATE, [6]uint64{}, 0, 2, false, false},
		{"utimensat", unix.SYS_UTIMENSAT, [6]uint64{cwdFD, name}, 2, 32, false, z},
		{"chdir", unix.SYS_CHDIR, [6]uint64{}, 0, 2, false, false},
		{"getcwd", unix.SYS_GETCWD, [6]uint64{0, 100}, 0, 6, w, false},
		{"getdents64", unix.SYS_GETDENTS64, [6]uint64{dir, 0, 24}, 1, 24, w, false},
		{"sendfile", unix.SYS_SENDFILE, [6]uint64{out, in, 0, 1}, 2, 8, w, z},
		{"rt_sigaction new", unix.SYS_RT_SIGACTION, [6]uint64{10, 0, 0, 8}, 1, 32, false, z},
		{"rt_sigaction old", unix.SYS_RT_SIGACTION, [6]uint64{10, 0, 0, 8}, 2, 32, w, z},
		{"rt_sigprocmask new", unix.SYS_RT_SIGPROCMASK, [6]uint64{0, 0, 0, 8}, 1, 8, false, z},
		{"rt_sigprocmask old", unix.SYS_RT_SIGPROCMASK, [6]uint64{0, 0, 0, 8}, 2, 8, w, z},
		{"rt_sigpending", unix.SYS_RT_SIGPENDING, [6]uint64{0, 8}, 0, 8, w, false},
		{"sigaltstack new", unix.SYS_SIGALTSTACK, [6]uint64{}, 0, 24, false, z},
		{"sigaltstack old", unix.SYS_SIGALTSTACK, [6]uint64{}, 1, 24, w, z},
		{"clock_gettime", unix.SYS_CLOCK_GETTIME, [6]uint64{1}, 1, 16, w, false},
		{"clock_getres", unix.SYS_CLOCK_GETRES, [6]uint64{1}, 1, 16, w, z},
		{"gettimeofday", unix.SYS_GETTIMEOFDAY, [6]uint64{}, 0, 16, w, z},
		{"time", unix.SYS_TIME, [6]uint64{}, 0, 8, w, z},
		{"times", unix.SYS_TIMES, [6]uint64{}, 0, 32, w, z},
		{"getrusage", unix.SYS_GETRUSAGE, [6]uint64{}, 1, 144, w, false},
		{"nanosleep", unix.SYS_NANOSLEEP, [6]uint64{}, 0, 16, false, false},
		{"clock_nanosleep", unix.SYS_CLOCK_NANOSLEEP, [6]uint64{1, 1}, 2, 16, false, false},
		{"poll", unix.SYS_POLL, [6]uint64{0, 2, 0}, 0, 16, w, false},
		{"ppoll", unix.SYS_PPOLL, [6]uint64{0, 2, ts}, 0, 16, w, false},
		{"ppoll time", unix.SYS_PPOLL, [6]uint64{0, 0, 0}, 2, 16, false, z},
		{"select", unix.SYS_SELECT, [6]uint64{}, 4, 16, false, z},
		{"futex", unix.SYS_FUTEX, [6]uint64{0, futexWait, 1 << 20}, 0, 4, false, false},
		{"uname", unix.SYS_UNAME, [6]uint64{}, 0, 390, w, false},
		{"sysinfo", unix.SYS_SYSINFO, [6]uint64{}, 0, 112, w, false},
		{"sched_getaffinity", unix.SYS_SCHED_GETAFFINITY, [6]uint64{0, 8}, 2, 8, w, false},
		{"getcpu", unix.SYS_GETCPU, [6]uint64{}, 0, 4, w, z},
		{"getcpu node", unix.SYS_GETCPU, [6]uint64{}, 1, 4, w, z},
		{"arch_prctl", unix.SYS_ARCH_PRCTL, [6]uint64{archGetFS}, 1, 8, w, false},
		{"prctl", unix.SYS_PRCTL, [6]uint64{prGetName}, 1, 16, w, false},
		{"prlimit64", unix.SYS_PRLIMIT64, [6]uint64{0, 7}, 3, 16, w, z},
		{"getresuid", unix.SYS_GETRESUID, [6]uint64{0, buf, buf}, 0, 4, w, false},
		{"getresgid last", unix.SYS_GETRESGID, [6]uint64{buf, buf, 0}, 2, 4, w, false},
		{"getrandom", unix.SYS_GETRANDOM, [6]uint64{0, 16}, 0, 16, w, false},
		{"fcntl lock", unix.SYS_FCNTL, [6]uint64{in, fGetLK}, 2, 2, w, false},
		{"preadv piece", unix.SYS_PREADV, [6]uint64{in, one, 1}, 1, 16, false, false},
		{"value", unix.SYS_WRITE, [6]uint64{valueFD, 0, 8}, 1, 8, false, false},
	}
}

func TestEveryAddressIsChecked(t *testing.T) {
	g := newGuest(t)
	g.p.mailbox.maxValue = 100
	end := g.l.Stack.Hi
	text := g.m.protected()
	for _, c := range pointerArgs(g) {
		bad := map[string]uint64{
			"unmapped":          g.l.Stack.Lo - page,
			"the platform's":    page,
			"one byte too long": end - c.size + 1,
			"behind memory":     uint64(len(g.m.mem)),
			"last byte of all":  ^uint64(0),
			"wrapping":          -c.size + 1,
			"not canonical":     1 << 63,
		}
		if !c.zero {
			bad["nothing"] = 0
		}
		if c.writes {
			bad["the program's text"] = g.l.Exe.Lo
			bad["the vDSO"] = g.l.VDSO
			bad["data before text"] = g.l.Interp.Lo - c.size + 1
		}
		for what, addr := range bad {
			// What lies at the end of memory must not end a string.
			g.fill(end-512, 512, '/')
			a := c.args
			a[c.at] = addr
			want := syscall.EFAULT
			if c.nr == unix.SYS_FUTEX && addr%4 != 0 {
				want = syscall.EINVAL
			}
			if got := g.call(c.nr, a[:]...); got != fail(want) {
				t.Errorf("%s with %s (%#x) = %s, want %v", c.name, what, addr, answerText(got), want)
			}
		}
		a := c.args
		a[c.at] = end - c.size
		g.fill(a[c.at], c.size, 0)
		if got := errnoOf(g.call(c.nr, a[:]...)); got == syscall.EFAULT {
			t.Errorf("%s right at the end of memory answers %v", c.name, got)
		}
		if !bytes.Equal(text, g.m.protected()) {
			t.Fatalf("%s wrote to what is read-only", c.name)
		}
	}
}
