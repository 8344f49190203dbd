package kvm

// Regs are the general registers: struct kvm_regs. The fields are those of
// platform.Regs, so that one converts to the other.
type Regs struct {
	RAX, RBX, RCX, RDX, RSI, RDI, RSP, RBP uint64
	R8, R9, R10, R11, R12, R13, R14, R15   uint64
	RIP, RFLAGS                            uint64
}

// Segment is a segment register with its hidden part: struct kvm_segment.
type Segment struct {
	Base     uint64
	Limit    uint32
	Selector uint16
	// Type is the descriptor's four type bits.
	Type    uint8
	Present uint8
	DPL     uint8
	// DB, S, L, G and AVL are one bit each, as in a descriptor.
	DB, S, L, G, AVL uint8
	Unusable         uint8
	_                uint8
}

// DTable is the place of a descriptor table: struct kvm_dtable.
type DTable struct {
	Base  uint64
	Limit uint16
	_     [3]uint16
}

// Sregs are the special registers: struct kvm_sregs.
type Sregs struct {
	CS, DS, ES, FS, GS, SS  Segment
	TR, LDT                 Segment
	GDT, IDT                DTable
	CR0, CR2, CR3, CR4, CR8 uint64
	EFER                    uint64
	APICBase                uint64
	// InterruptBitmap has the bit of the external interrupt that waits to be
	// injected, if any.
	InterruptBitmap [4]uint64
}

// VCPUEvents are a processor's pending exceptions, interrupts and non-maskable
// interrupts: struct kvm_vcpu_events.
type VCPUEvents struct {
	Exception struct {
		Injected, Number, HasErrorCode, Pending uint8
		ErrorCode                               uint32
	}
	Interrupt struct {
		Injected, Number, Soft, Shadow uint8
	}
	NMI struct {
		Injected, Pending, Masked uint8
		_                         uint8
	}
	SIPIVector uint32
	// Flags says which of the optional parts count (EventsNMIPending and so on).
	Flags uint32
	SMI   struct {
		SMM, Pending, InsideNMI, LatchedInit uint8
	}
	TripleFaultPending  uint8
	_                   [26]uint8
	ExceptionHasPayload uint8
	ExceptionPayload    uint64
}

// CPUIDEntry is one leaf of the CPUID table: struct kvm_cpuid_entry2.
type CPUIDEntry struct {
	// Function and Index are what the guest passes in EAX and ECX.
	Function, Index uint32
	// Flags has CPUIDSignificantIndex when Index counts.
	Flags              uint32
	EAX, EBX, ECX, EDX uint32
	_                  [3]uint32
}

// MSREntry is the value of one model specific register: struct kvm_msr_entry.
type MSREntry struct {
	Index uint32
	_     uint32
	Data  uint64
}

// XCR is one extended control register: struct kvm_xcr.
type XCR struct {
	// Index is the register's number; 0 is XCR0.
	Index uint32
	_     uint32
	Value uint64
}

// XCRs are the first N extended control registers: struct kvm_xcrs.
type XCRs struct {
	N     uint32
	Flags uint32
	XCRs  [16]XCR
	_     [16]uint64
}

// PMScanArg is the argument of PagemapScan: struct pm_scan_arg
// (Documentation/admin-guide/mm/pagemap.rst). Addresses are the caller's own.
type PMScanArg struct {
	// Size is the size of this structure in bytes.
	Size  uint64
	Flags uint64
	// Start and End bound the scan, page aligned; WalkEnd is set to where it
	// ended.
	Start, End, WalkEnd uint64
	// Vec is the address of VecLen PageRegions that receive the result.
	Vec, VecLen uint64
	// MaxPages ends the scan after so many pages; 0 is no bound.
	MaxPages uint64
	// A page is reported when, with the bits of CategoryInverted inverted, its
	// categories have all of CategoryMask and, unless that is 0, one of
	// CategoryAnyOfMask.
	CategoryInverted, CategoryMask, CategoryAnyOfMask uint64
	// ReturnMask selects the categories to report.
	ReturnMask uint64
}

// PageRegion is a run of pages of the same categories: struct page_region.
type PageRegion struct {
	// Start and End are addresses; End is exclusive.
	Start, End uint64
	Categories uint64
}
