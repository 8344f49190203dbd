//go:build linux && amd64

package kvm

import (
	"fmt"
	"runtime"
	"sync/atomic"
	"syscall"
	"unsafe"
)

// ioctl passes an integer.
func ioctl(fd int, req, arg uintptr) (int, error) {
	for {
		r, _, e := syscall.Syscall(syscall.SYS_IOCTL, uintptr(fd), req, arg)
		if e == syscall.EINTR {
			continue
		}
		if e != 0 {
			return 0, e
		}
		return int(r), nil
	}
}

// ioctlPtr passes a pointer to a structure of the kernel's layout. The pointer
// is converted in the call's own argument list, so the object stays in place
// and alive for the call (package unsafe, rule 4).
func ioctlPtr[T any](fd int, req uintptr, p *T) (int, error) {
	for {
		r, _, e := syscall.Syscall(syscall.SYS_IOCTL, uintptr(fd), req, uintptr(unsafe.Pointer(p)))
		runtime.KeepAlive(p)
		if e == syscall.EINTR {
			continue
		}
		if e != 0 {
			return 0, e
		}
		return int(r), nil
	}
}

// maxCPUID is more entries than any processor has (the kernel's own bound is
// KVM_MAX_CPUID_ENTRIES, 256).
const maxCPUID = 256

type cpuidTable struct {
	n, _    uint32
	entries [maxCPUID]CPUIDEntry
}

// SupportedCPUID gives the CPUID table that KVM offers.
func (s *System) SupportedCPUID() ([]CPUIDEntry, error) {
	t := &cpuidTable{n: maxCPUID}
	if _, err := ioctlPtr(s.fd, kGetSupportedCPUID, t); err != nil {
		return nil, fmt.Errorf("kvm: supported CPUID: %w", err)
	}
	return append([]CPUIDEntry(nil), t.entries[:min(t.n, maxCPUID)]...), nil
}

// SetMemory makes mem the guest's physical memory from address 0 on. It must
// stay mapped until the VM is closed.
func (v *VM) SetMemory(mem []byte) error {
	r := struct {
		slot, flags       uint32
		gpa, size, origin uint64
	}{size: uint64(len(mem)), origin: uint64(uintptr(unsafe.Pointer(unsafe.SliceData(mem))))}
	if _, err := ioctlPtr(v.fd, kSetUserMemoryRegion, &r); err != nil {
		return fmt.Errorf("kvm: set memory: %w", err)
	}
	return nil
}

// VCPU is a virtual processor. Its run area is mapped from the kernel, so the
// pointers into it are outside the Go heap and stay valid until Close.
type VCPU struct {
	fd         int
	run        []byte
	immediate  *uint32 // immediate_exit and what lies beside it
	exitReason *uint32
	valid      *uint64
	dirty      *uint64
	regs       *Regs
	sregs      *Sregs
	events     *VCPUEvents
}

func newVCPU(fd int, run []byte) *VCPU {
	at := func(off int) unsafe.Pointer { return unsafe.Pointer(&run[off]) }
	c := &VCPU{
		fd: fd, run: run,
		immediate:  (*uint32)(at(offImmediateExit &^ 3)),
		exitReason: (*uint32)(at(offExitReason)),
		valid:      (*uint64)(at(offValidRegs)),
		dirty:      (*uint64)(at(offDirtyRegs)),
		regs:       (*Regs)(at(offSyncRegs)),
		sregs:      (*Sregs)(at(offSyncSregs)),
		events:     (*VCPUEvents)(at(offSyncEvents)),
	}
	*c.valid = syncRegs
	return c
}

// Regs are the processor's registers as of the last exit (KVM_CAP_SYNC_REGS).
// Call MarkRegs after a change.
func (c *VCPU) Regs() *Regs { return c.regs }

// MarkRegs makes the next Run take Regs over.
func (c *VCPU) MarkRegs() { *c.dirty |= syncRegs }

// SyncSregs makes every exit fill in ExitSregs too, from now on.
func (c *VCPU) SyncSregs() { *c.valid |= syncSregs }

// ExitSregs are the special registers as of the last exit, after SyncSregs.
// Call MarkSregs after a change.
func (c *VCPU) ExitSregs() *Sregs { return c.sregs }

// MarkSregs makes the next Run take ExitSregs over.
func (c *VCPU) MarkSregs() { *c.dirty |= syncSregs }

// ResetEvents makes the next Run begin without pending exceptions, interrupts
// and their shadows.
func (c *VCPU) ResetEvents() {
	*c.events = VCPUEvents{Flags: EventsNMIPending | EventsShadow}
	*c.dirty |= syncEvents
}

