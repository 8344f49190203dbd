//go:build linux && amd64

package ptrace

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/maf-sandbox/maf-sandbox-go/internal/platform"
	"github.com/maf-sandbox/maf-sandbox-go/internal/platform/pagemap"
	"github.com/maf-sandbox/maf-sandbox-go/internal/platform/x86"
)

// Platform makes traced processes. It is safe for concurrent use.
type Platform struct {
	// stub is the program of every child, root an empty folder without a name.
	stub, root int
	// isolation is what every child has: what New could get. A child that could
	// have less later is an error.
	isolation isolation
	// lacks says why children have no namespaces of their own, command gives
	// them some.
	lacks, command string
	// xstateSize is the length of the extended state in bytes.
	xstateSize int
	// scan: the kernel can list changed pages.
	scan   bool
	opened reading
	key    func() string

	mu   sync.Mutex // guards live
	live map[*child]struct{}
}

// New finds out what this host permits and lets a guest of its own try all ways
// into the kernel. An error is a *Refusal, which names what is missing, or says
// in what the host does not keep its word.
func New() (*Platform, error) {
	p := &Platform{stub: -1, root: -1, opened: now(), key: sync.OnceValue(cpuKey), live: map[*child]struct{}{}}
	err := p.open()
	if err != nil {
		err = errors.Join(err, p.Close())
		if !errors.Is(err, platform.ErrUnavailable) {
			err = fmt.Errorf("%w: %w", platform.ErrUnavailable, err)
		}
		return nil, err
	}
	return p, nil
}

func (p *Platform) open() error {
	var err error
	if p.stub, err = stubDescriptor(); err != nil {
		return err
	}
	if p.root, err = emptyFolder(); err != nil {
		return err
	}
	return p.selfTest()
}

// stubDescriptor makes the stub's program as a file in memory.
func stubDescriptor() (int, error) {
	b, err := stubFile()
	if err != nil {
		return -1, err
	}
	fd, err := unix.MemfdCreate("stub", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING|unix.MFD_EXEC)
	if errors.Is(err, unix.EINVAL) { // before Linux 6.3 every such file can be executed
		fd, err = unix.MemfdCreate("stub", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	}
	if err != nil {
		return -1, startRefused(err, false)
	}
	n, err := unix.Write(fd, b)
	if err == nil && n != len(b) {
		err = unix.EIO
	}
	if err == nil {
		_, err = unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, unix.F_SEAL_WRITE|unix.F_SEAL_SHRINK|unix.F_SEAL_GROW|unix.F_SEAL_SEAL)
	}
	if err != nil {
		return -1, errors.Join(fmt.Errorf("%w: stub: %w", platform.ErrMachine, err), unix.Close(fd))
	}
	return fd, nil
}

