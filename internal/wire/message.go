package wire

import (
	"fmt"
	"time"

	"github.com/fxamacker/cbor/v2"
)

// Start tells a worker what to serve.
type Start struct {
	// Image is the path of an image file, Templates the folder of its template.
	Image, Templates string
	// ImageID is the ID that the image must have; empty if any will do.
	ImageID string
	// Engine is the name of what runs the guest; empty means KVM.
	Engine string
	// Verified is the stamp of a template that an earlier worker has verified.
	Verified string
	// Memory is the guest's memory in bytes.
	Memory int64
	// Grace is how long a program has to obey an interrupt.
	Grace time.Duration
	// Warm: run a small program and reset before being ready, so that the first
	// call finds the pages it needs.
	Warm bool
}

// Run is a program to run.
type Run struct {
	Code     []byte
	Filename string
	// Argv are the elements of sys.argv, each with a zero byte in front; none leave
	// it as it is.
	Argv []byte `cbor:",omitempty"`
	// Timeout is what is left of the call's time, queueing included.
	Timeout time.Duration
	// MaxOutput bounds stdout and stderr together, in bytes.
	MaxOutput int
	// Echo asks for the repr of a trailing expression, Live for output as it is
	// written rather than when a buffer is full.
	Echo, Live bool
	// Host: the program may ask the host.
	Host bool
}

// Bounds of what a program can ask.
const (
	// MaxAsks is how many asks of one connection can be without an answer.
	MaxAsks = 16
	// MaxAskName bounds Ask.Name, in bytes.
	MaxAskName = 255
	// MaxAskBytes bounds Ask.Payload and Answer.Payload: 8 MiB and what is told
	// about them.
	MaxAskBytes = 8<<20 + 68<<10
	// MaxFailure bounds Answer.Failure, in bytes.
	MaxFailure = 4 << 10
)

// Ask is a call of the guest to the host. Name and payload are the guest's own
// words.
type Ask struct {
	// ID is chosen by the worker, never twice on one connection.
	ID      uint32
	Name    string
	Payload []byte
}

func (a *Ask) check() error {
	switch {
	case len(a.Name) > MaxAskName:
		return violation("an ask with a name of %d bytes; at most %d are allowed", len(a.Name), MaxAskName)
	case len(a.Payload) > MaxAskBytes:
		return violation("an ask of %d bytes; at most %d are allowed", len(a.Payload), MaxAskBytes)
	}
	return nil
}

// Answer is the host's answer to an Ask.
type Answer struct {
	// ID is that of the Ask.
	ID      uint32
	Payload []byte
	// Failed: there is no answer, for the reason in Failure, which the guest will
	// see.
	Failed  bool
	Failure string
	// NoRoom, beside Failed: nothing was done, since the host has no memory for the
	// request beside those of others. It can be asked again.
	NoRoom bool
	// Unknown: the host does not offer what was asked for.
	Unknown bool
}

func (a *Answer) check() error {
	switch {
	case len(a.Payload) > MaxAskBytes:
		return violation("an answer of %d bytes; at most %d are allowed", len(a.Payload), MaxAskBytes)
	case len(a.Failure) > MaxFailure:
		return violation("a failure of %d bytes; at most %d are allowed", len(a.Failure), MaxFailure)
	}
	return nil
}

// Withdraw names an Ask whose answer nobody waits for.
type Withdraw struct{ ID uint32 }

// Ready tells what a worker serves.
type Ready struct {
	// Generation names what the guest holds.
	Generation string
	// Engine and Isolation are the platform's name and the rung it reaches.
	Engine, Isolation string
	// Python is the interpreter's version.
	Python string
	// Stamp is that of the template, verified; empty when there is none.
	Stamp string
}

// Done ends a call. Output has been sent before it.
type Done struct {
	// ExitCode is what a POSIX process running the program would report.
	ExitCode int
	// Exited: the program ended the interpreter; the sandbox is retired.
	Exited bool
	// Value is the repr of a trailing expression.
	Value string
	// Generation names what the guest holds now.
	Generation string
	// Kind classifies a failure in the engine's words; empty means none.
	Kind, Message string
	// Usable says whether the sandbox can be used for another call.
	Usable bool
	// Duration is the wall-clock time in the worker.
	Duration time.Duration
}

// Bounds of what a message may hold, checked by the decoder before it
// allocates. Strings and byte strings are bounded by the frame.
const (
	maxElements = 16
	maxNesting  = 4
)

var encoding = func() cbor.EncMode {
	m, err := cbor.CoreDetEncOptions().EncMode()
	if err != nil {
		panic(err) // the options are constant
	}
	return m
}()

var decoding = func() cbor.DecMode {
	m, err := cbor.DecOptions{
		DupMapKey: cbor.DupMapKeyEnforcedAPF, IndefLength: cbor.IndefLengthForbidden, TagsMd: cbor.TagsForbidden,
		MaxNestedLevels: maxNesting, MaxArrayElements: maxElements, MaxMapPairs: maxElements,
		ExtraReturnErrors: cbor.ExtraDecErrorUnknownField, UTF8: cbor.UTF8RejectInvalid,
	}.DecMode()
	if err != nil {
		panic(err) // the options are constant
	}
	return m
}()

// Encode gives the payload of a message.
func Encode(v any) ([]byte, error) {
	b, err := encoding.Marshal(v)
	if err != nil {
		return nil, fmt.Errorf("encode %T: %w", v, err)
	}
	return b, nil
}

// Decode reads the payload of a message into v. It returns ErrProtocol for what
// is none.
func Decode(payload []byte, v any) error {
	if err := decoding.Unmarshal(payload, v); err != nil {
		return fmt.Errorf("%w: %T: %w", ErrProtocol, v, err)
	}
	if c, ok := v.(interface{ check() error }); ok {
		return c.check()
	}
	return nil
}
