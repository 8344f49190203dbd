package helper

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// prefix starts the first argument of every helper.
const prefix = "maf-sandbox-"

// First is the first descriptor that a helper is given: a socket.
const First = 3

// environment are the variables that a helper may see: what finds the caches,
// and the language of messages.
var environment = []string{"PATH", "HOME", "XDG_CACHE_HOME", "TMPDIR", "LANG", "LC_ALL"}

type role struct {
	descriptors int
	main        func() error
}

var roles = map[string]role{}

// Register makes main the duty of helpers of that name, which are given so many
// descriptors, from First on. It is for init functions; a name that is taken is
// replaced.
func Register(name string, descriptors int, main func() error) {
	roles[name] = role{descriptors, main}
}

// Main runs the helper that this process is, and ends the process: with 0, or
// with 1 after writing the error to standard error. It returns if the process
// is none. Call it when all helpers are registered and nothing else has begun.
func Main() {
	if len(os.Args) == 0 {
		return
	}
	name, ours := strings.CutPrefix(os.Args[0], prefix)
	r, known := roles[name]
	var st unix.Stat_t
	// A program that runs with more rights than its caller is nobody's helper.
	if os.Getuid() != os.Geteuid() || os.Getgid() != os.Getegid() {
		return
	}
	if !ours || !known || unix.Fstat(First, &st) != nil || st.Mode&unix.S_IFMT != unix.S_IFSOCK {
		return
	}
	err := closeInherited(First + r.descriptors)
	if err == nil {
		// Init functions run on a goroutine that is locked to its thread; each
		// of its turns would cost a switch of threads.
		ended := make(chan error)
		go func() { ended <- r.main() }()
		err = <-ended
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", os.Args[0], err)
		os.Exit(1)
	}
	os.Exit(0)
}

// closeInherited leaves a helper the descriptors before end, which it was given
// and does not pass on. Those that it has inherited besides are closed. Those
// that init functions of the host's packages have opened, in this process too,
// become /dev/null: whoever opened them may close them later, when the number
// must not be another's. The Go runtime keeps its poller.
func closeInherited(end int) error {
	// From Go 1.25 on, the runtime reads the cgroup's CPU limit again and again
	// from files of its own, until the program has set the number itself.
	runtime.GOMAXPROCS(runtime.GOMAXPROCS(0))
	null, err := unix.Open(os.DevNull, unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(null) }()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return err
	}
	for _, e := range entries {
		fd, err := strconv.Atoi(e.Name())
		if err != nil {
			return fmt.Errorf("/proc/self/fd has %q", e.Name())
		}
		target, err := os.Readlink("/proc/self/fd/" + e.Name())
		flags, gone := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0)
		switch {
		case fd < First || fd == null || err != nil || gone != nil:
		case fd < end:
			unix.CloseOnExec(fd)
		case flags&unix.FD_CLOEXEC == 0:
			_ = unix.Close(fd)
		case target != "anon_inode:[eventpoll]" && target != "anon_inode:[eventfd]":
			if err := unix.Dup3(null, fd, unix.O_CLOEXEC); err != nil {
				return err
			}
		}
	}
	return nil
}

// Command makes the command of a helper. It executes the program at path, which
// is absolute, or this program if path is empty. The files become descriptors
// First and up; the first is a socket.
func Command(name, path string, files ...*os.File) *exec.Cmd {
	if path == "" {
		path = "/proc/self/exe"
	}
	c := &exec.Cmd{Path: path, Args: []string{prefix + name}, Env: []string{}, Dir: "/", ExtraFiles: files}
	for _, k := range environment {
		if v, set := os.LookupEnv(k); set {
			c.Env = append(c.Env, k+"="+v)
		}
	}
	return c
}