// SetImmediateExit makes Run return at once, or not, from now on. It may be
// called from any goroutine.
func (c *VCPU) SetImmediateExit(on bool) {
	v := uint32(0)
	if on {
		v = 1 << (8 * (offImmediateExit & 3))
	}
	atomic.StoreUint32(c.immediate, v)
}

// IO describes an ExitIO.
func (c *VCPU) IO() (port uint16, out bool) {
	return *(*uint16)(unsafe.Pointer(&c.run[offIOPort])), c.run[offIODirection] == IOOut
}

// MMIOAddr is the physical address of an ExitMMIO.
func (c *VCPU) MMIOAddr() uint64 { return *(*uint64)(unsafe.Pointer(&c.run[offMMIOAddr])) }

// Suberror tells more of an ExitInternalError.
func (c *VCPU) Suberror() uint32 { return *(*uint32)(unsafe.Pointer(&c.run[offSuberror])) }

func get[T any](c *VCPU, req uintptr, what string, p *T) error {
	if _, err := ioctlPtr(c.fd, req, p); err != nil {
		return fmt.Errorf("kvm: %s: %w", what, err)
	}
	return nil
}

// GetRegs reads the general registers.
func (c *VCPU) GetRegs(r *Regs) error { return get(c, kGetRegs, "get registers", r) }

// GetSregs reads the special registers.
func (c *VCPU) GetSregs(s *Sregs) error { return get(c, kGetSregs, "get special registers", s) }

// SetSregs writes the special registers. CPUID must have been set before:
// kernels from 6.7 on validate against it.
func (c *VCPU) SetSregs(s *Sregs) error { return get(c, kSetSregs, "set special registers", s) }

// GetEvents reads pending exceptions and interrupts.
func (c *VCPU) GetEvents(e *VCPUEvents) error { return get(c, kGetVCPUEvents, "get events", e) }

// SetEvents writes pending exceptions and interrupts.
func (c *VCPU) SetEvents(e *VCPUEvents) error { return get(c, kSetVCPUEvents, "set events", e) }

// XSaveSize is the size of the legacy KVM_GET_XSAVE area: enough for every
// state component but AMX tiles.
const XSaveSize = 4096

// GetXSave reads the extended state; b has XSaveSize bytes.
func (c *VCPU) GetXSave(b []byte) error {
	return get(c, kGetXSave, "get extended state", (*[XSaveSize]byte)(b))
}

// SetXSave writes the extended state; b has XSaveSize bytes.
func (c *VCPU) SetXSave(b []byte) error {
	return get(c, kSetXSave, "set extended state", (*[XSaveSize]byte)(b))
}

// SetXCR0 chooses the extended state components.
func (c *VCPU) SetXCR0(v uint64) error {
	x := &XCRs{N: 1}
	x.XCRs[0].Value = v
	return get(c, kSetXCRs, "set XCR0", x)
}

// SetCPUID gives the processor its CPUID table.
func (c *VCPU) SetCPUID(e []CPUIDEntry) error {
	t := &cpuidTable{n: uint32(min(len(e), maxCPUID))}
	copy(t.entries[:], e)
	return get(c, kSetCPUID2, "set CPUID", t)
}

type msrTable struct {
	n, _    uint32
	entries [8]MSREntry
}

// SetMSRs writes up to eight model specific registers.
func (c *VCPU) SetMSRs(m ...MSREntry) error {
	t := &msrTable{n: uint32(min(len(m), 8))}
	copy(t.entries[:], m)
	n, err := ioctlPtr(c.fd, kSetMSRs, t)
	if err != nil || n != len(m) {
		return fmt.Errorf("kvm: set MSRs: %d of %d: %w", n, len(m), err)
	}
	return nil
}

// GetMSR reads one model specific register.
func (c *VCPU) GetMSR(index uint32) (uint64, error) {
	t := &msrTable{n: 1}
	t.entries[0].Index = index
	n, err := ioctlPtr(c.fd, kGetMSRs, t)
	if err != nil || n != 1 {
		return 0, fmt.Errorf("kvm: get MSR %#x: %w", index, err)
	}
	return t.entries[0].Data, nil
}

// TSCKHz gives the guest's time stamp counter frequency in kHz.
func (c *VCPU) TSCKHz() (uint64, error) {
	n, err := ioctl(c.fd, kGetTSCKHz, 0)
	if err != nil {
		return 0, fmt.Errorf("kvm: TSC frequency: %w", err)
	}
	return uint64(n), nil
}
