// Package platform is the seam between the Linux personality and whatever runs
// the guest's instructions: guest memory through one checked accessor, one
// virtual CPU, and a Run that returns at a system call, a fault or an
// interruption.
//
// The personality (package linux) knows nothing but this package. A platform
// (package kvmvm) knows nothing of system calls.
package platform

import (
	"errors"
	"sync/atomic"
)

// PageSize is the guest's page size in bytes (x86-64 base page).
const PageSize = 4096

// Prot says what the guest may do with a page.
type Prot uint8

// Page rights. A page without Read is not mapped.
const (
	Read Prot = 1 << iota
	Write
	Exec
)

// UserLo is the lowest address of guest user memory: everything below belongs
// to the platform. It is the address at which non-PIE x86-64 programs are
// linked (System V ABI, AMD64 supplement, figure 3.3).
const UserLo = 0x400000

// ClockPage is the address of the page, read-only to the guest, from which the
// vDSO computes the time (package vdso).
const ClockPage = UserLo - PageSize

// Span is a half-open range of guest addresses, page aligned, with its rights.
// The rights of an address never change once a machine has run: page tables
// are static (RATIONALE.md, "Static page tables").
type Span struct {
	Lo, Hi uint64
	Prot   Prot
}

// Memory is the guest's memory as the personality sees it. Every method checks
// the whole range first and reports false, having changed nothing, when any
// byte of it is not guest user memory with the needed right. There is no other
// way to guest memory: nothing returns a slice of it.
type Memory interface {
	// CopyIn reads guest memory at addr into dst. The guest needs Read.
	CopyIn(dst []byte, addr uint64) bool
	// CopyOut writes src to guest memory at addr. The guest needs Write.
	CopyOut(addr uint64, src []byte) bool
	// Load writes src on behalf of the program loader: the range needs to be
	// mapped, whatever its rights (this is how text and rodata are filled).
	Load(addr uint64, src []byte) bool
	// Zero clears n bytes. The guest needs Write.
	Zero(addr, n uint64) bool
	// Move copies n bytes inside guest memory; the ranges may overlap.
	Move(dst, src, n uint64) bool
}

// Regs are the general registers of x86-64 in the order of the kernel's
// struct kvm_regs.
type Regs struct {
	RAX, RBX, RCX, RDX, RSI, RDI, RSP, RBP uint64
	R8, R9, R10, R11, R12, R13, R14, R15   uint64
	RIP, RFLAGS                            uint64
}

// Context is everything that makes up a stopped guest thread: general
// registers, segment bases and the extended state in the XSAVE layout.
type Context struct {
	Regs   Regs
	FSBase uint64
	GSBase uint64
	XSave  []byte
}

// ExitKind says why Run returned.
type ExitKind uint8

// The reasons for which Run returns.
const (
	// Syscall: the guest executed SYSCALL. The registers are those the kernel
	// would see, except that RIP and RFLAGS already hold what the guest will
	// continue with.
	Syscall ExitKind = iota + 1
	// Fault: the guest raised a processor exception, or did something that a
	// process may not do. Registers are those at the faulting instruction.
	Fault
	// Interrupted: Interrupt was called, or the host was disturbed; the guest
	// is between two instructions and Run may be called again.
	Interrupted
	// Shutdown: the guest brought its CPU to a state from which nothing can
	// go on, such as touching an address beyond its memory.
	Shutdown
)

// Exit describes why Run returned.
type Exit struct {
	Kind ExitKind
	// Vector is the x86 exception number of a Fault (SDM vol. 3, table 6-1).
	Vector uint8
	// Addr is the address a page fault was about (CR2).
	Addr uint64
	// Code is the error code that the processor pushed, if any.
	Code uint64
}

