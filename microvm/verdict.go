package microvm

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/maf-sandbox/maf-sandbox-go/internal/engine"
	"github.com/maf-sandbox/maf-sandbox-go/internal/wire"
	"github.com/maf-sandbox/maf-sandbox-go/sandbox"
)

// checkRun fills in the defaults of a request and refuses what cannot be run.
func (b *Backend) checkRun(r *Request) error {
	if r.Timeout == 0 {
		r.Timeout = sandbox.DefaultTimeout
	}
	if r.MaxOutput == 0 {
		r.MaxOutput = b.config.MaxOutput
	}
	refuse := func(subject, asked, allowed string) error {
		return &sandbox.RefusalError{
			Reason: sandbox.ErrInvalid, Subject: subject, Asked: asked, Allowed: allowed, Decider: b.decider(),
		}
	}
	switch {
	case r.Timeout < 0:
		return refuse("timeout", r.Timeout.String(), "zero for the default, or more")
	case len(r.Code) > b.config.MaxCode:
		return refuse("code", fmt.Sprintf("%d bytes", len(r.Code)), fmt.Sprintf("up to %d bytes", b.config.MaxCode))
	case !utf8.ValidString(r.Code):
		return refuse("code", "text that is not UTF-8", "UTF-8")
	case r.MaxOutput < 0 || r.MaxOutput > b.config.MaxOutput:
		return refuse("max_output", fmt.Sprintf("%d bytes", r.MaxOutput), fmt.Sprintf("up to %d bytes", b.config.MaxOutput))
	case len(r.Filename) > maxFilename || !utf8.ValidString(r.Filename) || strings.ContainsAny(r.Filename, "\x00\n"):
		return refuse("filename", fmt.Sprintf("%.40q", r.Filename), fmt.Sprintf("one line of UTF-8 of up to %d bytes", maxFilename))
	}
	argv := 0
	for _, arg := range r.Argv {
		argv += len(arg) + 1
		if strings.ContainsRune(arg, 0) {
			return refuse("argv", "an element with a zero byte", "elements without")
		}
	}
	if argv > MaxArgv {
		return refuse("argv", fmt.Sprintf("%d bytes", argv), fmt.Sprintf("up to %d bytes", MaxArgv))
	}
	return nil
}

// joinArgv gives the elements as the wire has them, each with a zero byte in front.
func joinArgv(argv []string) (joined []byte) {
	for _, arg := range argv {
		joined = append(append(joined, 0), arg...)
	}
	return joined
}

// maxFilename bounds Request.Filename, in bytes.
const maxFilename = 255

// output gathers what a run writes. A worker that sends more than was agreed
// has broken the protocol: it counts itself.
type output struct {
	limit          int
	out, err       []byte
	stdout, stderr io.Writer
}

func (o *output) take(kind wire.Kind, b []byte) error {
	if len(b) == 0 || len(o.out)+len(o.err)+len(b) > o.limit {
		return fmt.Errorf("%w: output of %d bytes beyond the limit of %d bytes", wire.ErrProtocol, len(b), o.limit)
	}
	kept, live := &o.out, o.stdout
	if kind == wire.KindStderr {
		kept, live = &o.err, o.stderr
	}
	*kept = append(*kept, b...)
	if live != nil {
		_, _ = live.Write(b) // the caller's own affair
	}
	return nil
}

// classes are the engine's kinds of failure in the protocol's words.
var classes = map[engine.Kind]error{
	engine.KindTimeout:     sandbox.ErrTimeout,
	engine.KindOutputLimit: sandbox.ErrOutputLimit,
	engine.KindMemory:      sandbox.ErrMemory,
	engine.KindDeadlock:    sandbox.ErrDeadlock,
	engine.KindGuestCrash:  sandbox.ErrGuestCrash,
	engine.KindRefused:     sandbox.ErrWorkerLost, // requests are checked here, so it is the machine that is retired
	engine.KindUnavailable: sandbox.ErrUnavailable,
	engine.KindCanceled:    sandbox.ErrCanceled,
}

// verdict is what an operation says that had its turn, given how its exchange
// ended. One that cost the sandbox ends it here.
func (s *Sandbox) verdict(ctx context.Context, op string, d wire.Done, err error) error {
	var e *sandbox.OpError
	switch {
	case err != nil && s.life.Err() != nil:
		return s.lost(op)
	case err != nil:
		e = s.broken(ctx, op, err)
	case d.Exited:
		e = &sandbox.OpError{Op: op, Class: sandbox.ErrGuestCrash, Detail: fmt.Sprintf("the program ended its interpreter with status %d", d.ExitCode)}
	case d.Kind == "":
		return nil
	default:
		e = s.failed(ctx, op, d)
	}
	if !e.Usable {
		s.logLoss(ctx, op, e)
		s.lose(sandbox.ErrWorkerLost, e)
	}
	return e
}

// failed is a failure that the worker told.
func (s *Sandbox) failed(ctx context.Context, op string, d wire.Done) *sandbox.OpError {
	kind := engine.Kind(d.Kind)
	class, known := classes[kind]
	switch {
	case !known:
		class = sandbox.ErrInternal
	case kind == engine.KindCanceled && ctx.Err() == nil, kind == engine.KindUnavailable:
		// Nobody cancelled, and what runs is there.
		class = sandbox.ErrWorkerLost
		d.Usable = false
	}
	usable := d.Usable
	if s.backend.config.Overrun == OverrunRetire {
		usable = usable && kind != engine.KindTimeout && kind != engine.KindCanceled && kind != engine.KindOutputLimit
	}
	return &sandbox.OpError{Op: op, Class: class, Usable: usable, Detail: oneLine(d.Message)}
}

// maxDetail bounds what a worker says in an error, in bytes.
const maxDetail = 1000

// oneLine keeps a worker's words to one line that nothing in a terminal obeys.
func oneLine(text string) string {
	text = fmt.Sprintf("%.*q", maxDetail, text)
	return text[1 : len(text)-1]
}

// deathWatch is how long the supervisor may take to tell how a worker ended
// whose connection has ended.
const (
	deathWatch = 2 * time.Second
	leastWatch = 100 * time.Millisecond // past the end of a call's time
)

// broken is the end of a connection in the middle of a call: the worker has
// died, does not answer any more, or has broken the protocol.
func (s *Sandbox) broken(ctx context.Context, op string, err error) *sandbox.OpError {
	if errors.Is(err, os.ErrDeadlineExceeded) {
		e := &sandbox.OpError{Op: op, Class: sandbox.ErrCanceled, Detail: "the worker did not give way and is stopped"}
		if errors.Is(ctx.Err(), context.DeadlineExceeded) {
			e.Class = sandbox.ErrTimeout
		}
		return e
	}
	if errors.Is(err, wire.ErrProtocol) {
		return &sandbox.OpError{Op: op, Class: sandbox.ErrWorkerLost, Detail: "the worker does not keep to the protocol and is stopped", Cause: err}
	}
	watch := deathWatch
	if d, ok := ctx.Deadline(); ok {
		watch = max(leastWatch, min(watch, time.Until(d.Add(slack))))
	}
	timer := time.NewTimer(watch)
	defer timer.Stop()
	select {
	case <-s.worker.Done():
		err = s.worker.Cause()
	case <-s.life.Done():
	case <-timer.C:
	}
	var met outOfMemory
	if errors.As(err, &met) && met.MetCeiling() {
		return &sandbox.OpError{Op: op, Class: sandbox.ErrMemory, Detail: "the worker met its memory ceiling", Cause: err}
	}
	return &sandbox.OpError{Op: op, Class: sandbox.ErrWorkerLost, Cause: err}
}
