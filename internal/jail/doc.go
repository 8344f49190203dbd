// Package jail takes everything from the calling process that a worker does
// not need: after Enter it can compute, run its virtual machine and use the
// descriptors it was told to keep, and nothing else, for the rest of its life.
//
// Two walls stand behind each other, and each is meant to hold alone:
//
//   - a seccomp filter over all threads that lists what is allowed and kills
//     the process for everything else. It stops what Landlock does not know:
//     new sockets of any kind, fork, exec, ptrace, signals to other processes,
//     namespaces, executable memory, io_uring, bpf and the rest of the kernel;
//   - Landlock without a single rule, privileges that cannot grow, no
//     capabilities, no core dumps, no debugger.
//
// What needs which kernel:
//
//	3.17  seccomp over all threads at once; required
//	4.14  killing the process instead of a thread; required
//	5.9   close_range; required
//	5.13  Landlock ABI 1: no access to files
//	5.19  ABI 2: no renaming or linking across folders
//	6.2   ABI 3: no truncating
//	6.7   ABI 4: no TCP bind or connect
//	6.10  ABI 5: no ioctl on device files opened later
//	6.12  ABI 6: no abstract Unix sockets of others
//	6.15  ABI 7: audit flags only, not used
//
// Later versions are used as far as the Landlock module knows them. Landlock is
// best effort, as a kernel can be built or started without it; Report tells.
// Landlock's scoping of signals (ABI 6) is left out on purpose: it is enforced
// thread by thread, and before the fix in 6.15 the threads of one process could
// then no longer signal each other, which the Go runtime and KVM's interruption
// rest on. The filter's rule for tgkill does the same work.
//
// What a worker has to know:
//
//   - Enter is for the whole process, cannot be undone and is called once. After
//     an error the process is half jailed and has to exit.
//   - No file can be opened afterwards, be it for a time zone, a certificate or
//     whatever else a library reads when it is first needed. Load first. Opening
//     in the usual way (openat) is refused with EACCES, because C libraries try
//     at moments of their own; nearly everything else that is not allowed is
//     answered by SIGSYS, which cannot be caught.
//   - In a build with cgo, what has to be done on every thread takes a signal to
//     each of them for each step. Build workers without.
//   - In a build with cgo, Enter comes before the first KVM_RUN: from then on the
//     process has a kernel thread of the virtual machine (vhost_task), which
//     blocks every signal, and what is to be done on every thread would wait for
//     it for ever.
//   - Sockets are used with read, write, readv and writev. The message calls
//     (sendmsg, recvmsg) are not allowed: they carry descriptors, and a filter
//     cannot look at that.
//   - Threads can be made. RLIMIT_NPROC counts all processes and threads of the
//     user, and a Go program that cannot make a thread dies, so it is no bound for
//     one worker: a cgroup's pids.max is the place for that. Enter lowers it all
//     the same, by an eighth: that much of what the user may have is beyond the
//     reach of all jailed processes together, so that one that makes threads
//     without end cannot keep host, supervisor and shell from theirs. Linux does
//     not count for root.
//   - A child that is traced already can be traced on (Spec.Trace), by requests
//     that neither let it go nor give it a signal. What it may do itself is for a
//     filter of its own to say: it is outside this jail. Landlock permits no new
//     access to it, so its memory is reached by a descriptor opened before.
//   - CPU profiling does not work (timer_create).
package jail
