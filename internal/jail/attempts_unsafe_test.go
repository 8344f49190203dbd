//go:build linux && amd64

package jail_test

import (
	"errors"
	"net"
	"os"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// attempt is one thing that a jailed worker must not be able to do.
type attempt struct {
	name string
	// prepare runs before the jail.
	prepare func()
	try     func() error
	// errno is the refusal when the process is not killed.
	errno syscall.Errno
	// control: it works without a jail, for root if root is set.
	control, root bool
	// landlock: the second wall refuses it alone, with EACCES or second.
	landlock bool
	second   syscall.Errno
}

// someFile is a file, and a program, that is there on every machine.
var someFile, _ = os.Executable()

// sayDone is the environment in which the program says "done" in our place.
var sayDone = []string{roleVariable + "=done"}

// heldFolder is opened before the jail, but not kept.
var heldFolder int

var attempts = []attempt{
	{name: "open an absolute path", errno: unix.EACCES, control: true, landlock: true, try: func() error { return open(someFile) }},
	{name: "open a relative path", errno: unix.EACCES, control: true, landlock: true, try: func() error { return open(".") }},
	{name: "open its own memory", errno: unix.EACCES, control: true, landlock: true, try: func() error { return open("/proc/self/mem") }},
	{name: "open KVM again", errno: unix.EACCES, landlock: true, try: func() error { return open("/dev/kvm") }},
	{name: "open with the old call", control: true, landlock: true, try: call(unix.SYS_OPEN, at(someFile), 0)},
	{name: "open with openat2", control: true, landlock: true, try: func() error {
		_, err := unix.Openat2(unix.AT_FDCWD, someFile, &unix.OpenHow{})
		return err
	}},
	{name: "write to a folder that was open", errno: unix.EACCES, control: true, landlock: true, prepare: holdFolder, try: func() error {
		fd, err := unix.Openat(heldFolder, "new", unix.O_CREAT|unix.O_WRONLY, 0o600)
		if err != nil {
			return err
		}
		return errors.Join(unix.Close(fd), unix.Unlinkat(heldFolder, "new", 0))
	}},
	{name: "use a descriptor that was not kept", prepare: holdFolder, errno: unix.EBADF, try: func() error {
		_, err := unix.Read(heldFolder, make([]byte, 1))
		return err
	}},
	{name: "look at a file", control: true, try: func() error { return unix.Stat(someFile, new(unix.Stat_t)) }},
	{name: "change the folder", control: true, try: func() error { return unix.Chdir("/") }},
	{name: "make a folder", control: true, landlock: true, try: func() error {
		name := os.TempDir() + "/jail-test-folder"
		defer func() { _ = unix.Rmdir(name) }()
		return unix.Mkdir(name, 0o700)
	}},
	{name: "make a TCP socket", control: true, try: socket(unix.AF_INET, unix.SOCK_STREAM)},
	{name: "make a UDP socket", control: true, try: socket(unix.AF_INET, unix.SOCK_DGRAM)},
	{name: "make a Unix socket", control: true, try: socket(unix.AF_UNIX, unix.SOCK_STREAM)},
	{name: "make a netlink socket", control: true, try: socket(unix.AF_NETLINK, unix.SOCK_RAW)},
	{name: "make a vsock socket", try: socket(unix.AF_VSOCK, unix.SOCK_STREAM)},
	{name: "make a kernel crypto socket", try: socket(unix.AF_ALG, unix.SOCK_SEQPACKET)},
	{name: "bind a TCP port", control: true, landlock: true, try: func() error {
		fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM, 0)
		if err != nil {
			return err
		}
		return unix.Bind(fd, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}})
	}},
	{name: "make a pair of sockets", control: true, try: func() error {
		_, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM, 0)
		return err
	}},
	{name: "make a pipe", control: true, try: func() error { return unix.Pipe2(make([]int, 2), 0) }},
	{name: "copy a descriptor", control: true, try: func() error { _, err := unix.Dup(1); return err }},
	{name: "copy a descriptor with fcntl", control: true, try: fcntl(unix.F_DUPFD, 0)},
	{name: "have signals sent", control: true, try: fcntl(unix.F_SETFL, unix.O_ASYNC)},
	{name: "choose who gets signals", control: true, try: fcntl(unix.F_SETOWN, 1)},
	{name: "send a descriptor", control: true, try: func() error {
		return unix.Sendmsg(keptSocket, []byte("x"), unix.UnixRights(0), nil, 0)
	}},
	{name: "receive a descriptor", try: func() error {
		_, _, _, _, err := unix.Recvmsg(keptSocket, make([]byte, 1), make([]byte, 64), unix.MSG_DONTWAIT)
		return err
	}},
	{name: "fork", control: true, try: fork(unix.SYS_FORK, 0)},
	{name: "start a program as Go does", control: true, try: func() error {
		p, err := os.StartProcess(someFile, []string{"done"}, &os.ProcAttr{Env: sayDone})
		if err != nil {
			return err
		}
		_, err = p.Wait()
		return err
	}},
	{name: "clone a process", control: true, try: fork(unix.SYS_CLONE, uintptr(unix.SIGCHLD))},
	{name: "clone a process that shares memory", try: fork(unix.SYS_CLONE, unix.CLONE_VM|unix.CLONE_VFORK)},
	{name: "clone a thread in a new namespace", try: fork(unix.SYS_CLONE,
		unix.CLONE_VM|unix.CLONE_FS|unix.CLONE_FILES|unix.CLONE_SIGHAND|unix.CLONE_THREAD|unix.CLONE_NEWNET)},
	{name: "clone with the newer call", errno: unix.ENOSYS, try: call(unix.SYS_CLONE3, 0, 0)},
	{name: "execute a program", control: true, landlock: true, try: func() error {
		return unix.Exec(someFile, []string{"done"}, sayDone)
	}},
	{name: "execute a file in memory", try: func() error {
		fd, err := unix.MemfdCreate("program", 0)
		if err != nil {
			return err
		}
		return call(unix.SYS_EXECVEAT, uintptr(fd), at(""), 0, 0, unix.AT_EMPTY_PATH)()
	}},
	{name: "map shared memory, which no limit counts", control: true, try: mapping(unix.MAP_SHARED)},
	{name: "map a stack that grows, which no limit counts", control: true, try: mapping(unix.MAP_PRIVATE | unix.MAP_GROWSDOWN)},
	{name: "have equal pages of sandboxes merged", try: call(unix.SYS_MADVISE, 0, 4096, unix.MADV_MERGEABLE)},
	{name: "make a file in memory", control: true, try: func() error { _, err := unix.MemfdCreate("x", 0); return err }},
	{name: "trace its parent", control: true, root: true, landlock: true, second: unix.EPERM, try: func() error {
		err := unix.PtraceSeize(unix.Getppid())
		if err == nil {
			_ = unix.PtraceDetach(unix.Getppid())
		}
		return err
	}},
	{name: "be traced", try: call(unix.SYS_PTRACE, unix.PTRACE_TRACEME)},
	{name: "kill its parent", control: true, try: func() error { return unix.Kill(unix.Getppid(), 0) }},
	{name: "signal a thread of its parent", control: true, try: func() error {
		return unix.Tgkill(unix.Getppid(), unix.Getppid(), 0)
	}},
	{name: "signal by thread alone", control: true, try: call(unix.SYS_TKILL, uintptr(unix.Getppid()), 0)},
	{name: "signal by a process descriptor", control: true, try: func() error {
		fd, err := unix.PidfdOpen(unix.Getppid(), 0)
		if err != nil {
			return err
		}
		return unix.PidfdSendSignal(fd, 0, nil, 0)
	}},
	{name: "read its parent's memory", try: func() error {
		b := make([]byte, 8)
		local := []unix.Iovec{{Base: &b[0], Len: 8}}
		_, err := unix.ProcessVMReadv(unix.Getppid(), local, []unix.RemoteIovec{{Base: 0x400000, Len: 8}}, 0)
		return err
	}},
	{name: "map executable memory", control: true, try: mmap(unix.PROT_READ | unix.PROT_EXEC)},
	{name: "map memory that is all", control: true, try: mmap(unix.PROT_READ | unix.PROT_WRITE | unix.PROT_EXEC)},
	{name: "make memory executable", control: true, try: func() error {
		b, err := unix.Mmap(-1, 0, 4096, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
		if err != nil {
			return err
		}
		return unix.Mprotect(b, unix.PROT_READ|unix.PROT_EXEC)
	}},
	{name: "make memory executable with a key", try: call(unix.SYS_PKEY_MPROTECT, 0, 4096, unix.PROT_EXEC, ^uintptr(0))},
	{name: "map shared memory of System V", control: true, try: call(unix.SYS_SHMGET, unix.IPC_PRIVATE, 4096, 0o600)},
	{name: "remap memory", try: call(unix.SYS_MREMAP, 0, 4096, 8192, 0)},
	{name: "set up io_uring", try: call(unix.SYS_IO_URING_SETUP, 1, uintptr(unsafe.Pointer(new([256]byte))))},
	{name: "load a BPF program", try: call(unix.SYS_BPF, 0, uintptr(unsafe.Pointer(new([256]byte))), 128)},
	{name: "open performance counters", try: func() error {
		_, err := unix.PerfEventOpen(&unix.PerfEventAttr{Type: unix.PERF_TYPE_SOFTWARE, Size: 64}, 0, -1, -1, 0)
		return err
	}},
	{name: "handle page faults", control: true, root: true, try: call(unix.SYS_USERFAULTFD, 0)},
	{name: "mount", control: true, root: true, landlock: true, second: unix.EPERM, try: func() error {
		dir, err := os.MkdirTemp("", "jail-test-*")
		if err != nil {
			dir = "/tmp"
		}
		err = unix.Mount("none", dir, "tmpfs", 0, "")
		if err == nil {
			_ = unix.Unmount(dir, 0)
		}
		_ = os.Remove(dir)
		return err
	}},
	{name: "unshare", control: true, root: true, landlock: true, second: unix.EPERM, try: func() error { return unix.Unshare(unix.CLONE_NEWNET) }},
	{name: "unshare a user namespace", try: func() error { return unix.Unshare(unix.CLONE_NEWUSER) }},
	{name: "enter a namespace", try: func() error { return unix.Setns(1, 0) }},
	{name: "use the kernel's keys", try: func() error { _, err := unix.KeyctlGetKeyringID(unix.KEY_SPEC_SESSION_KEYRING, false); return err }},
	{name: "add a key", try: call(unix.SYS_ADD_KEY, 0, 0, 0, 0, 0)},
	{name: "become dumpable again", control: true, try: prctl(unix.PR_SET_DUMPABLE, 1)},
	{name: "ask for another seccomp filter", try: prctl(unix.PR_SET_SECCOMP, unix.SECCOMP_MODE_FILTER)},
	{name: "change the signal of the parent's death", control: true, try: prctl(unix.PR_SET_PDEATHSIG, 0)},
	{name: "let another trace it", try: prctl(unix.PR_SET_PTRACER, ^uintptr(0))},
	{name: "change the root", control: true, root: true, landlock: true, second: unix.EPERM, try: func() error { return unix.Chroot("/") }},
	{name: "reboot", landlock: true, second: unix.EPERM, try: call(unix.SYS_REBOOT, 0, 0, 0)},
	{name: "change the host's name", try: func() error { return unix.Sethostname([]byte("x")) }},
	{name: "set the clock", try: call(unix.SYS_CLOCK_SETTIME, 0, 0)},
	{name: "become another user", control: true, root: true, landlock: true, second: unix.EPERM, try: call(unix.SYS_SETUID, 65534)},
	{name: "take capabilities", try: call(unix.SYS_CAPSET, 0, 0)},
	{name: "raise a limit", try: func() error {
		return unix.Prlimit(0, unix.RLIMIT_CORE, &unix.Rlimit{Cur: 1, Max: 1}, nil)
	}},
	{name: "type into a terminal", try: ioctl(unix.TIOCSTI)},
	{name: "read a terminal's selection", try: ioctl(0x541c)},
	{name: "make a virtual machine", try: ioctl(0xae01)},
	{name: "an ioctl with bits that the kernel ignores", try: ioctl(1<<32 | 0xae80)},
	{name: "an allowed ioctl on what it is not for", errno: unix.ENOTTY, try: ioctl(0xae80)},
	{name: "load a kernel module", try: call(unix.SYS_FINIT_MODULE, 0, at(""), 0)},
	{name: "load a kernel", try: call(unix.SYS_KEXEC_LOAD, 0, 0, 0, 0)},
	{name: "open a file by handle", try: call(unix.SYS_OPEN_BY_HANDLE_AT, 0, 0, 0)},
	{name: "send a file's content", try: call(unix.SYS_SENDFILE, 1, keptSocket, 0, 1)},
	{name: "move pages between descriptors", try: call(unix.SYS_SPLICE, 1, 0, keptSocket, 0, 1, 0)},
	{name: "a number of the x32 ABI", try: call(0x40000000|unix.SYS_GETPID, 0)},
	{name: "a number that does not exist", try: call(4000, 0)},
	{name: "connect with Go's own network code", try: func() error {
		_, err := net.DialTimeout("unix", "@jail-test", time.Second)
		return err
	}},
}

