package supervise

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"slices"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/maf-sandbox/maf-sandbox-go/internal/helper"
	"github.com/maf-sandbox/maf-sandbox-go/internal/wire"
)

// Role is the name of the helper (package helper) that is a supervisor. It is
// given the control socket, the owner's lock and a pidfd of the host.
const Role = "supervisor"

// engineKVM is the engine that needs no namespaces (package host).
const engineKVM = "kvm"

const (
	lockFD  = helper.First + 1
	pidFD   = helper.First + 2
	givenFD = 3
)

func init() { helper.Register(Role, givenFD, Main) }

const (
	// maxWaiting bounds the calls that wait for a worker. A host that keeps to
	// maxAsked does not come near.
	maxWaiting = 4 * maxAsked
)

// server is the supervisor. Everything below control belongs to the goroutine
// of loop; others hand it functions.
type server struct {
	settings settings
	// code is what workers share for code in large pages.
	code   *os.File
	spawns chan func()
	todo   chan func()
	ctx    context.Context
	cancel context.CancelFunc

	control   *channel
	out       *outbox
	enforcer  enforcer // nil until it is set up
	settingUp bool
	next      uint64
	all       map[uint64]*process
	waiting   []uint64 // calls
	starting  int
	warmed    bool // a worker has been ready, so the template is there
	ending    bool
}

// Main is the supervisor process. It ends when its host wants it to or is gone,
// and no worker is left. The lock's descriptor stays open until then.
func Main() error {
	// Standard error may be closed with the host. Being notified instead of
	// ignoring lets workers have the default.
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, unix.SIGPIPE, unix.SIGHUP, unix.SIGINT, unix.SIGTERM)
	control, err := newChannel(os.NewFile(helper.First, "control"))
	if err != nil {
		return err
	}
	if _, err := unix.FcntlInt(lockFD, unix.F_GETFD, 0); err != nil {
		return fmt.Errorf("the owner's lock: %w", err)
	}
	m, _, err := control.receive()
	if err != nil {
		return err
	}
	if m.Kind != kindConfigure {
		return fmt.Errorf("%w: a first message of kind %d", wire.ErrProtocol, m.Kind)
	}
	s := &server{
		settings: *m.Settings, control: control, out: newOutbox(control), all: map[uint64]*process{},
		spawns: make(chan func()), todo: make(chan func()),
	}
	if s.code, err = codeFile(); err != nil {
		return err
	}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	defer s.cancel()
	go s.spawner()
	go s.listen()
	go s.watchHost()
	go func() {
		for got := range signals {
			if got == syscall.SIGTERM {
				s.todo <- s.shutdown
			}
		}
	}()
	s.setUp()
	s.loop()
	s.out.close()
	return nil
}

// codeFile makes the file that workers share. The host's processor never executes
// it: only guests do.
func codeFile() (*os.File, error) {
	const flags = unix.MFD_CLOEXEC | unix.MFD_ALLOW_SEALING
	fd, err := unix.MemfdCreate("code", flags|unix.MFD_NOEXEC_SEAL)
	if errors.Is(err, unix.EINVAL) { // before Linux 6.3
		fd, err = unix.MemfdCreate("code", flags)
	}
	if err != nil {
		return nil, fmt.Errorf("shared code: %w", err)
	}
	return os.NewFile(uintptr(fd), "code"), nil
}

// loop does what is to be done until nothing is left.
func (s *server) loop() {
	for {
		s.settle()
		if s.ending && s.starting == 0 && len(s.all) == 0 {
			return
		}
		(<-s.todo)()
	}
}

// spawner starts processes, all from one thread that never ends: the kernel
// takes the end of the thread that started a process for its parent's death.
func (s *server) spawner() {
	runtime.LockOSThread()
	dropBounding(s.traces())
	for f := range s.spawns {
		f()
	}
}

// watchHost waits for the host's end.
func (s *server) watchHost() {
	for {
		n, err := unix.Poll([]unix.PollFd{{Fd: pidFD, Events: unix.POLLIN}}, -1)
		if n > 0 || err != nil && !errors.Is(err, unix.EINTR) {
			s.todo <- s.shutdown
			return
		}
	}
}

// listen receives what the host says. A host that has closed the socket, or
// does not keep to the rules, has no supervisor any more.
func (s *server) listen() {
	for {
		m, files, err := s.control.receive()
		closeAll(files)
		if err != nil {
			s.todo <- s.shutdown
			return
		}
		s.todo <- func() { s.handle(m) }
	}
}

func (s *server) handle(m message) {
	switch m.Kind {
	case kindAcquire:
		if s.ending || len(s.waiting) >= maxWaiting {
			s.refuse(m.Call, &StartError{Kind: "internal", Message: "no more workers can be had"})
			return
		}
		s.waiting = append(s.waiting, m.Call)
	case kindCancel:
		s.waiting = slices.DeleteFunc(s.waiting, func(c uint64) bool { return c == m.Call })
	case kindRelease:
		if p := s.all[m.Worker]; p != nil {
			p.end()
		} else {
			s.tell(message{Kind: kindReleased, Worker: m.Worker})
		}
	default:
		s.shutdown()
	}
}

