package linux

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"syscall"
	"time"

	"github.com/maf-sandbox/maf-sandbox-go/internal/linux/vfs"
	"github.com/maf-sandbox/maf-sandbox-go/internal/platform"
)

// Identity of the one process in the guest. They are made up: nothing of the
// host's identities shows inside.
const (
	processID = 100
	parentID  = 1
	userID    = 1000
)

const (
	// transferSize is the piece in which data moves between files and guest
	// memory.
	transferSize = 64 << 10
	// maxBuffer bounds the scratch buffer that one system call may ask for.
	maxBuffer = 1 << 20
	// maxPath is PATH_MAX (include/uapi/linux/limits.h).
	maxPath = 4096
)

// Sink receives what the guest writes to its standard output (1) and standard
// error (2), as it arrives. The bytes are only lent.
type Sink func(fd int, p []byte)

// Config is what a process is made of.
type Config struct {
	Machine platform.Machine
	Layout  *Layout
	// Memory is how much memory the guest has, in bytes.
	Memory uint64
	FS     *vfs.FS
	// Random answers getrandom and /dev/urandom.
	Random io.Reader
	// Output receives standard output and standard error.
	Output Sink
	// Obeyed, if set, hears the driver's claim that the program gave way to an
	// interrupt.
	Obeyed func()
	// Deadlocked, if set, hears that every thread waits for another one, with no
	// time limit: only Interrupt or Stop will end that. It is called on the
	// goroutine that runs the process, possibly more than once.
	Deadlocked func()
	// Roams: the goroutine that calls Run has been locked to its thread once, and
	// the machine can go on on another one. While the process sleeps the goroutine
	// is then not locked.
	Roams bool
	// Host, if set, begins the guest's calls to the host.
	Host HostFunc
}

// Process is the guest's one process. Its methods are called by one goroutine
// at a time, except Interrupt, Stop, Threads and Look.
type Process struct {
	cpu    platform.Machine
	layout *Layout
	spans  []platform.Span
	fs     *vfs.FS
	random io.Reader
	output Sink
	obeyed func()

	deadlocked func()

	scheduler
	// doze is sleepUntilWoken and tickIn startTicker, but for tests in which time
	// is to fly or to stand still.
	doze   func(at, ns uint64) bool
	tickIn func(d time.Duration)

	mem   memory
	fds   descriptors
	sig   signals
	cwd   *vfs.Inode
	umask uint32
	// limits and nice are what the program has set for itself.
	limits [rlimCount]rlimit
	nice   int64

	ctl     control
	mailbox mailbox
	host    hostCalls
	roams   bool
	outcome *Outcome
	scratch []byte
	// calls counts system calls by number since the process was made.
	calls [maxCall]uint32
}

// New makes a process over a machine that has not run yet: follow it with
// Exec or Restore.
func New(c Config) *Process {
	p := &Process{
		cpu: c.Machine, layout: c.Layout, spans: c.Layout.Spans(),
		fs: c.FS, random: c.Random, output: c.Output, obeyed: c.Obeyed, deadlocked: c.Deadlocked,
		mem:   newMemory(c.Layout, c.Layout.Size(c.Memory)),
		umask: 0o022,
		host:  hostCalls{begin: c.Host},
		roams: c.Roams,
	}
	p.scheduler.reset(&thread{id: processID})
	p.doze, p.tickIn = p.sleepUntilWoken, p.startTicker
	p.limits = defaultLimits()
	p.ctl.init()
	p.fds.init()
	p.cwd = p.fs.Root()
	return p
}

// State is a parked process without its memory and registers, in a form that
// can be kept in a file.
type State struct {
	Brk, BrkFresh, Fresh, End uint64
	Free                      []platform.Range
	InUse, Filled             []bool
	Handlers                  []SavedHandler
	AltStack                  AltStack
	Mask                      uint64
	ClearTID                  uint64
	Cwd                       string
	Umask                     uint32
	Monotonic                 uint64
	Mailbox                   SavedMailbox
	Files                     []vfs.Saved
}

// SavedHandler is one signal's disposition.
type SavedHandler struct {
	Signal int
	Action Action
}

// ErrState is returned when a process cannot be saved or restored.
var ErrState = errors.New("process state")

// Save gives the state of a parked process.
func (p *Process) Save() (*State, error) {
	if len(p.mailbox.request) == 0 {
		return nil, fmt.Errorf("%w: not parked", ErrState)
	}
	if len(p.host.calls) > 0 {
		return nil, fmt.Errorf("%w: the host is being called", ErrState)
	}
	if len(p.mem.shared) > 0 {
		return nil, fmt.Errorf("%w: files are mapped", ErrState)
	}
	if !p.fds.pristine() {
		return nil, fmt.Errorf("%w: files are open, or a standard stream is not what it was", ErrState)
	}
	if len(p.threads) != 1 || p.current.id != processID {
		return nil, fmt.Errorf("%w: %d threads are left over", ErrState, len(p.threads)-1)
	}
	main := p.current
	if len(main.frames) > 0 || main.queue.pending|p.sig.queue.pending != 0 || p.alarm.at != never {
		return nil, fmt.Errorf("%w: a signal is being handled or expected", ErrState)
	}
	cwd, ok := p.fs.Path(p.cwd)
	if !ok {
		return nil, fmt.Errorf("%w: the working folder is gone", ErrState)
	}
	files, err := p.fs.Export()
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrState, err)
	}
	mono, _ := p.cpu.Clock()
	m := p.mem.clone()
	s := &State{
		Brk: m.brk, BrkFresh: m.brkFresh, Fresh: m.fresh, End: m.end, Free: m.free, InUse: m.inUse, Filled: m.filled,
		AltStack: main.alt, Mask: main.mask, ClearTID: main.clearTID,
		Cwd: cwd, Umask: p.umask, Monotonic: mono, Mailbox: p.mailbox.save(), Files: files,
	}
	for n, h := range p.sig.actions {
		if h != (Action{}) {
			s.Handlers = append(s.Handlers, SavedHandler{n, h})
		}
	}
	return s, nil
}

