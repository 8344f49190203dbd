//go:build linux && amd64

package jail

import (
	"errors"
	"fmt"
	"runtime"
	"unsafe"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
	"kernel.org/pub/linux/libs/security/libcap/psx"
)

// onAllThreads makes a system call on every thread. Without cgo this is the
// runtime's syscall.AllThreadsSyscall; with cgo, where that does not work, it
// is done by a signal to each thread. Different results end the process.
func onAllThreads(nr, a, b, c uintptr) error {
	if _, _, e := psx.Syscall6(nr, a, b, c, 0, 0, 0); e != 0 {
		return e
	}
	return nil
}

// capabilities gives the calling thread's sets.
func capabilities() (data [2]unix.CapUserData, err error) {
	h := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	err = unix.Capget(&h, &data[0])
	return data, err
}

// clearCapabilities empties the permitted, effective and inheritable sets of
// every thread. All threads read the same two structures, which stay in place
// because they are pinned.
func clearCapabilities() error {
	var pin runtime.Pinner
	defer pin.Unpin()
	h := &unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	data := new([2]unix.CapUserData)
	pin.Pin(h)
	pin.Pin(data)
	return onAllThreads(unix.SYS_CAPSET, uintptr(unsafe.Pointer(h)), uintptr(unsafe.Pointer(data)), 0)
}

// load puts a filter over all threads. The kernel reads the program during the
// call and keeps no pointer to it.
// When a thread cannot be brought under it, the call "succeeds" with the number
// of that thread.
func load(filter []bpf.RawInstruction) error {
	if len(filter) == 0 || len(filter) > unix.BPF_MAXINSNS {
		return fmt.Errorf("a filter of %d instructions; from 1 to %d are possible", len(filter), unix.BPF_MAXINSNS)
	}
	program := make([]unix.SockFilter, len(filter))
	for i, f := range filter {
		program[i] = unix.SockFilter{Code: f.Op, Jt: f.Jt, Jf: f.Jf, K: f.K}
	}
	prog := &unix.SockFprog{Len: uint16(len(program)), Filter: &program[0]}
	r, _, e := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, unix.SECCOMP_FILTER_FLAG_TSYNC, uintptr(unsafe.Pointer(prog)))
	runtime.KeepAlive(prog)
	if errors.Is(e, unix.ENOSYS) || errors.Is(e, unix.EINVAL) {
		return fmt.Errorf("this kernel has no seccomp filters: %w", e)
	}
	if e != 0 {
		return e
	}
	if r != 0 {
		return fmt.Errorf("thread %d cannot be brought under the filter", r)
	}
	return nil
}
