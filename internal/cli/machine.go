package cli

import (
	"context"

	"github.com/maf-sandbox/maf-sandbox-go/microvm"
)

// Machine is one sandbox as the commands need it. Errors are those of package
// sandbox.
type Machine interface {
	// Run runs a program. The Result is valid beside an error too.
	Run(ctx context.Context, r microvm.Request) (microvm.Result, error)
	// Reset puts the sandbox back to how it started.
	Reset(ctx context.Context) error
	// ID names the state that the sandbox holds: it changes with every reset.
	ID() string
	// Close gives everything back.
	Close() error
}

// LimitsAuto stands for the strongest enforcement that the machine offers.
const LimitsAuto = "auto"

// Options says what kind of machine to open.
type Options struct {
	// Image is the name of a stored image or the path of an image file; empty
	// means the image of the machine's own Python.
	Image string
	// Memory is the guest's memory in bytes.
	Memory int64
	// Engine is "auto" or "kvm".
	Engine string
	// Limits is LimitsAuto or the word of a microvm.Enforcement.
	Limits string
	// Progress, if set, hears what is being done when it may take long.
	Progress func(string)
}

// Opener opens a machine and says what it is.
type Opener func(ctx context.Context, o Options) (Machine, microvm.Info, error)
