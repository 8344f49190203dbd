//go:build linux && amd64

package ptrace

import (
	"runtime"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// dropOnAllThreads gives up all capabilities. All threads read the same two
// structures, which stay in place because they are pinned.
func dropOnAllThreads(h *unix.CapUserHeader) error {
	var pin runtime.Pinner
	defer pin.Unpin()
	data := new([2]unix.CapUserData)
	pin.Pin(h)
	pin.Pin(data)
	if _, _, e := syscall.AllThreadsSyscall(unix.SYS_CAPSET, uintptr(unsafe.Pointer(h)), uintptr(unsafe.Pointer(data)), 0); e != 0 {
		return e
	}
	return nil
}