func holdFolder() {
	fd, err := unix.Open(os.TempDir(), unix.O_RDONLY|unix.O_DIRECTORY, 0)
	if err != nil {
		os.Exit(94)
	}
	heldFolder = fd
}

func open(name string) error {
	fd, err := unix.Open(name, unix.O_RDONLY, 0)
	if err == nil {
		_ = unix.Close(fd)
	}
	return err
}

// at gives the address of a C string that is never freed.
func at(s string) uintptr {
	b := append([]byte(s), 0)
	pinned = append(pinned, b)
	return uintptr(unsafe.Pointer(&b[0]))
}

var pinned [][]byte

func call(nr uintptr, args ...uintptr) func() error {
	var a [6]uintptr
	copy(a[:], args)
	return func() error {
		if _, _, e := unix.Syscall6(nr, a[0], a[1], a[2], a[3], a[4], a[5]); e != 0 {
			return e
		}
		return nil
	}
}

func socket(family, kind int) func() error {
	return func() error { _, err := unix.Socket(family, kind, 0); return err }
}

func fcntl(cmd, arg int) func() error {
	return func() error { _, err := unix.FcntlInt(1, cmd, arg); return err }
}

func ioctl(nr uintptr) func() error { return call(unix.SYS_IOCTL, 1, nr, 0) }

func prctl(option int, arg uintptr) func() error {
	return call(unix.SYS_PRCTL, uintptr(option), arg)
}

func mmap(prot int) func() error {
	return func() error {
		_, err := unix.Mmap(-1, 0, 4096, prot, unix.MAP_PRIVATE|unix.MAP_ANON)
		return err
	}
}

// fork makes a process that ends at once. No Go code runs in it.
func fork(nr, flags uintptr) func() error {
	return func() error {
		pid, _, e := unix.RawSyscall6(nr, flags, 0, 0, 0, 0, 0)
		if e != 0 {
			return e
		}
		if pid == 0 {
			for {
				_, _, _ = unix.RawSyscall(unix.SYS_EXIT_GROUP, 0, 0, 0)
			}
		}
		_, err := unix.Wait4(int(pid), nil, 0, nil)
		return err
	}
}

// mapping maps a page of anonymous memory.
func mapping(flags int) func() error {
	return func() error {
		b, err := unix.Mmap(-1, 0, 4096, unix.PROT_READ|unix.PROT_WRITE, flags|unix.MAP_ANON)
		if err == nil {
			err = unix.Munmap(b)
		}
		return err
	}
}
