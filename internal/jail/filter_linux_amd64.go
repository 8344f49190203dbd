package jail

import (
	"math"
	"syscall"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

// always are the calls allowed with any arguments. The kernel remembers these
// (since 5.11) and does not run the filter for them.
var always = []uint32{
	// The descriptors held. Reading at an offset is how a page of a file that
	// is held, or the process's own page map, is read.
	unix.SYS_READ, unix.SYS_WRITE, unix.SYS_READV, unix.SYS_WRITEV, unix.SYS_PREAD64, unix.SYS_PWRITE64, unix.SYS_CLOSE,
	unix.SYS_RECVFROM, unix.SYS_SHUTDOWN, // of the sockets that it has
	// Waiting. Descriptors can be waited for, not made.
	unix.SYS_POLL, unix.SYS_PPOLL, unix.SYS_EPOLL_WAIT, unix.SYS_EPOLL_PWAIT, unix.SYS_EPOLL_CTL, unix.SYS_FUTEX,
	unix.SYS_NANOSLEEP, unix.SYS_CLOCK_NANOSLEEP, unix.SYS_SCHED_YIELD, unix.SYS_RESTART_SYSCALL,
	// Time, where the vDSO has to ask, and random numbers.
	unix.SYS_CLOCK_GETTIME, unix.SYS_CLOCK_GETRES, unix.SYS_GETTIMEOFDAY, unix.SYS_GETRANDOM,
	// Memory. mmap and mprotect have conditions.
	unix.SYS_BRK, unix.SYS_MUNMAP, unix.SYS_MEMBARRIER,
	// Signals of one's own.
	unix.SYS_RT_SIGACTION, unix.SYS_RT_SIGPROCMASK, unix.SYS_RT_SIGRETURN, unix.SYS_SIGALTSTACK,
	// Threads as they come and go.
	unix.SYS_GETPID, unix.SYS_GETTID, unix.SYS_SET_ROBUST_LIST, unix.SYS_RSEQ, unix.SYS_EXIT, unix.SYS_EXIT_GROUP,
}

// answered are the calls that get an error instead of a death: a C library
// makes them by itself when a thread starts, and goes on without.
var answered = []struct {
	nr    uint32
	errno syscall.Errno
}{
	// The flags of clone3 are in memory, where a filter cannot look. C
	// libraries turn to clone where it does not exist.
	{unix.SYS_CLONE3, unix.ENOSYS},
	// glibc before 2.35 counts the processors from a file when a thread first
	// allocates. Landlock refuses with the same error.
	{unix.SYS_OPENAT, unix.EACCES},
}

const (
	// threadMust are the flags without which clone would make a process or
	// leave something unshared.
	threadMust = unix.CLONE_VM | unix.CLONE_FS | unix.CLONE_FILES | unix.CLONE_SIGHAND | unix.CLONE_THREAD
	// threadMay are those that the Go runtime and C libraries add.
	threadMay = unix.CLONE_SYSVSEM | unix.CLONE_SETTLS | unix.CLONE_PARENT_SETTID | unix.CLONE_CHILD_SETTID | unix.CLONE_CHILD_CLEARTID
	// readWrite is all that memory can be: nothing becomes executable.
	readWrite = unix.PROT_READ | unix.PROT_WRITE
	// setVMA is PR_SET_VMA, by which the runtime names its memory (Go 1.25,
	// Linux 5.17).
	setVMA = unix.PR_SET_VMA
)

// condition holds when (argument & mask) == value, over all 64 bits.
type condition struct {
	arg         int // 0 to 5
	mask, value uint64
}

// rule allows a call when all conditions hold.
type rule []condition

// conditional is a call that is allowed when one of the rules holds.
type conditional struct {
	nr    uint32
	rules []rule
}

// sometimes are the calls allowed with certain arguments. Bits of an argument
// that the kernel does not look at have to be zero, too.
func sometimes(pid int, spec Spec) []conditional {
	requests := make([]rule, 0, len(spec.Ioctls))
	for _, nr := range spec.Ioctls {
		requests = append(requests, rule{is(1, uint64(nr))})
	}
	// First those that are called most.
	return append(tracing(spec.Trace), []conditional{
		{unix.SYS_IOCTL, requests},
		// Private memory, which RLIMIT_DATA counts: not shared, not of a stack that
		// grows, not of huge pages.
		{unix.SYS_MMAP, []rule{
			{only(2, readWrite), {3, ^uint64(mapMay), unix.MAP_PRIVATE}},
			{only(2, readWrite), is(3, mapDroppable|unix.MAP_ANONYMOUS)},
		}},
		{unix.SYS_MADVISE, advice()},
		{unix.SYS_MPROTECT, []rule{{only(2, readWrite)}}},
		// Signals to one's own threads: pre-emption, and interrupting a virtual
		// processor.
		{unix.SYS_TGKILL, []rule{{is(0, uint64(pid))}}},
		// Threads, never processes.
		{unix.SYS_CLONE, []rule{{{0, ^uint64(threadMay), threadMust}}}},
		// Looking at descriptors and changing how they block; never who gets
		// signals about them.
		{unix.SYS_FCNTL, []rule{
			{is(1, unix.F_GETFD)}, {is(1, unix.F_GETFL)}, {is(1, unix.F_SETFL), {2, unix.O_ASYNC, 0}},
		}},
		{unix.SYS_PRCTL, []rule{{is(0, setVMA)}}},
		// The number of processors, for the process itself.
		{unix.SYS_SCHED_GETAFFINITY, []rule{{is(0, 0)}}},
	}...)
}

// tracing are the calls that a tracer makes about its children. No signal is
// ever passed on to them by ptrace, and none but these two is sent. A child's
// number is its own as long as nobody has waited for its end.
func tracing(children []Tracee) []conditional {
	if len(children) == 0 {
		return nil
	}
	var requests, waits, signals []rule
	for _, t := range children {
		child := is(1, uint64(t.PID))
		for _, nr := range []uint64{
			unix.PTRACE_SYSEMU, unix.PTRACE_GETREGS, unix.PTRACE_SETREGS,
			unix.PTRACE_GETSIGINFO, unix.PTRACE_GET_SYSCALL_INFO,
		} {
			r := rule{is(0, nr), child}
			if nr == unix.PTRACE_SYSEMU {
				r = append(r, is(3, 0))
			}
			requests = append(requests, r)
		}
		for _, nr := range []uint64{unix.PTRACE_GETREGSET, unix.PTRACE_SETREGSET} {
			requests = append(requests, rule{is(0, nr), child, is(2, unix.NT_X86_XSTATE)})
		}
		// The child has a filter of its own that decides what it can do then.
		requests = append(requests, rule{is(0, unix.PTRACE_CONT), child, is(3, 0)})
		waits = append(waits, rule{is(0, uint64(t.PID)), is(2, unix.WALL), is(3, 0)})
		for _, s := range []uint64{uint64(unix.SIGSTOP), uint64(unix.SIGKILL)} {
			signals = append(signals, rule{is(0, uint64(t.FD)), is(1, s), is(2, 0), is(3, 0)})
		}
	}
	return []conditional{{unix.SYS_PTRACE, requests}, {unix.SYS_WAIT4, waits}, {unix.SYS_PIDFD_SEND_SIGNAL, signals}}
}

func is(arg int, v uint64) condition { return condition{arg, math.MaxUint64, v} }

// only allows no bits but those of mask.
func only(arg int, mask uint64) condition { return condition{arg, ^mask, 0} }

// Offsets in struct seccomp_data (include/uapi/linux/seccomp.h). Arguments are
// 64 bits wide, the filter's words 32: the low one comes first on x86-64.
const (
	offNumber = 0
	offArch   = 4
	offArgs   = 16
)

// x32 marks the numbers of the x32 ABI, which shares x86-64's architecture.
const x32 = 0x40000000

// What the filter answers.
const (
	verdictAllow = unix.SECCOMP_RET_ALLOW
	verdictKill  = unix.SECCOMP_RET_KILL_PROCESS
	verdictErrno = unix.SECCOMP_RET_ERRNO // plus the number
)

// assemble makes the filter's program.
//
// Every call has a block of its own, which ends in a verdict: nothing that a
// block has loaded is ever compared in another. (The filter module that was
// tried first goes on to the next call's number with an argument loaded, so
// that mmap with protection 7 passed for call 7, poll.)
func assemble(pid int, spec Spec) []bpf.Instruction {
	p := []bpf.Instruction{
		bpf.LoadAbsolute{Off: offArch, Size: 4},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: unix.AUDIT_ARCH_X86_64, SkipTrue: 1},
		bpf.RetConstant{Val: verdictKill},
		bpf.LoadAbsolute{Off: offNumber, Size: 4},
		bpf.JumpIf{Cond: bpf.JumpGreaterOrEqual, Val: x32, SkipFalse: 1},
		bpf.RetConstant{Val: verdictKill},
	}
	for _, c := range sometimes(pid, spec) {
		block := c.assemble()
		p = append(p,
			bpf.JumpIf{Cond: bpf.JumpEqual, Val: c.nr, SkipTrue: 1},
			bpf.Jump{Skip: uint32(len(block))}) // may be further than JumpIf reaches
		p = append(p, block...)
	}
	for _, nr := range always {
		p = append(p, bpf.JumpIf{Cond: bpf.JumpEqual, Val: nr, SkipFalse: 1}, bpf.RetConstant{Val: verdictAllow})
	}
	for _, a := range answered {
		p = append(p, bpf.JumpIf{Cond: bpf.JumpEqual, Val: a.nr, SkipFalse: 1}, bpf.RetConstant{Val: verdictErrno | uint32(a.errno)})
	}
	return append(p, bpf.RetConstant{Val: verdictKill})
}

