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
	arg := kvm.PMScanArg{
		Start: start, End: end, VecLen: scanRegions,
		Vec:               uint64(uintptr(unsafe.Pointer(out))),
		CategoryInverted:  kvm.PageIsFile | kvm.PageIsPFNZero,
		CategoryMask:      kvm.PageIsFile | kvm.PageIsPFNZero,
		CategoryAnyOfMask: kvm.PageIsPresent | kvm.PageIsSwapped,
		ReturnMask:        kvm.PageIsPresent,
	}
	arg.Size = uint64(unsafe.Sizeof(arg))
	// out and arg are kept alive past the call; out does not move, because the
	// caller holds it in a heap object.
	n, _, e := unix.Syscall(unix.SYS_IOCTL, uintptr(p.fd), kvm.PagemapScan, uintptr(unsafe.Pointer(&arg)))
	runtime.KeepAlive(out)
	if e != 0 {
		return 0, 0, e
	}
	return int(n), arg.WalkEnd, nil
}
