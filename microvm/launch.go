package microvm

import (
	"context"
	"net"

	"github.com/maf-sandbox/maf-sandbox-go/internal/wire"
	"github.com/maf-sandbox/maf-sandbox-go/sandbox"
)

// system is what a backend needs of the operating system.
type system interface {
	// isolation is the rung that an engine reaches here; unset if it cannot run.
	isolation(e Engine) sandbox.Isolation
	// own takes the ownership of the configured namespace.
	own(c Config) (ownership, error)
	// image finds the image file of a spec: its name and the ID it must have,
	// each empty if that does not matter.
	image(ctx context.Context, c Config, name, id string) (string, error)
	// facts are those of the image that image would find; nothing is captured.
	facts(c Config, name, id string) (sandbox.Facts, error)
	// launch starts a supervisor for an image file, which must have the ID unless
	// that is empty. Every worker makes sure of it again.
	launch(c Config, image, id string, o ownership) (supervisor, error)
}

// ownership is a held owner's lock.
type ownership interface {
	Owns() bool
	Release() error
}

// supervisor keeps the workers of one image.
type supervisor interface {
	// Acquire gets a worker that is ready and unused. The error is errGone when
	// there is no supervisor any more, otherwise it has a class of package
	// sandbox or is the context's.
	Acquire(ctx context.Context) (process, error)
	// Close ends all workers and the supervisor.
	Close(ctx context.Context) error
	// Done is closed when the supervisor has ended.
	Done() <-chan struct{}
}

// process is a worker process that was acquired.
type process interface {
	Ready() wire.Ready
	// Conn is the line of calls, Side the side line (package worker).
	Conn() net.Conn
	Side() net.Conn
	// PID is the process, for people; 0 when it is not known.
	PID() int
	// Ended says whether the process has ended. Done is closed a moment later,
	// and Cause says why.
	Ended() bool
	Done() <-chan struct{}
	Cause() error
	// Abandon begins to end the process; Release waits until nothing is left.
	Abandon()
	Release(ctx context.Context) error
}

// goneError says that a supervisor has ended.
type goneError struct{ cause error }

func (e *goneError) Error() string { return e.cause.Error() }
func (e *goneError) Unwrap() error { return e.cause }

// outOfMemory is what a process's cause says of one that met its ceiling.
type outOfMemory interface{ MetCeiling() bool }

// unavailable says that this host cannot serve.
func unavailable(detail string, cause error) error {
	return &sandbox.OpError{Op: opAcquire, Class: sandbox.ErrUnavailable, Detail: detail, Cause: cause}
}

// EngineError is the cause of a sandbox.ErrUnavailable when this machine cannot run
// guests on the engine of a configuration.
type EngineError struct {
	// Engine is the one that was asked for.
	Engine Engine
	// Problem is one line: what is missing.
	Problem string
}

// Error is the problem, and what can be done about it.
func (e *EngineError) Error() string {
	text := e.Problem + "; 'maf-sandbox doctor' lists what this machine lacks and what mends it"
	if e.Engine == EngineKVM {
		text += "; without KVM there is Config.Engine EngineAuto or EnginePtrace: a traced process, of isolation container or os_process, which a router serves only if its Config.MinIsolation is lowered to that"
	}
	return text
}

// SetupError is the cause of a sandbox.ErrUnavailable when this machine cannot
// enforce the memory ceiling of a configuration.
type SetupError struct {
	// Enforcement is how it was to be enforced.
	Enforcement Enforcement
	// Problem is one line: what is missing, and what is needed.
	Problem string
	// Mend are the commands that put it right, in order, for a shell of the
	// operator; none when no command can.
	Mend []string
}

// Error is the problem, and what can be done about it.
func (e *SetupError) Error() string {
	choice := "another Config.Enforcement than " + string(e.Enforcement) + " (EnforceRlimit needs no setup)"
	if len(e.Mend) == 0 {
		return e.Problem + "; choose " + choice
	}
	return e.Problem + "; have an operator type SetupError.Mend (docs/operations.md), or choose " + choice
}
