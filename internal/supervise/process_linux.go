package supervise

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/maf-sandbox/maf-sandbox-go/internal/cgroup"
	"github.com/maf-sandbox/maf-sandbox-go/internal/helper"
	"github.com/maf-sandbox/maf-sandbox-go/internal/wire"
)

const (
	// again is how long to wait before killing or removing is tried again.
	again = 100 * time.Millisecond
	// removeTimeout bounds one attempt to remove what a worker has left.
	removeTimeout = time.Second
	// stderrDelay bounds how long the standard error of a worker that has ended
	// is read, should another process have it.
	stderrDelay = time.Second
	// maxProcessors bounds GOMAXPROCS of a worker, which has one guest with one
	// processor. The Go runtime has a thread, and memory, for each: on a large
	// machine too many for maxTasks.
	maxProcessors = 4
)

// process is a worker as its supervisor sees it.
type process struct {
	id    uint64
	cage  cage
	cmd   *exec.Cmd
	said  *head
	ready wire.Ready
	// conn and side lead to the worker and pidfd is its process; both are nil once the
	// host is given them.
	conn, side, pidfd *os.File
	given             bool

	// ended is closed when the process has been waited for; how is set then.
	ended chan struct{}
	how   GoneError
	once  sync.Once
}

// start starts a worker and waits until it is ready. On an error the process,
// if there is one, has to be ended and removed by the caller.
func (s *server) start(ctx context.Context, e enforcer, id uint64, what wire.Start) (*process, error) {
	c, err := e.prepare(rand.Text())
	if err != nil {
		return nil, err
	}
	p := &process{id: id, cage: c, said: new(head), ended: make(chan struct{})}
	if err := s.spawn(p); err != nil {
		if p.cmd == nil || p.cmd.Process == nil {
			close(p.ended)
		}
		return p, err
	}
	defer context.AfterFunc(ctx, p.end)()
	if err := p.handshake(what, s.settings.StartTimeout); err != nil {
		if errors.Is(err, os.ErrDeadlineExceeded) {
			err = fmt.Errorf("not within %v", s.settings.StartTimeout)
		}
		return p, fmt.Errorf("not ready: %w", err)
	}
	if !s.traces() {
		return p, nil
	}
	return p, p.cage.ready(p.cmd.Process.Pid)
}

// spawn makes the process and begins to wait for its end.
func (s *server) spawn(p *process) error {
	calls, err := p.connect(&p.conn)
	if err != nil {
		return err
	}
	defer func() { _ = calls.Close() }()
	side, err := p.connect(&p.side)
	if err != nil {
		return err
	}
	defer func() { _ = side.Close() }()

	pidfd := -1
	p.cmd = helper.Command(s.settings.Role, "", calls, side, s.code)
	p.cmd.Env = append(p.cmd.Env, "GOMAXPROCS="+strconv.Itoa(min(maxProcessors, runtime.NumCPU())))
	p.cmd.Stderr, p.cmd.WaitDelay = p.said, stderrDelay
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, PidFD: &pidfd}
	p.cage.attributes(p.cmd.SysProcAttr)
	started := make(chan error)
	s.spawns <- func() { started <- p.cmd.Start() }
	if err := <-started; err != nil {
		return err
	}
	// Not after Wait: the number could be another's by then.
	bounded := p.cage.started(p.cmd.Process.Pid)
	offer(p.cmd.Process.Pid)
	go func() {
		err := p.cmd.Wait()
		p.how = ending(p.cmd.ProcessState, err)
		p.how.Diagnostics = p.said.String()
		p.how.OutOfMemory = p.cage.outOfMemory(p.how)
		close(p.ended)
	}()
	if pidfd < 0 {
		return errors.New("the kernel has no pidfd (Linux 5.2)")
	}
	p.pidfd = os.NewFile(uintptr(pidfd), "pidfd")
	return bounded
}

