package cgroup

import (
	"errors"
	"fmt"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
)

// DefaultRoot is the root that an operator sets up (see Recipe).
const DefaultRoot = "/sys/fs/cgroup/maf-sandbox"

// hostLeaf is the group below a root in which the host itself runs.
const hostLeaf = "host"

// ErrSetup is the class of every *SetupError.
var ErrSetup = errors.New("control groups are not set up")

// SetupError says what of a root is not as it has to be.
type SetupError struct {
	// Root is the folder that was to be used.
	Root string
	// Found is what is there, Need what has to be.
	Found, Need string
	// Mend are commands that put it right, in order; none when no command can.
	Mend []string
	// Cause is the kernel's refusal, if there was one.
	Cause error
}

// Error is one line, without the commands.
func (e *SetupError) Error() string {
	s := fmt.Sprintf("control group root %s: %s; needed: %s", e.Root, e.Found, e.Need)
	if e.Cause != nil {
		s += fmt.Sprintf(" (%v)", e.Cause)
	}
	return s
}

// Unwrap gives ErrSetup and the cause.
func (e *SetupError) Unwrap() []error {
	if e.Cause == nil {
		return []error{ErrSetup}
	}
	return []error{ErrSetup, e.Cause}
}

// Recipe gives the commands by which an operator with sudo delegates a root to
// a user and moves the calling shell below it; programs started from that shell
// can use the root. It lasts until the machine is started again.
func Recipe(root, user string) []string {
	r, u := quote(root), quote(user)
	return []string{
		"sudo mkdir -p " + quote(filepath.Join(root, hostLeaf)),
		"echo +memory +pids | sudo tee " + quote(filepath.Join(filepath.Dir(root), "cgroup.subtree_control")),
		"echo +memory +pids | sudo tee " + quote(filepath.Join(root, "cgroup.subtree_control")),
		"sudo chown " + u + " " + r + " " + quote(filepath.Join(root, "cgroup.procs")),
		"echo $$ | sudo tee " + quote(filepath.Join(root, hostLeaf, "cgroup.procs")),
	}
}

// ScopeRecipe gives the commands by which this user gets a manager of systemd's
// without a session, which StartScope asks first; none for root, who has the
// system's, and where systemd is not process 1 (man 3 sd_booted).
func ScopeRecipe() []string {
	if _, err := os.Stat("/run/systemd/system"); err != nil || os.Geteuid() == 0 {
		return nil
	}
	return []string{"sudo loginctl enable-linger " + quote(userName())}
}

func userName() string {
	if u, err := user.Current(); err == nil {
		return u.Username
	}
	return strconv.Itoa(os.Geteuid())
}

// quote spells a word so that a shell takes it as one; plain ones stay as they
// are, to be read.
func quote(s string) string {
	plain := func(r rune) bool {
		return r < 0x80 && (r >= '0' && r <= '9' || r|0x20 >= 'a' && r|0x20 <= 'z' || strings.ContainsRune("/._-", r))
	}
	if s != "" && strings.IndexFunc(s, func(r rune) bool { return !plain(r) }) < 0 {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}
