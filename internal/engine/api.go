// Package engine turns an image into running Python: it boots the interpreter
// once into a template, makes copy-on-write virtual machines of it, runs
// source text in them and puts them back to the template afterwards.
package engine

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/maf-sandbox/maf-sandbox-go/internal/linux"
)

// Bounds and defaults of a run and a machine.
const (
	// DefaultCodeBytes is how much source one run may bring, in bytes.
	DefaultCodeBytes = 1 << 20
	// MaxCodeBytes is the most that the code limit can be raised to.
	MaxCodeBytes = 10 << 20
	// DefaultOutputBytes is how much stdout and stderr together may hold.
	DefaultOutputBytes = 1 << 20
	// MaxOutputBytes is the most that the output limit can be raised to.
	MaxOutputBytes = 16 << 20
	// MaxArgvBytes bounds Request.Argv, in bytes; it is what Linux allows a single
	// argument (MAX_ARG_STRLEN).
	MaxArgvBytes = 128 << 10
	// DefaultMemory is the guest's memory for Python objects, in bytes. The
	// interpreter's own text and libraries are not counted.
	DefaultMemory = 256 << 20
	// MinMemory is the least a guest can be given.
	MinMemory = 64 << 20
	// MaxMemory is the most a guest can be given.
	MaxMemory = 16 << 30
	// DefaultTimeout is the wall-clock time of one run.
	DefaultTimeout = 30 * time.Second
	// MaxValueBytes bounds Result.Value; a longer repr is cut.
	MaxValueBytes = 64 << 10
	// MaxHostCalls is how many calls to the host a machine may have under way; a
	// further one waits for its turn in the guest.
	MaxHostCalls = 16
	// MaxHostName bounds the name in a call to the host, in bytes.
	MaxHostName = linux.MaxHostName
	// MaxHostBytes bounds the request and the reply of a call to the host, in
	// bytes: 8 MiB and what is told about them.
	MaxHostBytes = linux.MaxHostBytes
)

// HostFunc answers a call of the guest to the host. The name and the request are
// foreign: whatever the guest likes, within MaxHostName and MaxHostBytes. An error
// becomes OSError with the error's text in the guest; so does a reply that is too
// large, and a panic, without its text. The context ends with the run, or before
// when the program does not wait for the answer any more; an answer that comes
// later is dropped. It is called on a goroutine of its own for each call, and
// counts as one of MaxHostCalls until it returns.
type HostFunc func(ctx context.Context, name string, request []byte) (reply []byte, err error)

// AskFunc begins a call of the guest to the host, like a HostFunc that has its
// answer given to a function: once, from any goroutine, also before it returns and
// when the context has ended. It is called on the thread that runs the machine,
// which waits, and saves the two switches of threads that a goroutine for each
// call costs.
type AskFunc func(ctx context.Context, name string, request []byte, answer func(reply []byte, err error))

// ErrNotOffered is what a HostFunc returns for a name that it does not know. The
// guest sees the same as if there were no HostFunc at all.
var ErrNotOffered = errors.New("not offered by the host")

// ErrNoRoom is what a HostFunc returns that has done nothing, for want of memory
// for the request, and can be called again later. The guest sees ENOBUFS.
var ErrNoRoom = errors.New("the host has no room for the request")

// Request is one run.
type Request struct {
	// Code is Python source text in UTF-8.
	Code []byte
	// Filename is what tracebacks call the source; "<sandbox>" when empty.
	Filename string
	// Argv are the elements of the program's sys.argv, each with a zero byte in
	// front; at most MaxArgvBytes. Empty leaves sys.argv as it is. It is not there
	// any more after the run.
	Argv []byte
	// Timeout is the wall-clock limit; zero means DefaultTimeout.
	Timeout time.Duration
	// MaxOutput bounds stdout and stderr together; zero means
	// DefaultOutputBytes.
	MaxOutput int
	// MaxCode bounds len(Code); zero means DefaultCodeBytes.
	MaxCode int
	// Echo asks for the repr of a trailing expression in Result.Value.
	Echo bool
	// Live asks for output to arrive line by line instead of in blocks, as a
	// terminal wants it. Each line then costs a VM exit.
	Live bool
	// Stdout and Stderr, when set, receive output as it arrives, in addition
	// to the Result. They are called from the goroutine that called Run; what
	// they return is ignored.
	Stdout, Stderr io.Writer
	// Host answers the program's calls to the host; nil means that there are
	// none, and a call raises OSError.
	Host HostFunc
	// Ask takes the place of Host when it is set.
	Ask AskFunc
}

// Result is what a run left behind. It is returned beside an error too, with
// what was captured until then.
type Result struct {
	Stdout, Stderr []byte
	// ExitCode is what a POSIX process running the program would report.
	ExitCode int
	// Exited says that the program ended the interpreter itself (os._exit):
	// the machine is retired.
	Exited bool
	// Value is the repr of a trailing expression, if asked for and not None.
	Value string
	// Duration is the wall-clock time of the run.
	Duration time.Duration
}

// Kind classifies what went wrong in the words of the command line's JSON.
type Kind string

// The kinds of failure.
const (
	KindTimeout     Kind = "timeout"
	KindOutputLimit Kind = "output_limit"
	KindMemory      Kind = "memory"
	KindDeadlock    Kind = "deadlock"
	KindGuestCrash  Kind = "guest_crash"
	KindRefused     Kind = "refused"
	KindUnavailable Kind = "unavailable"
	// KindNoPlatform: nothing on this machine can run guests as it was asked for. It
	// is an ErrUnavailable too.
	KindNoPlatform Kind = "no_platform"
	KindCanceled   Kind = "canceled"
	KindInternal   Kind = "internal"
)

// Sentinels for errors.Is. A deadline also satisfies
// errors.Is(err, context.DeadlineExceeded), a cancellation context.Canceled.
var (
	ErrTimeout     = errors.New("time limit reached")
	ErrOutputLimit = errors.New("output limit reached")
	ErrMemory      = errors.New("out of memory")
	ErrDeadlock    = errors.New("deadlock")
	ErrGuestCrash  = errors.New("guest crashed")
	ErrRefused     = errors.New("refused")
	ErrUnavailable = errors.New("unavailable")
	ErrCanceled    = errors.New("canceled")
	ErrInternal    = errors.New("internal error")
)

var sentinels = map[Kind]error{
	KindTimeout: ErrTimeout, KindOutputLimit: ErrOutputLimit, KindMemory: ErrMemory,
	KindDeadlock: ErrDeadlock, KindGuestCrash: ErrGuestCrash, KindRefused: ErrRefused, KindUnavailable: ErrUnavailable, KindNoPlatform: ErrUnavailable,
	KindCanceled: ErrCanceled, KindInternal: ErrInternal,
}

// Error is every error of this package.
type Error struct {
	Kind Kind
	// Message is one line for people: what happened and what to do.
	Message string
	// Usable says whether the machine can be used for another run.
	Usable bool
	// Cause is the underlying error, if any.
	Cause error
}

// Error gives the message, with the cause behind it.
func (e *Error) Error() string {
	if e.Cause == nil {
		return e.Message
	}
	return fmt.Sprintf("%s: %v", e.Message, e.Cause)
}

// Unwrap gives the sentinel of the kind and the cause.
func (e *Error) Unwrap() []error {
	if e.Cause == nil {
		return []error{sentinels[e.Kind]}
	}
	return []error{sentinels[e.Kind], e.Cause}
}
