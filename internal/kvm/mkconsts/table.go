package main

// group is one const block.
type group struct {
	doc       string
	verb      string // how values are written
	constants []constant
}

// constant is a Go name for a C expression.
type constant struct{ name, expr string }

// prologue comes before main. Headers older than Linux 6.7 lack PAGEMAP_SCAN;
// its stable interface is stated here as include/uapi/linux/fs.h of Linux 6.7
// has it (Documentation/admin-guide/mm/pagemap.rst).
const prologue = `#include <linux/fs.h>
#include <linux/kvm.h>
#include <stddef.h>
#include <stdio.h>
#include <sys/ioctl.h>

#ifndef PAGEMAP_SCAN
#define PAGE_IS_WPALLOWED (1 << 0)
#define PAGE_IS_WRITTEN (1 << 1)
#define PAGE_IS_FILE (1 << 2)
#define PAGE_IS_PRESENT (1 << 3)
#define PAGE_IS_SWAPPED (1 << 4)
#define PAGE_IS_PFNZERO (1 << 5)
#define PAGE_IS_HUGE (1 << 6)
#define PAGE_IS_SOFT_DIRTY (1 << 7)
#define PM_SCAN_WP_MATCHING (1 << 0)
#define PM_SCAN_CHECK_WPASYNC (1 << 1)
struct page_region {
	__u64 start, end, categories;
};
struct pm_scan_arg {
	__u64 size, flags, start, end, walk_end, vec, vec_len, max_pages;
	__u64 category_inverted, category_mask, category_anyof_mask, return_mask;
};
#define PAGEMAP_SCAN _IOWR('f', 16, struct pm_scan_arg)
#endif
#ifndef PAGE_IS_SOFT_DIRTY /* since Linux 6.8 */
#define PAGE_IS_SOFT_DIRTY (1 << 7)
#endif

#define RUN(field) offsetof(struct kvm_run, field)

`

const (
	hex     = "%#x"
	decimal = "%d"
)

