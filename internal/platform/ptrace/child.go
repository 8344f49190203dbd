//go:build linux && amd64

package ptrace

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/maf-sandbox/maf-sandbox-go/internal/platform"
)

// Descriptors of a child while it is set up. It has none afterwards.
const (
	childMemory = 3 // what memory is mapped from
	childRoot   = 4 // an empty folder
	childStub   = 5
)

// child is a traced process. Its methods are called on the thread that started
// it, but for signal.
type child struct {
	pid int
	// fd is its pidfd.
	fd int
	// mem and pagemap are its files of these names in /proc. They are opened
	// while that is allowed: a jailed worker opens nothing.
	mem, pagemap int
	// status is its file of that name, until it is set up.
	status int
	// stopped says that a SIGSTOP of Interrupt arrived while the stub ran.
	stopped bool
	// reaped: it has ended and its number may be another process's.
	reaped bool
}

// isolation is the set of namespaces of a child.
type isolation struct {
	flags uintptr
	// user: it has a user namespace, in which it is root until it is set up.
	user bool
}

const otherNamespaces = unix.CLONE_NEWPID | unix.CLONE_NEWNET | unix.CLONE_NEWNS | unix.CLONE_NEWIPC | unix.CLONE_NEWUTS | unix.CLONE_NEWCGROUP

// isolations are tried in this order.
var isolations = []isolation{
	{unix.CLONE_NEWUSER | otherNamespaces, true},
	{otherNamespaces, false}, // as root where user namespaces are forbidden
	{},
}

// private reports whether it has namespaces of its own, and so an empty root.
func (i isolation) private() bool { return i.flags != 0 }

// start starts a child, which is stopped before its first instruction. memory
// is the descriptor that childMemory is to be; -1: none.
func (p *Platform) start(i isolation, memory int) (*child, error) {
	attr := &syscall.ProcAttr{
		// No standard descriptors.
		Files: []uintptr{none, none, none, none, uintptr(p.root), uintptr(p.stub)},
		Sys: &syscall.SysProcAttr{
			Ptrace: true,
			// Away from the terminal's signals.
			Setsid:     true,
			Cloneflags: i.flags,
		},
	}
	if memory >= 0 {
		attr.Files[childMemory] = uintptr(memory)
	}
	if i.user {
		attr.Sys.UidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Geteuid(), Size: 1}}
		attr.Sys.GidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getegid(), Size: 1}}
	}
	pid, err := syscall.ForkExec(fmt.Sprintf("/proc/self/fd/%d", childStub), []string{"guest"}, attr)
	if err != nil {
		return nil, startRefused(err, i.private())
	}
	c := &child{pid: pid, fd: -1, mem: -1, pagemap: -1, status: -1}
	if err := c.attach(); err != nil {
		c.kill()
		c.close()
		return nil, err
	}
	return c, nil
}

// none marks a descriptor that a child does not get.
const none = ^uintptr(0)

func (c *child) attach() error {
	s, err := c.wait()
	if err != nil {
		return err
	}
	if !s.Stopped() || s.StopSignal() != unix.SIGTRAP {
		return fmt.Errorf("%w: the guest's process starts with status %#x", platform.ErrMachine, uint32(s))
	}
	if err := unix.PtraceSetOptions(c.pid, unix.PTRACE_O_EXITKILL|unix.PTRACE_O_TRACESYSGOOD); err != nil {
		return fmt.Errorf("%w: ptrace options: %w", platform.ErrMachine, err)
	}
	if c.fd, err = unix.PidfdOpen(c.pid, 0); err != nil {
		return refusedIf(err, unix.ENOSYS, "to hold its processes (pidfd_open)", "Linux 5.3 has it")
	}
	name := fmt.Sprintf("/proc/%d/", c.pid)
	if c.mem, err = unix.Open(name+"mem", unix.O_RDWR|unix.O_CLOEXEC, 0); err != nil {
		return refusedIf(err, unix.EACCES, "to reach the memory of its child", "Yama's ptrace_scope has to be 0 or 1, /proc without hidepid")
	}
	if c.status, err = unix.Open(name+"status", unix.O_RDONLY|unix.O_CLOEXEC, 0); err != nil {
		return fmt.Errorf("%w: status of the guest's process: %w", platform.ErrMachine, err)
	}
	// Without it a reset drops all changed pages.
	if c.pagemap, err = unix.Open(name+"pagemap", unix.O_RDONLY|unix.O_CLOEXEC, 0); err != nil {
		c.pagemap = -1
	}
	// A child that a filter kills would leave a core file.
	if err := unix.Prlimit(c.pid, unix.RLIMIT_CORE, &unix.Rlimit{}, nil); err != nil {
		return fmt.Errorf("%w: limit of core size: %w", platform.ErrMachine, err)
	}
	return nil
}