// assemble makes the block of one call: rule after rule, then the refusal.
func (c conditional) assemble() []bpf.Instruction {
	var p []bpf.Instruction
	for _, r := range c.rules {
		p = append(p, r.assemble()...)
	}
	return append(p, bpf.RetConstant{Val: verdictKill})
}

// assemble makes the instructions that allow the call if the rule holds, and
// fall through if not. A rule has a handful of conditions of eight instructions
// at most, which JumpIf reaches across.
func (r rule) assemble() []bpf.Instruction {
	var p []bpf.Instruction
	var jumps []int
	for _, c := range r {
		for word, shift := range []int{0, 32} {
			mask, value := uint32(c.mask>>shift), uint32(c.value>>shift)
			if mask == 0 {
				continue
			}
			p = append(p, bpf.LoadAbsolute{Off: uint32(offArgs + 8*c.arg + 4*word), Size: 4})
			if mask != math.MaxUint32 {
				p = append(p, bpf.ALUOpConstant{Op: bpf.ALUOpAnd, Val: mask})
			}
			jumps = append(jumps, len(p))
			p = append(p, bpf.JumpIf{Cond: bpf.JumpEqual, Val: value})
		}
	}
	p = append(p, bpf.RetConstant{Val: verdictAllow})
	for _, at := range jumps {
		j := p[at].(bpf.JumpIf)
		j.SkipFalse = uint8(len(p) - at - 1)
		p[at] = j
	}
	return p
}

const (
	mapMay = unix.MAP_ANONYMOUS | unix.MAP_FIXED | unix.MAP_NORESERVE | unix.MAP_STACK
	// mapDroppable is MAP_DROPPABLE of Linux 6.11, in which the C library's and
	// Go's random numbers keep their state; it is not counted, and goes away
	// under pressure.
	mapDroppable = 0x8
)

// advice is what the Go runtime and the platforms tell the kernel about memory.
// Merging equal pages is not among it: it would tell sandboxes of each other.
func advice() (rules []rule) {
	for _, a := range []uint64{
		unix.MADV_DONTNEED, unix.MADV_FREE, unix.MADV_HUGEPAGE, unix.MADV_NOHUGEPAGE, unix.MADV_COLLAPSE, unix.MADV_POPULATE_WRITE,
	} {
		rules = append(rules, rule{is(2, a)})
	}
	return rules
}