var groups = []group{
	{"Requests of ioctl(2) on the device, on a machine and on a processor.", hex, []constant{
		{"kGetAPIVersion", "KVM_GET_API_VERSION"},
		{"kCreateVM", "KVM_CREATE_VM"},
		{"kCheckExtension", "KVM_CHECK_EXTENSION"},
		{"kGetVCPUMmapSize", "KVM_GET_VCPU_MMAP_SIZE"},
		{"kGetSupportedCPUID", "KVM_GET_SUPPORTED_CPUID"},
		{"kCreateVCPU", "KVM_CREATE_VCPU"},
		{"kSetUserMemoryRegion", "KVM_SET_USER_MEMORY_REGION"},
		{"kSetTSSAddr", "KVM_SET_TSS_ADDR"},
		{"kSetIdentityMapAddr", "KVM_SET_IDENTITY_MAP_ADDR"},
		{"kRun", "KVM_RUN"},
		{"kGetRegs", "KVM_GET_REGS"},
		{"kSetRegs", "KVM_SET_REGS"},
		{"kGetSregs", "KVM_GET_SREGS"},
		{"kSetSregs", "KVM_SET_SREGS"},
		{"kGetMSRs", "KVM_GET_MSRS"},
		{"kSetMSRs", "KVM_SET_MSRS"},
		{"kGetCPUID2", "KVM_GET_CPUID2"},
		{"kSetCPUID2", "KVM_SET_CPUID2"},
		{"kGetXSave", "KVM_GET_XSAVE"},
		{"kSetXSave", "KVM_SET_XSAVE"},
		{"kGetXCRs", "KVM_GET_XCRS"},
		{"kSetXCRs", "KVM_SET_XCRS"},
		{"kGetVCPUEvents", "KVM_GET_VCPU_EVENTS"},
		{"kSetVCPUEvents", "KVM_SET_VCPU_EVENTS"},
		{"kGetTSCKHz", "KVM_GET_TSC_KHZ"},
		{"kSetSignalMask", "KVM_SET_SIGNAL_MASK"},
	}},
	{"Extensions to ask System.Cap for.", decimal, []constant{
		{"CapUserMemory", "KVM_CAP_USER_MEMORY"},
		{"CapNRVCPUs", "KVM_CAP_NR_VCPUS"},
		{"CapMaxVCPUs", "KVM_CAP_MAX_VCPUS"},
		{"CapXSave", "KVM_CAP_XSAVE"},
		{"CapXCRs", "KVM_CAP_XCRS"},
		{"CapTSCControl", "KVM_CAP_TSC_CONTROL"},
		{"CapGetTSCKHz", "KVM_CAP_GET_TSC_KHZ"},
		{"CapSyncRegs", "KVM_CAP_SYNC_REGS"},
		{"CapImmediateExit", "KVM_CAP_IMMEDIATE_EXIT"},
		{"CapXSave2", "KVM_CAP_XSAVE2"},
	}},
	{"Reasons for which Run returns (Documentation/virt/kvm/api.rst, section 5).", decimal, []constant{
		{"ExitUnknown", "KVM_EXIT_UNKNOWN"},
		{"ExitException", "KVM_EXIT_EXCEPTION"},
		{"ExitIO", "KVM_EXIT_IO"},
		{"ExitHypercall", "KVM_EXIT_HYPERCALL"},
		{"ExitDebug", "KVM_EXIT_DEBUG"},
		{"ExitHLT", "KVM_EXIT_HLT"},
		{"ExitMMIO", "KVM_EXIT_MMIO"},
		{"ExitIRQWindowOpen", "KVM_EXIT_IRQ_WINDOW_OPEN"},
		{"ExitShutdown", "KVM_EXIT_SHUTDOWN"},
		{"ExitFailEntry", "KVM_EXIT_FAIL_ENTRY"},
		{"ExitIntr", "KVM_EXIT_INTR"},
		{"ExitSetTPR", "KVM_EXIT_SET_TPR"},
		{"ExitTPRAccess", "KVM_EXIT_TPR_ACCESS"},
		{"ExitNMI", "KVM_EXIT_NMI"},
		{"ExitInternalError", "KVM_EXIT_INTERNAL_ERROR"},
		{"ExitSystemEvent", "KVM_EXIT_SYSTEM_EVENT"},
		{"ExitRDMSR", "KVM_EXIT_X86_RDMSR"},
		{"ExitWRMSR", "KVM_EXIT_X86_WRMSR"},
		{"ExitBusLock", "KVM_EXIT_X86_BUS_LOCK"},
	}},
	{"Directions of an ExitIO.", decimal, []constant{
		{"IOIn", "KVM_EXIT_IO_IN"},
		{"IOOut", "KVM_EXIT_IO_OUT"},
	}},
	{"Kinds of an ExitInternalError.", decimal, []constant{
		{"SuberrorEmulation", "KVM_INTERNAL_ERROR_EMULATION"},
		{"SuberrorSimultaneous", "KVM_INTERNAL_ERROR_SIMUL_EX"},
		{"SuberrorDelivery", "KVM_INTERNAL_ERROR_DELIVERY_EV"},
		{"SuberrorUnexpectedExit", "KVM_INTERNAL_ERROR_UNEXPECTED_EXIT_REASON"},
	}},
	{"Bits of CPUIDEntry.Flags and VCPUEvents.Flags.", hex, []constant{
		{"CPUIDSignificantIndex", "KVM_CPUID_FLAG_SIGNIFCANT_INDEX"},
		{"EventsNMIPending", "KVM_VCPUEVENT_VALID_NMI_PENDING"},
		{"EventsSIPIVector", "KVM_VCPUEVENT_VALID_SIPI_VECTOR"},
		{"EventsShadow", "KVM_VCPUEVENT_VALID_SHADOW"},
		{"EventsSMM", "KVM_VCPUEVENT_VALID_SMM"},
		{"EventsPayload", "KVM_VCPUEVENT_VALID_PAYLOAD"},
	}},
	{"Bits of kvm_valid_regs and kvm_dirty_regs.", hex, []constant{
		{"syncRegs", "KVM_SYNC_X86_REGS"},
		{"syncSregs", "KVM_SYNC_X86_SREGS"},
		{"syncEvents", "KVM_SYNC_X86_EVENTS"},
	}},
	{"Offsets in struct kvm_run, and its size, in bytes.", hex, []constant{
		{"offImmediateExit", "RUN(immediate_exit)"},
		{"offExitReason", "RUN(exit_reason)"},
		{"offHWExitReason", "RUN(hw.hardware_exit_reason)"},
		{"offFailEntryReason", "RUN(fail_entry.hardware_entry_failure_reason)"},
		{"offIODirection", "RUN(io.direction)"},
		{"offIOSize", "RUN(io.size)"},
		{"offIOPort", "RUN(io.port)"},
		{"offIOCount", "RUN(io.count)"},
		{"offMMIOAddr", "RUN(mmio.phys_addr)"},
		{"offSuberror", "RUN(internal.suberror)"},
		{"offValidRegs", "RUN(kvm_valid_regs)"},
		{"offDirtyRegs", "RUN(kvm_dirty_regs)"},
		{"offSyncRegs", "RUN(s.regs.regs)"},
		{"offSyncSregs", "RUN(s.regs.sregs)"},
		{"offSyncEvents", "RUN(s.regs.events)"},
		{"runStructSize", "sizeof(struct kvm_run)"},
	}},
	{"Sizes of the structures that have a mirror in Go, in bytes.", decimal, []constant{
		{"sizeRegs", "sizeof(struct kvm_regs)"},
		{"sizeSregs", "sizeof(struct kvm_sregs)"},
		{"sizeSegment", "sizeof(struct kvm_segment)"},
		{"sizeDTable", "sizeof(struct kvm_dtable)"},
		{"sizeXSave", "sizeof(struct kvm_xsave)"},
		{"sizeXCRs", "sizeof(struct kvm_xcrs)"},
		{"sizeVCPUEvents", "sizeof(struct kvm_vcpu_events)"},
		{"sizeCPUIDEntry", "sizeof(struct kvm_cpuid_entry2)"},
		{"sizeMSREntry", "sizeof(struct kvm_msr_entry)"},
		{"sizePMScanArg", "sizeof(struct pm_scan_arg)"},
		{"sizePageRegion", "sizeof(struct page_region)"},
	}},
	{"Offsets of fields whose mirror's place a test checks, in bytes.", decimal, []constant{
		{"offRegsRIP", "offsetof(struct kvm_regs, rip)"},
		{"offSregsGDT", "offsetof(struct kvm_sregs, gdt)"},
		{"offSregsCR0", "offsetof(struct kvm_sregs, cr0)"},
		{"offSregsEFER", "offsetof(struct kvm_sregs, efer)"},
		{"offSegmentSelector", "offsetof(struct kvm_segment, selector)"},
		{"offSegmentG", "offsetof(struct kvm_segment, g)"},
		{"offSegmentUnusable", "offsetof(struct kvm_segment, unusable)"},
		{"offEventsInterrupt", "offsetof(struct kvm_vcpu_events, interrupt)"},
		{"offEventsNMI", "offsetof(struct kvm_vcpu_events, nmi)"},
		{"offEventsFlags", "offsetof(struct kvm_vcpu_events, flags)"},
		{"offEventsSMI", "offsetof(struct kvm_vcpu_events, smi)"},
		{"offEventsHasPayload", "offsetof(struct kvm_vcpu_events, exception_has_payload)"},
		{"offEventsPayload", "offsetof(struct kvm_vcpu_events, exception_payload)"},
		{"offCPUIDEAX", "offsetof(struct kvm_cpuid_entry2, eax)"},
		{"offMSRData", "offsetof(struct kvm_msr_entry, data)"},
		{"offXCRs", "offsetof(struct kvm_xcrs, xcrs)"},
		{"offPMScanWalkEnd", "offsetof(struct pm_scan_arg, walk_end)"},
		{"offPMScanVec", "offsetof(struct pm_scan_arg, vec)"},
		{"offPMScanMaxPages", "offsetof(struct pm_scan_arg, max_pages)"},
		{"offPMScanCategoryMask", "offsetof(struct pm_scan_arg, category_mask)"},
		{"offPMScanReturnMask", "offsetof(struct pm_scan_arg, return_mask)"},
		{"offPageRegionCategories", "offsetof(struct page_region, categories)"},
	}},
	{"PagemapScan is the ioctl(2) request on /proc/self/pagemap that lists pages by\ncategory (Linux 6.7 and later); its argument is a PMScanArg.", hex, []constant{
		{"PagemapScan", "PAGEMAP_SCAN"},
	}},
	{"Bits of PMScanArg.Flags.", hex, []constant{
		{"PMScanWPMatching", "PM_SCAN_WP_MATCHING"},
		{"PMScanCheckWPAsync", "PM_SCAN_CHECK_WPASYNC"},
	}},
	{"Categories of pages: bits of PMScanArg's masks and of PageRegion.Categories.", hex, []constant{
		{"PageIsWPAllowed", "PAGE_IS_WPALLOWED"},
		{"PageIsWritten", "PAGE_IS_WRITTEN"},
		{"PageIsFile", "PAGE_IS_FILE"},
		{"PageIsPresent", "PAGE_IS_PRESENT"},
		{"PageIsSwapped", "PAGE_IS_SWAPPED"},
		{"PageIsPFNZero", "PAGE_IS_PFNZERO"},
		{"PageIsHuge", "PAGE_IS_HUGE"},
		{"PageIsSoftDirty", "PAGE_IS_SOFT_DIRTY"},
	}},
}
