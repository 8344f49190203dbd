//go:build linux && amd64

package pagemap

import (
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/maf-sandbox/maf-sandbox-go/internal/kvm"
)

// Request is the number of the ioctl that Scan makes, for a jail to allow.
const Request = kvm.PagemapScan

// Regions is the buffer for one scan. What is not present of a region is
// swapped out.
type Regions [512]kvm.PageRegion

// Scan fills out with runs of private pages in [start,end): present or swapped,
// neither a file's nor the zero page. fd is an open /proc/pid/pagemap, and the
// addresses are that process's. It gives their number and where to go on. Linux
// 6.7 and later have it.
func Scan(fd int, start, end uint64, out *Regions) (n int, next uint64, err error) {
	// The kernel writes to out through an address that is a mere number to Go:
	// pinned, out is on the heap, where nothing moves, and not on a stack.
	var pin runtime.Pinner
	pin.Pin(out)
	defer pin.Unpin()
	arg := kvm.PMScanArg{
		Start: start, End: end, VecLen: uint64(len(out)),
		Vec:               uint64(uintptr(unsafe.Pointer(out))),
		CategoryInverted:  kvm.PageIsFile | kvm.PageIsPFNZero,
		CategoryMask:      kvm.PageIsFile | kvm.PageIsPFNZero,
		CategoryAnyOfMask: kvm.PageIsPresent | kvm.PageIsSwapped,
		ReturnMask:        kvm.PageIsPresent,
	}
	arg.Size = uint64(unsafe.Sizeof(arg))
	r, _, e := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), kvm.PagemapScan, uintptr(unsafe.Pointer(&arg)))
	if e != 0 {
		return 0, 0, e
	}
	return int(r), arg.WalkEnd, nil
}