// shutdown has everything ended.
func (s *server) shutdown() {
	if s.ending {
		return
	}
	s.ending = true
	s.cancel()
	for _, p := range s.all {
		p.end()
	}
	for _, c := range s.waiting {
		s.refuse(c, &StartError{Kind: "internal", Message: "the supervisor is ending"})
	}
	s.waiting = nil
}

// setUp opens what bounds the workers. What keeps it from that may be put right
// by somebody, so it is tried again when a worker is next asked for.
func (s *server) setUp() {
	s.settingUp = true
	go func() {
		e, err := openEnforcer(s.ctx, s.settings.Limits)
		s.todo <- func() {
			s.settingUp = false
			if err == nil {
				s.enforcer = e
				return
			}
			why := (*process)(nil).failure(err)
			for _, c := range s.waiting {
				s.refuse(c, why)
			}
			s.waiting = nil
		}
	}()
}

// settle has workers started for the calls that wait.
func (s *server) settle() {
	if s.enforcer == nil && !s.settingUp && !s.ending && len(s.waiting) > 0 {
		s.setUp()
	}
	for s.wanted() {
		s.next++
		s.starting++
		enforcer, what := s.enforcer, s.settings.Start
		go func(id uint64) {
			p, err := s.start(s.ctx, enforcer, id, what)
			if err == nil {
				s.todo <- func() { s.started(p) }
				return
			}
			killed := p != nil && s.ctx.Err() == nil && p.killed(err)
			if p != nil {
				p.end()
			}
			f := p.failure(err)
			if killed {
				f.Kind = KindKilled
			}
			s.todo <- func() { s.failed(p, f) }
		}(s.next)
	}
}

// wanted says whether another worker should be started. Until one was ready,
// they come one after the other, because the first makes the template.
func (s *server) wanted() bool {
	at := 1
	if s.warmed {
		at = max(2, runtime.NumCPU())
	}
	return s.enforcer != nil && !s.ending && s.starting < min(at, len(s.waiting))
}

// started gives the worker to the call that has waited longest. If none does
// any more it is not needed.
func (s *server) started(p *process) {
	s.starting--
	s.keep(p)
	s.warmed = true
	// What one worker has verified the next ones need not.
	if p.ready.Stamp != "" {
		s.settings.Start.Verified = p.ready.Stamp
	}
	if s.ending || len(s.waiting) == 0 {
		p.end()
		return
	}
	call := s.waiting[0]
	s.waiting = s.waiting[1:]
	s.grant(call, p)
}

// traces says whether workers may have a process for their guest.
func (s *server) traces() bool {
	return s.settings.Start.Engine != "" && s.settings.Start.Engine != engineKVM
}

// failed refuses the call that has waited longest, if there is one.
func (s *server) failed(p *process, why *StartError) {
	s.starting--
	if p != nil {
		s.keep(p)
	}
	if len(s.waiting) > 0 {
		s.refuse(s.waiting[0], why)
		s.waiting = s.waiting[1:]
	}
}

// keep remembers a process until nothing is left of it.
func (s *server) keep(p *process) {
	s.all[p.id] = p
	go func() {
		<-p.ended
		s.todo <- func() { s.ended(p) }
		p.remove(func(err error) {
			s.todo <- func() { s.about(p, message{Kind: kindTrouble, Text: fmt.Sprintf("%.1000s", err.Error())}) }
		})
		s.todo <- func() {
			delete(s.all, p.id)
			s.about(p, message{Kind: kindReleased})
		}
	}()
}

func (s *server) ended(p *process) {
	p.forget()
	how := p.how
	s.about(p, message{Kind: kindGone, Gone: &how})
}

// grant gives a worker to a call.
func (s *server) grant(call uint64, p *process) {
	p.given = true
	ready := p.ready
	s.out.put(parcel{
		message: message{Kind: kindGranted, Call: call, Worker: p.id, Ready: &ready},
		files:   []*os.File{p.conn, p.side, p.pidfd},
		failed: func(err error) {
			p.end()
			s.refuse(call, &StartError{Kind: "internal", Message: err.Error()})
		},
	})
	p.conn, p.side, p.pidfd = nil, nil, nil
}

func (s *server) refuse(call uint64, why *StartError) {
	s.tell(message{Kind: kindRefused, Call: call, Failure: why})
}

// about tells something about a worker to the host that has it.
func (s *server) about(p *process, m message) {
	if m.Worker = p.id; p.given {
		s.tell(m)
	}
}

// tell sends to the host. Failures do not matter: a host that is gone is
// noticed elsewhere.
func (s *server) tell(m message) { s.out.put(parcel{message: m}) }