// Machine is one guest: memory and one virtual CPU.
//
// Preconditions: all methods but Interrupt are called by one goroutine at a
// time; Run is called with the goroutine locked to its thread.
type Machine interface {
	Memory
	// Regs gives the registers of the stopped CPU, to be read and changed in
	// place. The pointer stays valid until Close.
	Regs() *Regs
	// SetFSBase sets the FS segment base (the thread pointer). It reports
	// false when addr is not a canonical user address.
	SetFSBase(addr uint64) bool
	// Save copies the CPU's whole state into c, reusing c.XSave.
	Save(c *Context) error
	// Restore makes c the CPU's state.
	Restore(c *Context) error
	// Run runs the guest until something needs the personality.
	Run() (Exit, error)
	// Interrupt makes a Run under way, or the next one, return Interrupted.
	// It may be called from any goroutine, any number of times.
	Interrupt()
	// StartClock sets what the guest's monotonic clock reads now, in
	// nanoseconds, and takes the host's real time. Within a generation it is
	// called once, so that monotonic time never goes back.
	StartClock(monotonic uint64)
	// SyncClock takes the host's real time again.
	SyncClock()
	// Clock gives both clocks as the guest reads them now, in nanoseconds.
	Clock() (monotonic, realtime uint64)
	// Revert puts memory back to the backing's content and the CPU to c. It
	// returns how many pages had changed.
	Revert(c *Context) (pages int, err error)
	// Changed gives the pages that differ from the backing's, as far as the host
	// can tell them cheaply: nil when it cannot.
	Changed() []Range
	// Close releases everything. Interrupt may still be called afterwards.
	Close() error
}

// Range is a half-open range of bytes.
type Range struct{ Lo, Hi uint64 }

// Backing is the memory that clones start from: a file that holds the Ranges
// at their own offsets; everything else is zero. It is shared by any number of
// machines and must outlive them.
type Backing struct {
	FD     int
	Ranges []Range
	view   []byte
	hot    atomic.Pointer[[]Range]
}

// MaxHot bounds the ranges that Hot may give.
const MaxHot = 1024

// Hot gives the pages that nearly every guest writes to first. A clone gets
// private copies of them in advance, in one go: a guest's own first write to a
// page costs a fault in the guest and one in the host.
func (b *Backing) Hot() []Range {
	if p := b.hot.Load(); p != nil {
		return *p
	}
	return nil
}

// SetHot sets what Hot gives, at most MaxHot ranges. Clones that exist are not
// affected.
func (b *Backing) SetHot(r []Range) {
	r = r[:min(len(r), MaxHot)]
	b.hot.Store(&r)
}

// Needs are what the machines of a platform need of the host while they live:
// what a jail around their process has to leave.
type Needs struct {
	// Ioctls are request numbers of ioctl, those used most first.
	Ioctls []uint32
	// Children are processes that are traced.
	Children []Child
}

// Child is a process that is part of a machine: its number and its pidfd.
type Child struct{ PID, FD int }

// Platform makes machines.
type Platform interface {
	// Name is the short name that users see, such as "kvm".
	Name() string
	// Isolation is the protocol's name for the rung this platform reaches.
	Isolation() string
	// CPU identifies everything about the processor that a template may have
	// frozen; a template is only good for an equal value.
	CPU() string
	// Boot makes a machine with fresh zero memory of size bytes, laid out by
	// spans. The pages of hot, which the guest will write to for certain, may be
	// made ready in advance. The descriptor is that of its memory file, from
	// which a Backing can be made; the caller closes it.
	Boot(size uint64, spans []Span, hot []Range) (m Machine, fd int, err error)
	// Clone makes a machine of size bytes that starts from the backing's
	// content, copy on write, with the CPU in state c.
	Clone(b *Backing, size uint64, spans []Span, c *Context) (Machine, error)
	// Needs tells what the machines that there are now need to live on; a jail
	// that leaves no more than that allows no new ones.
	Needs() Needs
}

// LargeCode is a Platform whose machines run faster when their code lies in large
// pages: the first touch of each small page costs a fault of its own.
type LargeCode interface {
	// UseLarge has clones of b take the code that fills large pages from a file of
	// memory, which any number of processes may share. fd is that file, a memfd that
	// can be sealed, empty at first: the first who comes writes to it and seals it.
	// The name tells backings apart. It stays the caller's, and must be open while
	// machines are cloned. After an error clones do without.
	UseLarge(b *Backing, spans []Span, fd int, name string) error
}

// ErrUnavailable is returned when this host cannot offer the platform. The
// wrapped text says what is missing and what mends it.
var ErrUnavailable = errors.New("platform unavailable")

// ErrMachine is returned when the host side of a machine failed. The machine
// is of no further use; other machines are not affected.
var ErrMachine = errors.New("machine failed")
