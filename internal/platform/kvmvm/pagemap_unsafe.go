//go:build linux && amd64

package kvmvm

import (
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/maf-sandbox/maf-sandbox-go/internal/kvm"
)

// pagemap is an open /proc/self/pagemap.
type pagemap struct{ fd int }

// scan fills out with runs of private pages in [start,end): present or swapped,
// neither a file's nor the zero page. It gives their number and where to go on.
func (p pagemap) scan(start, end uint64, out *regions) (int, uint64, error) {
	// The kernel writes to out through an address that is a mere number to Go:
	// pinned, out is on the heap, where nothing moves, and not on a stack.
	var pin runtime.Pinner
	pin.Pin(out)
	defer pin.Unpin()
	arg := kvm.PMScanArg{
		Start: start, End: end, VecLen: scanRegions,
		Vec:               uint64(uintptr(unsafe.Pointer(out))),
		CategoryInverted:  kvm.PageIsFile | kvm.PageIsPFNZero,
		CategoryMask:      kvm.PageIsFile | kvm.PageIsPFNZero,
		CategoryAnyOfMask: kvm.PageIsPresent | kvm.PageIsSwapped,
		ReturnMask:        kvm.PageIsPresent,
	}
	arg.Size = uint64(unsafe.Sizeof(arg))
	n, _, e := unix.Syscall(unix.SYS_IOCTL, uintptr(p.fd), kvm.PagemapScan, uintptr(unsafe.Pointer(&arg)))
	if e != 0 {
		return 0, 0, e
	}
	return int(n), arg.WalkEnd, nil
}
