package kvm

// WorkIoctls are the ioctl request numbers that a virtual machine needs once it
// has been made, those used most first: what a jail has to allow.
func WorkIoctls() []uint32 {
	return []uint32{
		kRun, PagemapScan, kSetSregs, kGetSregs, kSetXSave, kGetXSave, kSetVCPUEvents, kSetMSRs, kGetMSRs,
	}
}