// emptyFolder opens a folder that has been removed: nothing is in it, and
// nothing can come to be.
func emptyFolder() (int, error) {
	dir, err := os.MkdirTemp("", "maf-sandbox-root-*")
	if err != nil {
		return -1, &Refusal{Need: "a temporary folder", Mend: "set TMPDIR to one that can be written to", Cause: err}
	}
	fd, err := unix.Open(dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err = errors.Join(err, os.Remove(dir)); err != nil {
		if fd >= 0 {
			_ = unix.Close(fd)
		}
		return -1, fmt.Errorf("%w: empty root: %w", platform.ErrMachine, err)
	}
	return fd, nil
}

// Close releases the platform. Machines live on.
func (p *Platform) Close() error {
	var errs []error
	for _, fd := range []*int{&p.stub, &p.root} {
		if *fd >= 0 {
			errs = append(errs, unix.Close(*fd))
		}
		*fd = -1
	}
	return errors.Join(errs...)
}

// Name implements platform.Platform.
func (p *Platform) Name() string { return "ptrace" }

// Isolation implements platform.Platform: a container when every guest has
// namespaces and a root of its own, else a process. It is never more: the
// guest's exceptions are the host kernel's.
func (p *Platform) Isolation() string {
	if p.isolation.private() {
		return "container"
	}
	return "os_process"
}

// Lacks says why guests have no namespaces of their own, and the command for a
// shell that gives them some, if one is known; both are empty when they have.
func (p *Platform) Lacks() (why, command string) { return p.lacks, p.command }

// CPU implements platform.Platform.
func (p *Platform) CPU() string { return p.key() }

// tick is the length of a tick of the time stamp counter, the more precise the
// later.
func (p *Platform) tick() uint64 { return tickSince(p.opened) }

// Needs implements platform.Platform.
func (p *Platform) Needs() platform.Needs {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := platform.Needs{Ioctls: []uint32{pagemap.Request}}
	for c := range p.live {
		n.Children = append(n.Children, platform.Child{PID: c.pid, FD: c.fd})
	}
	return n
}

// lives keeps account of the children that there are.
func (p *Platform) lives(c *child, alive bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if alive {
		p.live[c] = struct{}{}
	} else {
		delete(p.live, c)
	}
}

// Boot implements platform.Platform.
func (p *Platform) Boot(size uint64, spans []platform.Span, hot []platform.Range) (platform.Machine, int, error) {
	g := memory{size: size, spans: spans, shared: true, hot: hot, ranges: []platform.Range{{Lo: 0, Hi: size}}}
	if err := g.check(); err != nil {
		return nil, -1, err
	}
	fd, err := unix.MemfdCreate("guest", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, -1, fmt.Errorf("%w: memory file: %w", platform.ErrMachine, err)
	}
	g.fd = fd
	own := -1
	if err = unix.Ftruncate(fd, int64(size)); err == nil {
		own, err = unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
	}
	if err != nil {
		return nil, -1, errors.Join(fmt.Errorf("%w: memory file: %w", platform.ErrMachine, err), unix.Close(fd))
	}
	m, err := p.newMachine(g, own, nil)
	if err != nil {
		return nil, -1, errors.Join(err, unix.Close(fd))
	}
	m.clock.tick = p.tick()
	return m, fd, nil
}

// smallHeap is how much of the heap above the template keeps small pages: a
// large page for the first few allocations would cost every idle guest 2 MiB.
const smallHeap = 16 << 20

// Clone implements platform.Platform.
func (p *Platform) Clone(b *platform.Backing, size uint64, spans []platform.Span, c *platform.Context) (platform.Machine, error) {
	end := b.Ranges[len(b.Ranges)-1].Hi
	if end > size {
		return nil, fmt.Errorf("%w: backing ends beyond memory", platform.ErrMachine)
	}
	m, err := p.newMachine(memory{
		size: size, spans: spans, fd: b.FD, ranges: b.Ranges, hot: b.Hot(), large: end + smallHeap,
	}, -1, b)
	if err != nil {
		return nil, err
	}
	if err := m.Restore(c); err != nil {
		return nil, errors.Join(err, m.Close())
	}
	m.clock.tick = p.tick()
	return m, nil
}

// cpuKey identifies the processor, which guests see as it is.
func cpuKey() string {
	h := sha256.New()
	add := func(v ...uint32) { _ = binary.Write(h, binary.LittleEndian, v) }
	// Leaves that say what there is, and not which of the host's processors
	// answers (SDM vol. 2A, CPUID).
	top, b, c, d := x86.CPUID(0, 0)
	add(top, b, c, d)
	a, _, c, d := x86.CPUID(1, 0)
	add(a, c, d)
	if top >= 4 {
		for i := range uint32(4) { // caches, but not how many processors share them
			a, b, c, _ := x86.CPUID(4, i)
			add(a&(1<<14-1), b, c)
		}
	}
	if top >= 7 {
		sub, b, c, d := x86.CPUID(7, 0)
		add(b, c, d)
		if sub >= 1 {
			a, b, c, d := x86.CPUID(7, 1)
			add(a, b, c, d)
		}
	}
	if top >= 0xD {
		for i := range uint32(2) {
			// Not EBX, the size of what is enabled at this moment.
			a, _, c, d := x86.CPUID(0xD, i)
			add(a, c, d)
		}
	}
	if ext, _, _, _ := x86.CPUID(0x80000000, 0); ext >= 0x80000001 {
		_, _, c, d := x86.CPUID(0x80000001, 0)
		add(c, d)
	}
	const osxsave = 1 << 27
	if _, _, c, _ := x86.CPUID(1, 0); c&osxsave != 0 {
		_ = binary.Write(h, binary.LittleEndian, x86.XCR0())
	}
	return hex.EncodeToString(h.Sum(nil))
}

var _ platform.Platform = (*Platform)(nil)

// scanWorks asks for a scan of no memory: a kernel that does not know how
// refuses that, too.
func scanWorks(fd int) bool {
	if fd < 0 {
		return false
	}
	_, _, err := pagemap.Scan(fd, 0, 0, new(pagemap.Regions))
	return err == nil
}
