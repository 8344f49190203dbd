// Package ptrace runs a guest in a process of its own that never makes a
// system call: for hosts without KVM.
//
// The process is a stub of one page with the guest's memory mapped beside it.
// A thread of this program traces it: PTRACE_SYSEMU stops it at each system
// call instead of making it, and at each signal that a processor exception
// raises, which is never delivered. What the guest asked for is answered on
// the other side of package platform.
//
// It is a process and not a virtual machine: exceptions and interrupts enter
// the host's kernel, which the processor alone keeps apart from the guest. So
// its rung is that of a container at most (RATIONALE.md, "The rung of a traced
// process").
//
// # What stands behind SYSEMU
//
// The vsyscall page is a way into the kernel that no tracer sees. A seccomp
// filter refuses it, and whatever else would reach the kernel by a mistake of
// the tracer; only the stub's own madvise passes. Without seccomp there is no
// machine. Before the guest's first instruction the process has no vDSO, no
// stack, no descriptor, no capability and no way to get any, and where the
// host permits it has user, process, network, mount, IPC, host name and cgroup
// namespaces of its own and an empty root.
//
// # What it needs
//
//	Linux 4.8    seccomp after the tracer, so that containers allow ptrace
//	Linux 5.3    pidfd_open, PTRACE_GET_SYSCALL_INFO
//	Linux 5.9    close_range
//	Linux 5.14   MADV_POPULATE_WRITE: optional, saves faults
//	Linux 6.7    PAGEMAP_SCAN: optional, makes resets faster
//	/proc        mounted: the guest's memory is reached by /proc/pid/mem
//	ptrace       of children: Yama's scope 0 or 1; with 2 CAP_SYS_PTRACE
//	seccomp      filters in the kernel
//	memfd        that can be executed: vm.memfd_noexec is not 2
//	namespaces   optional: user.max_user_namespaces above 0, and no
//	             kernel.unprivileged_userns_clone=0 or
//	             kernel.apparmor_restrict_unprivileged_userns=1; else the rung
//	             is that of a plain process
//
// Each missing thing is a Refusal that names it. What the kernel promises is
// not taken for granted: New lets a guest of its own try every way into the
// kernel first.
//
// # Threads
//
// The kernel takes requests about a traced process from one thread only, and
// the process dies with it. So each Machine has a goroutine locked to a thread
// for all its life (type thread); methods go there by themselves.
package ptrace
