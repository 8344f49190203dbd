//go:build linux && amd64

package kvmvm

import (
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/maf-sandbox/maf-sandbox-go/internal/kvm"
	"github.com/maf-sandbox/maf-sandbox-go/internal/platform"
	"github.com/maf-sandbox/maf-sandbox-go/internal/platform/x86"
	"github.com/maf-sandbox/maf-sandbox-go/internal/vdso"
)

// Platform makes KVM machines. It is safe for concurrent use.
type Platform struct {
	sys         *kvm.System
	cpuid       []kvm.CPUIDEntry
	xcr0        uint64
	key         string
	pagemap     pagemap
	pagemapScan bool

	tickOnce sync.Once
	// tick is the length of a TSC tick for the vDSO; 0 without a usable TSC.
	tick uint64

	// large is what UseLarge was given, nil for nothing.
	large atomic.Pointer[large]

	clones    atomic.Int32
	probeOnce sync.Once
	// ringZero says that system calls are known to arrive in ring 0. Until they
	// are, every exit is checked, which is right on any KVM and slower on
	// hardware.
	ringZero atomic.Bool
}

// New opens KVM. The error wraps platform.ErrUnavailable and says what mends
// it.
func New() (*Platform, error) {
	sys, err := kvm.Open()
	if err != nil {
		return nil, fmt.Errorf("%w: %w", platform.ErrUnavailable, err)
	}
	p := &Platform{sys: sys, pagemap: pagemap{-1}}
	if err := p.probe(); err != nil {
		_ = p.Close()
		return nil, fmt.Errorf("%w: %w", platform.ErrUnavailable, err)
	}
	return p, nil
}

