//go:build linux && amd64

package kvm

import (
	"testing"
	"unsafe"

	"github.com/maf-sandbox/maf-sandbox-go/internal/platform"
)

// The platform hands out Regs as its own type; this fails to compile when they
// differ.
var _ = (*platform.Regs)((*Regs)(nil))

func TestMirrorsHaveTheKernelsLayout(t *testing.T) {
	var (
		regs    Regs
		sregs   Sregs
		segment Segment
		events  VCPUEvents
		cpuid   CPUIDEntry
		msr     MSREntry
		xcrs    XCRs
		scan    PMScanArg
		region  PageRegion
	)
	for _, tt := range []struct {
		name      string
		got, want uintptr
	}{
		{"sizeof Regs", unsafe.Sizeof(regs), sizeRegs},
		{"Regs.RIP", unsafe.Offsetof(regs.RIP), offRegsRIP},
		{"sizeof Sregs", unsafe.Sizeof(sregs), sizeSregs},
		{"Sregs.GDT", unsafe.Offsetof(sregs.GDT), offSregsGDT},
		{"Sregs.CR0", unsafe.Offsetof(sregs.CR0), offSregsCR0},
		{"Sregs.EFER", unsafe.Offsetof(sregs.EFER), offSregsEFER},
		{"sizeof Segment", unsafe.Sizeof(segment), sizeSegment},
		{"Segment.Selector", unsafe.Offsetof(segment.Selector), offSegmentSelector},
		{"Segment.G", unsafe.Offsetof(segment.G), offSegmentG},
		{"Segment.Unusable", unsafe.Offsetof(segment.Unusable), offSegmentUnusable},
		{"sizeof DTable", unsafe.Sizeof(DTable{}), sizeDTable},
		{"sizeof VCPUEvents", unsafe.Sizeof(events), sizeVCPUEvents},
		{"VCPUEvents.Interrupt", unsafe.Offsetof(events.Interrupt), offEventsInterrupt},
		{"VCPUEvents.NMI", unsafe.Offsetof(events.NMI), offEventsNMI},
		{"VCPUEvents.Flags", unsafe.Offsetof(events.Flags), offEventsFlags},
		{"VCPUEvents.SMI", unsafe.Offsetof(events.SMI), offEventsSMI},
		{"VCPUEvents.ExceptionHasPayload", unsafe.Offsetof(events.ExceptionHasPayload), offEventsHasPayload},
		{"VCPUEvents.ExceptionPayload", unsafe.Offsetof(events.ExceptionPayload), offEventsPayload},
		{"sizeof CPUIDEntry", unsafe.Sizeof(cpuid), sizeCPUIDEntry},
		{"CPUIDEntry.EAX", unsafe.Offsetof(cpuid.EAX), offCPUIDEAX},
		{"sizeof MSREntry", unsafe.Sizeof(msr), sizeMSREntry},
		{"MSREntry.Data", unsafe.Offsetof(msr.Data), offMSRData},
		{"sizeof XCRs", unsafe.Sizeof(xcrs), sizeXCRs},
		{"XCRs.XCRs", unsafe.Offsetof(xcrs.XCRs), offXCRs},
		{"sizeof PMScanArg", unsafe.Sizeof(scan), sizePMScanArg},
		{"PMScanArg.WalkEnd", unsafe.Offsetof(scan.WalkEnd), offPMScanWalkEnd},
		{"PMScanArg.Vec", unsafe.Offsetof(scan.Vec), offPMScanVec},
		{"PMScanArg.MaxPages", unsafe.Offsetof(scan.MaxPages), offPMScanMaxPages},
		{"PMScanArg.CategoryMask", unsafe.Offsetof(scan.CategoryMask), offPMScanCategoryMask},
		{"PMScanArg.ReturnMask", unsafe.Offsetof(scan.ReturnMask), offPMScanReturnMask},
		{"sizeof PageRegion", unsafe.Sizeof(region), sizePageRegion},
		{"PageRegion.Categories", unsafe.Offsetof(region.Categories), offPageRegionCategories},
		{"sizeof an XSAVE area", XSaveSize, sizeXSave},
	} {
		if tt.got != tt.want {
			t.Errorf("%s is %d, want %d", tt.name, tt.got, tt.want)
		}
	}
}