// Check validates a state that comes from a file against the layout it is to
// be used with.
func (s *State) Check(l *Layout) error {
	bad := func(what string) error { return fmt.Errorf("%w: %s", ErrState, what) }
	switch {
	case s.Brk < l.Brk.Lo || s.Brk > s.BrkFresh || s.BrkFresh > l.Brk.Hi:
		return bad("break")
	case s.Fresh < l.Heap.Lo || s.Fresh > s.End || s.End > l.Heap.Hi ||
		s.Fresh%platform.PageSize != 0 || s.End%platform.PageSize != 0:
		return bad("heap")
	case len(s.InUse) != len(l.Objects) || len(s.Filled) != len(l.Objects):
		return bad("objects")
	}
	at := l.Heap.Lo
	for i, r := range s.Free {
		// Neighbours would have been joined.
		if r.Lo < at || i > 0 && r.Lo == at || r.Hi <= r.Lo || r.Hi > s.End || r.Lo%platform.PageSize != 0 || r.Hi%platform.PageSize != 0 {
			return bad("free ranges")
		}
		at = r.Hi
	}
	// What was never handed out is one free range.
	if n := len(s.Free); s.Fresh < s.End && (n == 0 || s.Free[n-1].Hi != s.End || s.Free[n-1].Lo > s.Fresh) {
		return bad("free ranges")
	}
	for _, h := range s.Handlers {
		n := syscall.Signal(h.Signal)
		if n <= 0 || n >= maxSignal || n == syscall.SIGKILL || n == syscall.SIGSTOP || h.Action.Mask&unblockable != 0 {
			return bad("signal")
		}
	}
	if s.Mask&unblockable != 0 || s.Umask&^0o777 != 0 {
		return bad("masks")
	}
	return s.Mailbox.check()
}

// Restore puts the process into a state, with a new file tree. Memory and CPU
// are the machine's affair. memory is what the guest may have from now on.
func (p *Process) Restore(s *State, fs *vfs.FS, memory uint64) error {
	p.fs = fs
	p.fds.init()
	cwd, e := fs.Resolve(fs.Root(), s.Cwd, true)
	if e != 0 {
		return fmt.Errorf("%w: working folder: %w", ErrState, e)
	}
	if cwd.Kind() != vfs.Dir {
		return fmt.Errorf("%w: working folder: %w", ErrState, syscall.ENOTDIR)
	}
	fs.Ref(cwd)
	p.cwd, p.umask = cwd, s.Umask
	p.mem.brk, p.mem.brkFresh, p.mem.fresh, p.mem.end = s.Brk, s.BrkFresh, s.Fresh, s.End
	p.mem.free = append(p.mem.free[:0], s.Free...)
	p.mem.inUse = append(p.mem.inUse[:0], s.InUse...)
	p.mem.filled = append(p.mem.filled[:0], s.Filled...)
	p.mem.shared, p.mem.denied = nil, 0
	if !p.mem.resize(p.layout.Size(memory)) {
		return fmt.Errorf("%w: %d MiB of memory are less than the template uses", ErrState, memory>>20)
	}
	p.sig = signals{}
	for _, h := range s.Handlers {
		p.sig.actions[h.Signal] = h.Action
	}
	// The clock starts again from the state's.
	p.scheduler.reset(&thread{id: processID, mask: s.Mask, clearTID: s.ClearTID, alt: s.AltStack})
	p.outcome = nil
	p.ctl.threads.Store(1)
	p.limits, p.nice = defaultLimits(), 0
	p.DropHostCalls()
	p.ctl.clear()
	return p.mailbox.restore(s.Mailbox)
}

// lookup resolves an absolute path of the file tree.
func (p *Process) lookup(path string) *vfs.Inode {
	ino, e := p.fs.Resolve(p.fs.Root(), path, true)
	if e != 0 {
		return nil
	}
	return ino
}

// buffer gives the scratch buffer with n bytes, at most maxBuffer.
func (p *Process) buffer(n int) []byte {
	n = min(n, maxBuffer)
	if cap(p.scratch) < n {
		p.scratch = make([]byte, max(n, transferSize))
	}
	return p.scratch[:n]
}

// cstring copies a NUL-terminated string of at most limit bytes with the NUL.
func (p *Process) cstring(addr uint64, limit int) (string, syscall.Errno) {
	var buf [256]byte
	var out []byte
	for len(out) < limit {
		n := min(len(buf), limit-len(out))
		// A string may end just before unmapped memory: never read past a page
		// that has not been needed yet.
		n = min(n, int(platform.PageSize-addr%platform.PageSize))
		if !p.cpu.CopyIn(buf[:n], addr) {
			return "", syscall.EFAULT
		}
		if i := slices.Index(buf[:n], 0); i >= 0 {
			return string(append(out, buf[:i]...)), 0
		}
		out = append(out, buf[:n]...)
		addr += uint64(n)
	}
	return "", syscall.ENAMETOOLONG
}

// NumCalls gives how many system calls the process has made.
func (p *Process) NumCalls() int {
	n := 0
	for _, c := range p.calls {
		n += int(c)
	}
	return n
}
