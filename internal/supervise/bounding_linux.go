package supervise

import "golang.org/x/sys/unix"

// maxCapability is more than any kernel has: they are 64-bit sets.
const maxCapability = 63

// dropBounding empties the calling thread's bounding set of capabilities, as far
// as it may: what the thread starts can then have none, root's processes
// neither. Workers do without anyway. One that still has the set empties it for
// each of its threads, capability by capability, which takes some 40 stops of
// its Go runtime and 4 ms of its start; here it takes a thread once.
func dropBounding() {
	for c := uintptr(0); c <= maxCapability; c++ {
		// The first that the kernel does not know ends the list, and without
		// CAP_SETPCAP there is nothing to be done.
		if unix.Prctl(unix.PR_CAPBSET_DROP, c, 0, 0, 0) != nil {
			return
		}
	}
}
