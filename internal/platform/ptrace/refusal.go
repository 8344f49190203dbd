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
			return &Refusal{Need: "namespaces for a process", Mend: namespacesRefused(err), Cause: err}
		}
		r := &Refusal{Need: "to trace a child (ptrace)", Cause: err}
		switch scope := setting("kernel/yama/ptrace_scope"); scope {
		case "2":
			r.Mend = "kernel.yama.ptrace_scope is 2; it has to be 0 or 1, or the process needs CAP_SYS_PTRACE"
		case "3":
			r.Mend = "kernel.yama.ptrace_scope is 3; it has to be 0 or 1, which takes a reboot"
		default:
			r.Mend = "a container's seccomp profile has to allow ptrace, as Docker's own does from Linux 4.8 on"
		}
		return r
	case errors.Is(err, unix.EACCES):
		r := &Refusal{Need: "to execute a program from memory", Cause: err}
		if setting("vm/memfd_noexec") == "2" {
			r.Mend = "vm.memfd_noexec is 2; it has to be 0 or 1"
		}
		return r
	case errors.Is(err, unix.ENOENT):
		return &Refusal{Need: "to look at its processes", Mend: "/proc has to be mounted", Cause: err}
	case errors.Is(err, unix.EAGAIN):
		return &Refusal{Need: "one more process", Mend: "RLIMIT_NPROC or the cgroup's pids.max is reached", Cause: err}
	}
	return fmt.Errorf("%w: start the guest's process: %w", platform.ErrMachine, err)
}

// refusesNamespaces reports whether an errno says that there are no more
// namespaces, or no such ones (clone(2)).
func refusesNamespaces(err error) bool {
	return errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EUSERS) || errors.Is(err, unix.EINVAL)
}

// namespacesRefused says in a few words why a child cannot have namespaces of
// its own.
func namespacesRefused(err error) string {
	switch {
	case setting("user/max_user_namespaces") == "0":
		return "user.max_user_namespaces is 0"
	case setting("kernel/unprivileged_userns_clone") == "0":
		return "kernel.unprivileged_userns_clone is 0"
	case setting("kernel/apparmor_restrict_unprivileged_userns") == "1":
		return "kernel.apparmor_restrict_unprivileged_userns is 1"
	case errors.Is(err, unix.ENOSPC):
		return "the limit of namespaces is reached (user.max_*_namespaces)"
	case errors.Is(err, unix.EPERM):
		return "not permitted, as in most containers"
	}
	return err.Error()
}