// wait waits until the child stops or ends.
func (c *child) wait() (unix.WaitStatus, error) {
	var s unix.WaitStatus
	for {
		_, err := unix.Wait4(c.pid, &s, unix.WALL, nil)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return s, fmt.Errorf("%w: wait for the guest's process: %w", platform.ErrMachine, err)
		}
		c.reaped = s.Exited() || s.Signaled()
		return s, nil
	}
}

// signal sends the child a signal, from any thread.
func (c *child) signal(s unix.Signal) { _ = unix.PidfdSendSignal(c.fd, s, nil, 0) }

// kill ends the child and waits until it has.
func (c *child) kill() {
	for !c.reaped {
		if c.fd >= 0 {
			c.signal(unix.SIGKILL)
		} else {
			_ = unix.Kill(c.pid, unix.SIGKILL) // not waited for yet: the number is its own
		}
		if _, err := c.wait(); err != nil {
			return
		}
	}
}

// close closes the descriptors of a child that has ended.
func (c *child) close() {
	for _, fd := range []*int{&c.fd, &c.mem, &c.pagemap, &c.status} {
		if *fd >= 0 {
			_ = unix.Close(*fd)
		}
		*fd = -1
	}
}

// call is a system call that the child makes for itself.
type call struct {
	what string
	nr   uint64
	args [6]uint64
	// may fail: what it would save or improve can be done without.
	optional bool
}

// make makes one call by the stub and gives its result.
func (c *child) make(k call) error {
	r := unix.PtraceRegs{
		Rax: k.nr, Rdi: k.args[0], Rsi: k.args[1], Rdx: k.args[2], R10: k.args[3], R8: k.args[4], R9: k.args[5],
		Rip: callAddr,
	}
	if err := c.stubRun(&r); err != nil {
		return err
	}
	return k.result(r.Rax)
}

func (k call) result(rax uint64) error {
	const maxErrno = 4095
	if e := -rax; e != 0 && e <= maxErrno && !k.optional {
		return fmt.Errorf("%s: %w", k.what, unix.Errno(e))
	}
	return nil
}

// stubRun runs the stub from r.Rip to its trap and gives the registers then.
// The guest's own have to be set anew afterwards.
func (c *child) stubRun(r *unix.PtraceRegs) error {
	r.Cs, r.Ss, r.Eflags, r.Orig_rax = userCode, userData, flagsAlways, noCall
	if err := setRegs(c.pid, r); err != nil {
		return fmt.Errorf("%w: registers of the stub: %w", platform.ErrMachine, err)
	}
	for {
		if err := cont(c.pid); err != nil {
			return fmt.Errorf("%w: run the stub: %w", platform.ErrMachine, err)
		}
		s, err := c.wait()
		if err != nil {
			return err
		}
		if !s.Stopped() {
			return fmt.Errorf("%w: the guest's process ended in the stub, %v", platform.ErrMachine, ending(s))
		}
		switch sig := s.StopSignal(); sig {
		case unix.SIGTRAP:
			if err := getRegs(c.pid, r); err != nil {
				return fmt.Errorf("%w: registers of the stub: %w", platform.ErrMachine, err)
			}
			return nil
		case unix.SIGSTOP:
			c.stopped = true
		case unix.SIGSEGV, unix.SIGBUS, unix.SIGILL, unix.SIGFPE, unix.SIGSYS:
			return fmt.Errorf("%w: %v in the stub", platform.ErrMachine, sig)
		}
	}
}

// makeAll makes calls by the stub's table, which it puts at a free place of the
// child's, of tableSize bytes. All are made; the first that failed and may not
// is the error.
func (c *child) makeAll(calls []call, table uint64) error {
	const rows = tableSize / rowSize
	le := binary.LittleEndian
	for len(calls) > 0 {
		some := calls[:min(len(calls), rows)]
		calls = calls[len(some):]
		b := make([]byte, 0, len(some)*rowSize)
		for _, k := range some {
			b = le.AppendUint64(b, k.nr)
			for _, a := range k.args {
				b = le.AppendUint64(b, a)
			}
		}
		if _, err := unix.Pwrite(c.mem, b, int64(table)); err != nil {
			return fmt.Errorf("%w: write the stub's table: %w", platform.ErrMachine, err)
		}
		r := unix.PtraceRegs{Rbp: table, Rbx: uint64(len(some)), Rip: tableAddr}
		if err := c.stubRun(&r); err != nil {
			return err
		}
		if _, err := unix.Pread(c.mem, b, int64(table)); err != nil {
			return fmt.Errorf("%w: read the stub's table: %w", platform.ErrMachine, err)
		}
		for i, k := range some {
			if err := k.result(le.Uint64(b[i*rowSize:])); err != nil {
				return err
			}
		}
	}
	return nil
}

// tableSize is the room for the table below the initial stack pointer: of the
// 128 KiB that the kernel maps there (fs/exec.c, setup_arg_pages).
const tableSize = 32 << 10

// ending says how a process ended.
func ending(s unix.WaitStatus) string {
	if s.Signaled() {
		return "by " + unix.SignalName(s.Signal())
	}
	return fmt.Sprintf("with status %d", s.ExitStatus())
}
