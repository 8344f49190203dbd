//go:build linux && amd64

package ptrace

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/maf-sandbox/maf-sandbox-go/internal/platform"
)

// Refusal says that this host does not permit something that the platform
// needs. It is a platform.ErrUnavailable.
type Refusal struct {
	// Need is what is not permitted, in a few words.
	Need string
	// Mend is what its owner can do about it; empty when nothing is known.
	Mend string
	// Command is one for a shell that does it; empty when none is known.
	Command string
	// Cause is what the kernel said.
	Cause error
}

// Error is one line for people.
func (r *Refusal) Error() string {
	s := "this host does not permit " + r.Need
	if r.Mend != "" {
		s += " (" + r.Mend + ")"
	}
	if r.Cause != nil {
		s += ": " + r.Cause.Error()
	}
	return s
}

// Unwrap gives platform.ErrUnavailable and the cause.
func (r *Refusal) Unwrap() []error {
	if r.Cause == nil {
		return []error{platform.ErrUnavailable}
	}
	return []error{platform.ErrUnavailable, r.Cause}
}

// setting reads a kernel setting; empty where there is none.
func setting(name string) string {
	b, err := os.ReadFile("/proc/sys/" + name)
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(b))
}

// refusedIf makes an error a Refusal when it is the errno by which the kernel
// says no, and else an error of this machine.
func refusedIf(err error, no unix.Errno, need, mend string) error {
	if errors.Is(err, no) {
		return &Refusal{Need: need, Mend: mend, Cause: err}
	}
	return fmt.Errorf("%w: %s: %w", platform.ErrMachine, need, err)
}

// startRefused explains why a child could not be started, with namespaces of
// its own or without. The kernel has one answer for what may have several
// reasons, so its settings are asked.
func startRefused(err error, namespaces bool) error {
	switch {
	case errors.Is(err, unix.EPERM), errors.Is(err, unix.ENOSYS), namespaces && refusesNamespaces(err):
		if namespaces {
			mend, command := namespacesRefused(err)
			return &Refusal{Need: "namespaces for a process", Mend: mend, Command: command, Cause: err}
		}
		return tracingRefused(err, setting("kernel/yama/ptrace_scope"))
	case errors.Is(err, unix.EACCES):
		r := &Refusal{Need: "to execute a program from memory", Cause: err}
		if setting("vm/memfd_noexec") == "2" {
			r.Mend, r.Command = "vm.memfd_noexec is 2; it has to be 0 or 1", "sudo sysctl -w vm.memfd_noexec=1"
		}
		return r
	case errors.Is(err, unix.ENOENT):
		return &Refusal{Need: "to look at its processes", Mend: "/proc has to be mounted", Command: "sudo mount -t proc proc /proc", Cause: err}
	case errors.Is(err, unix.EAGAIN):
		return &Refusal{Need: "one more process", Mend: "RLIMIT_NPROC or the cgroup's pids.max is reached", Cause: err}
	}
	return fmt.Errorf("%w: start the guest's process: %w", platform.ErrMachine, err)
}

// tracingRefused explains why a child cannot be traced, given Yama's setting
// (Documentation/admin-guide/LSM/Yama.rst); empty where there is no Yama. Scope 1
// is about processes that are no children, and 2 about tracers without
// CAP_SYS_PTRACE over the child, which whoever made the child's user namespace
// has.
func tracingRefused(err error, scope string) *Refusal {
	r := &Refusal{Need: "to trace a child (ptrace)", Cause: err}
	switch scope {
	case "2":
		r.Mend = "kernel.yama.ptrace_scope is 2; it has to be 0 or 1, or the process needs CAP_SYS_PTRACE or user namespaces"
		r.Command = "sudo sysctl -w kernel.yama.ptrace_scope=1"
	case "3":
		r.Mend = "kernel.yama.ptrace_scope is 3; it has to be 0 or 1, which takes a reboot"
	default:
		r.Mend = "a container's seccomp profile has to allow ptrace, as Docker's own does from Linux 4.8 on"
	}
	return r
}

// refusesNamespaces reports whether an errno says that there are no more
// namespaces, or no such ones (clone(2)).
func refusesNamespaces(err error) bool {
	return errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EUSERS) || errors.Is(err, unix.EINVAL)
}

// forbidding are the kernel's settings that keep namespaces from a process, and
// what they have to be instead. The last two are Debian's and Ubuntu's.
var forbidding = []struct{ name, is, has string }{
	{"user.max_user_namespaces", "0", "10000"},
	{"kernel.unprivileged_userns_clone", "0", "1"},
	{"kernel.apparmor_restrict_unprivileged_userns", "1", "0"},
}

// namespacesRefused says in a few words why a child cannot have namespaces of
// its own, and the command that gives it some, if one is known.
func namespacesRefused(err error) (why, command string) {
	for _, s := range forbidding {
		if setting(strings.ReplaceAll(s.name, ".", "/")) == s.is {
			return s.name + " is " + s.is, fmt.Sprintf("sudo sysctl -w %s=%s", s.name, s.has)
		}
	}
	switch {
	case errors.Is(err, unix.ENOSPC):
		return "the limit of namespaces is reached (user.max_*_namespaces)", ""
	case errors.Is(err, unix.EPERM):
		return "not permitted, as in most containers", ""
	}
	return err.Error(), ""
}
