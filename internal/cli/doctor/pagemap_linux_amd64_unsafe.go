//go:build linux && amd64

package doctor

import (
	"errors"
	"os"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/maf-sandbox/maf-sandbox-go/internal/kvm"
)

// pagemapScan asks for a scan of no memory at all: a kernel that does not know
// the call says so, whatever else it may find wrong.
func pagemapScan() bool {
	f, err := os.Open("/proc/self/pagemap")
	if err != nil {
		return false
	}
	defer func() { _ = f.Close() }() // only read
	var arg kvm.PMScanArg
	arg.Size = uint64(unsafe.Sizeof(arg))
	// Sound: the kernel reads and writes arg only during the call, and arg has
	// its layout.
	_, _, e := syscall.Syscall(syscall.SYS_IOCTL, f.Fd(), kvm.PagemapScan, uintptr(unsafe.Pointer(&arg)))
	return e == 0 || !errors.Is(e, unix.ENOTTY)
}