// connect makes a socket pair and keeps one end, as a file that can wait with a
// deadline.
func (p *process) connect(keep **os.File) (theirs *os.File, err error) {
	ours, theirs, err := pair(unix.SOCK_STREAM)
	if err != nil {
		return nil, err
	}
	fd := -1
	if err = unix.SetNonblock(int(ours.Fd()), true); err == nil {
		// A new file of the descriptor finds out that it can wait.
		fd, err = unix.FcntlInt(ours.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	}
	_ = ours.Close()
	if err != nil {
		_ = theirs.Close()
		return nil, err
	}
	*keep = os.NewFile(uintptr(fd), "worker")
	return theirs, nil
}

func ending(state *os.ProcessState, err error) GoneError {
	if state == nil {
		return GoneError{ExitCode: -1, Diagnostics: fmt.Sprint(err)}
	}
	g := GoneError{ExitCode: state.ExitCode()}
	if w, ok := state.Sys().(syscall.WaitStatus); ok && w.Signaled() {
		g.Signal = int(w.Signal())
	}
	return g
}

// handshake tells the worker what to serve and waits until it does.
func (p *process) handshake(start wire.Start, limit time.Duration) error {
	if err := p.conn.SetDeadline(time.Now().Add(limit)); err != nil {
		return err
	}
	b, err := wire.Encode(start)
	if err != nil {
		return err
	}
	if err := wire.NewWriter(p.conn).Write(wire.Frame{Kind: wire.KindStart, Payload: b}); err != nil {
		return err
	}
	f, err := wire.NewReader(p.conn, wire.MaxOutputPayload).Next()
	if err != nil {
		return err
	}
	switch f.Kind {
	case wire.KindReady:
		return wire.Decode(f.Payload, &p.ready)
	case wire.KindDone:
		var d wire.Done
		if err := wire.Decode(f.Payload, &d); err != nil {
			return err
		}
		return &StartError{Kind: d.Kind, Message: d.Message}
	}
	return fmt.Errorf("%w: a frame of kind %d instead of ready", wire.ErrProtocol, f.Kind)
}

// end has the process killed, again and again until it has ended. It does not
// wait, and may be called at any time.
func (p *process) end() {
	p.once.Do(func() {
		go func() {
			for {
				_ = p.kill()
				select {
				case <-p.ended:
					return
				case <-time.After(again):
				}
			}
		}()
	})
}

func (p *process) kill() error {
	err := p.cage.kill()
	if p.cmd == nil || p.cmd.Process == nil {
		return err
	}
	if e := p.cmd.Process.Kill(); !errors.Is(e, os.ErrProcessDone) {
		err = errors.Join(err, e)
	}
	return err
}

// remove waits until the process has ended, and removes what is left of it. It
// returns when there is nothing left; trouble is called with each failure.
func (p *process) remove(trouble func(error)) {
	<-p.ended
	for {
		ctx, cancel := context.WithTimeout(context.Background(), removeTimeout)
		err := p.cage.kill()
		if err == nil {
			err = p.cage.remove(ctx)
		}
		cancel()
		if err == nil {
			return
		}
		trouble(err)
		time.Sleep(again)
	}
}

// forget closes what nobody wants any more.
func (p *process) forget() {
	for _, f := range []*os.File{p.conn, p.side, p.pidfd} {
		if f != nil {
			_ = f.Close()
		}
	}
	p.conn, p.side, p.pidfd = nil, nil, nil
}

// failure describes why a worker could not be started. The process, if there is
// one, has been told to end.
func (p *process) failure(err error) *StartError {
	s := StartError{Kind: "internal", Message: err.Error()}
	if e := (*StartError)(nil); errors.As(err, &e) {
		s = *e
	} else if errors.Is(err, cgroup.ErrSetup) || errors.Is(err, cgroup.ErrSystemd) {
		s.Kind, s.Ceiling, s.Mend = "unavailable", true, mend(err)
	}
	if p != nil {
		select {
		case <-p.ended:
			s.Diagnostics = p.how.Diagnostics
			switch {
			case p.how.OutOfMemory:
				s.Kind, s.Message = "memory", "it reached its memory limit before it was ready"
			case closed(err):
				how := p.how
				how.Diagnostics = ""
				s.Message = "its connection was closed before it was ready: " + how.Error()
			}
		case <-time.After(stderrDelay):
			s.Diagnostics = p.said.String()
		}
	}
	s.Message = fmt.Sprintf("%.4000s", s.Message)
	return &s
}

// killed says whether somebody else has ended a worker that could not be started.
// One that has only closed its connection gets a moment to end by itself, since that
// is told a little later. Nobody here may have told it to end.
func (p *process) killed(err error) bool {
	if !closed(err) {
		return false
	}
	select {
	case <-p.ended:
		return !p.how.OutOfMemory && fromOutside(p.how.Signal)
	case <-time.After(stderrDelay):
		return false
	}
}

// fromOutside says whether a signal is one by which somebody else ends a process.
// What a worker's own fault, or its filter of system calls, ends it with would end
// the next one too.
func fromOutside(signal int) bool {
	switch unix.Signal(signal) {
	case unix.SIGKILL, unix.SIGTERM, unix.SIGINT, unix.SIGHUP:
		return true
	default:
		return false
	}
}

// closed says whether an error means that the worker has closed its connection
// or ended.
func closed(err error) bool {
	for _, e := range []error{io.EOF, io.ErrUnexpectedEOF, unix.EPIPE, unix.ECONNRESET, unix.ESRCH} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

// maxMend bounds what the commands of StartError.Mend have together, in bytes.
const maxMend = 32 << 10

// mend gives the commands that put right what is missing on this machine.
func mend(err error) []string {
	var commands []string
	if e := (*cgroup.SetupError)(nil); errors.As(err, &e) {
		commands = e.Mend
	} else if errors.Is(err, cgroup.ErrSystemd) {
		commands = cgroup.ScopeRecipe()
	}
	if len(strings.Join(commands, "\n")) > maxMend {
		return nil
	}
	return commands
}