func (p *Platform) probe() error {
	for _, c := range []struct {
		cap  int
		name string
	}{{kvm.CapUserMemory, "user memory"}, {kvm.CapXSave, "XSAVE"}, {kvm.CapXCRs, "XCRS"}, {kvm.CapImmediateExit, "immediate exit"}} {
		if p.sys.Cap(c.cap) == 0 {
			return fmt.Errorf("this KVM lacks %s", c.name)
		}
	}
	if p.sys.Cap(kvm.CapSyncRegs)&7 != 7 { // general and special registers, events
		return errors.New("this KVM lacks synchronised registers (Linux 4.17 or newer has them)")
	}
	offered, err := p.sys.SupportedCPUID()
	if err != nil {
		return err
	}
	p.xcr0 = guestXCR0(offered)
	p.cpuid = guestCPUID(offered, p.xcr0)
	p.key = cpuKey(p.cpuid, p.xcr0)
	fd, err := unix.Open("/proc/self/pagemap", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err == nil {
		p.pagemap.fd = fd
		var r regions
		_, _, err := p.pagemap.scan(0, 0, &r)
		p.pagemapScan = err == nil
	}
	return nil
}

// tickOf gives the tick length, which is the same for every machine.
func (p *Platform) tickOf(c *kvm.VCPU) uint64 {
	p.tickOnce.Do(func() {
		if khz, err := c.TSCKHz(); err == nil && x86.InvariantTSC() {
			p.tick = vdso.TickLength(khz)
		}
	})
	return p.tick
}

// Probe finds out where system calls arrive, by a guest of our own. Were that
// learned from any guest's first call, one that jumps into the stub instead
// could have every later one, on hardware KVM, continue in ring 0. It costs
// some milliseconds, so it is left until a second machine is made: a process
// that makes one and ends does without.
func (p *Platform) Probe() error {
	code := platform.Span{Lo: platform.UserLo, Hi: platform.UserLo + platform.PageSize, Prot: platform.Read | platform.Exec}
	b, fd, err := p.Boot(code.Hi, []platform.Span{code}, nil)
	if err != nil {
		return err
	}
	m := b.(*Machine)
	m.Load(code.Lo, []byte{0x0F, 0x05}) // syscall
	m.Regs().RIP = code.Lo
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	e := platform.Exit{Kind: platform.Interrupted}
	for e.Kind == platform.Interrupted && err == nil {
		e, err = m.Run()
	}
	if err == nil && e.Kind != platform.Syscall {
		err = fmt.Errorf("a first system call ended as exit %d, exception %d", e.Kind, e.Vector)
	}
	// Where it arrived, not where Run left it.
	if err == nil && m.fromZero {
		p.ringZero.Store(true)
	}
	return errors.Join(err, m.Close(), unix.Close(fd))
}

// Close releases the device. Machines live on.
func (p *Platform) Close() error {
	var err error
	if p.pagemap.fd >= 0 {
		err = unix.Close(p.pagemap.fd)
	}
	return errors.Join(err, p.sys.Close())
}

// Name implements platform.Platform.
func (p *Platform) Name() string { return "kvm" }

// Isolation implements platform.Platform.
func (p *Platform) Isolation() string { return "microvm" }

// CPU implements platform.Platform.
func (p *Platform) CPU() string { return p.key }

// Needs implements platform.Platform.
func (p *Platform) Needs() platform.Needs { return platform.Needs{Ioctls: kvm.WorkIoctls()} }

// Boot implements platform.Platform.
func (p *Platform) Boot(size uint64, spans []platform.Span, hot []platform.Range) (platform.Machine, int, error) {
	image, err := systemImage(spans)
	if err != nil {
		return nil, -1, err
	}
	if size < platform.UserLo || size > maxSize {
		return nil, -1, fmt.Errorf("%w: memory of %d MiB", platform.ErrMachine, size>>20)
	}
	fd, err := unix.MemfdCreate("guest", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, -1, fmt.Errorf("%w: memory file: %w", platform.ErrMachine, err)
	}
	var mem []byte
	if err = unix.Ftruncate(fd, int64(size)); err == nil {
		mem, err = mapGuest(size, unix.MAP_SHARED, fd)
	}
	if err != nil {
		_ = unix.Close(fd)
		return nil, -1, fmt.Errorf("%w: %w", platform.ErrMachine, err)
	}
	populate(mem, hot)
	for a := 0; a < len(image); a += platform.PageSize {
		if pg := image[a : a+platform.PageSize]; !allZero(pg) {
			copy(mem[a:], pg)
		}
	}
	m, err := p.newMachine(mem, spans)
	if err != nil {
		_ = unix.Close(fd)
		return nil, -1, err
	}
	return m, fd, nil
}

func allZero(b []byte) bool {
	for _, c := range b {
		if c != 0 {
			return false
		}
	}
	return true
}

// Clone implements platform.Platform.
func (p *Platform) Clone(b *platform.Backing, size uint64, spans []platform.Span, c *platform.Context) (platform.Machine, error) {
	if size < platform.UserLo || size > maxSize {
		return nil, fmt.Errorf("%w: memory of %d MiB", platform.ErrMachine, size>>20)
	}
	if p.clones.Add(1) > 1 {
		// A probe that fails leaves what is right everywhere.
		p.probeOnce.Do(func() { _ = p.Probe() })
	}
	mem, err := mapGuest(size, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS, -1)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", platform.ErrMachine, err)
	}
	err = overlay(mem, b)
	if l := p.large.Load(); err == nil && l != nil && l.backing == b {
		err = l.overlay(mem)
	}
	if err != nil {
		return nil, errors.Join(err, unmapGuest(mem))
	}
	p.advise(mem, b)
	populate(mem, b.Hot())
	m, err := p.newMachine(mem, spans)
	if err != nil {
		return nil, err
	}
	m.backing = b
	if err := m.Restore(c); err != nil {
		return nil, errors.Join(err, m.Close())
	}
	return m, nil
}

// populate makes pages ready that the guest will write to soon: a write of its
// own to a page that is not there costs a fault in the guest and one in the
// host (measured: 50 microseconds together, 1.5 this way).
func populate(mem []byte, hot []platform.Range) {
	for _, r := range hot {
		if r.Lo >= r.Hi || r.Hi > uint64(len(mem)) || (r.Lo|r.Hi)%platform.PageSize != 0 {
			return
		}
		// Only a saving: a kernel before 5.14 refuses it.
		if unix.Madvise(mem[r.Lo:r.Hi], unix.MADV_POPULATE_WRITE) != nil {
			return
		}
	}
}

// smallHeap is how much of the heap above the template keeps small pages: a
// large page for the first few allocations would cost every idle guest 2 MiB.
const smallHeap = 16 << 20

// advise asks for large pages where a guest that uses much memory will be: its
// first touch then costs a fifth (measured: 100 MiB in 38 instead of 226 ms).
func (p *Platform) advise(mem []byte, b *platform.Backing) {
	lo := b.Ranges[len(b.Ranges)-1].Hi + smallHeap
	lo = (lo + largePage - 1) &^ (largePage - 1)
	if lo < uint64(len(mem)) {
		// Only advice: a kernel without large pages refuses it.
		_ = unix.Madvise(mem[lo:], unix.MADV_HUGEPAGE)
	}
}

var (
	_ platform.Platform  = (*Platform)(nil)
	_ platform.LargeCode = (*Platform)(nil)
)
