package helper

import (
	"fmt"
	"os"
	"os/exec"
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

// closeInherited closes the inherited descriptors from end on, and keeps those
// before it from being inherited further. A descriptor that has survived an
// exec is not marked close-on-exec, while those that this process has made, the
// Go runtime's among them, are.
func closeInherited(end int) error {
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return err
	}
	for _, e := range entries {
		fd, err := strconv.Atoi(e.Name())
		if err != nil {
			return fmt.Errorf("/proc/self/fd has %q", e.Name())
		}
		flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0)
		switch {
		case fd < First || err != nil || flags&unix.FD_CLOEXEC != 0:
		case fd < end:
			unix.CloseOnExec(fd)
		default:
			_ = unix.Close(fd)
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
