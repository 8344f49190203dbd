//go:build linux && amd64

package ptrace

import (
	"encoding/binary"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Requests that package unix has no function for. Each pointer is converted in
// the call's own argument list, so that the object stays in place and alive for
// the call (package unsafe, rule 4).

// sysemu lets the child run until its next system call, which is not made, or
// its next signal, which is not delivered.
func sysemu(pid int) error { return request(unix.PTRACE_SYSEMU, pid, 0, nil) }

// cont lets the child run until its next signal. Its system calls are made.
func cont(pid int) error { return request(unix.PTRACE_CONT, pid, 0, nil) }

func getRegs(pid int, r *unix.PtraceRegs) error {
	return request(unix.PTRACE_GETREGS, pid, 0, unsafe.Pointer(r))
}

func setRegs(pid int, r *unix.PtraceRegs) error {
	return request(unix.PTRACE_SETREGS, pid, 0, unsafe.Pointer(r))
}

// getXState reads the extended state in the XSAVE layout and gives its length.
func getXState(pid int, b []byte) (int, error) {
	v := unix.Iovec{Base: unsafe.SliceData(b), Len: uint64(len(b))}
	err := request(unix.PTRACE_GETREGSET, pid, unix.NT_X86_XSTATE, unsafe.Pointer(&v))
	return int(v.Len), err
}

// setXState makes b, of the length that getXState gave, the extended state.
func setXState(pid int, b []byte) error {
	v := unix.Iovec{Base: unsafe.SliceData(b), Len: uint64(len(b))}
	return request(unix.PTRACE_SETREGSET, pid, unix.NT_X86_XSTATE, unsafe.Pointer(&v))
}

// signalInfo says why a signal was raised: si_code and si_addr of siginfo_t.
func signalInfo(pid int) (code int32, addr uint64, err error) {
	var b [128]byte // SI_MAX_SIZE
	err = request(unix.PTRACE_GETSIGINFO, pid, 0, unsafe.Pointer(&b))
	return int32(binary.LittleEndian.Uint32(b[8:])), binary.LittleEndian.Uint64(b[16:]), err
}

// callArch gives the architecture by which the child enters the system call
// that it is stopped at (Linux 5.3).
func callArch(pid int) (uint32, error) {
	var b [88]byte // struct ptrace_syscall_info
	_, _, e := unix.RawSyscall6(unix.SYS_PTRACE, unix.PTRACE_GET_SYSCALL_INFO, uintptr(pid), unsafe.Sizeof(b), uintptr(unsafe.Pointer(&b)), 0, 0)
	if e != 0 {
		return 0, e
	}
	return binary.LittleEndian.Uint32(b[4:]), nil
}

// request makes a ptrace call, none of which blocks.
func request(nr uintptr, pid int, addr uintptr, data unsafe.Pointer) error {
	_, _, e := unix.RawSyscall6(unix.SYS_PTRACE, nr, uintptr(pid), addr, uintptr(data), 0, 0)
	if e != 0 {
		return e
	}
	return nil
}
