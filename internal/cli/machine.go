package cli

import (
	"context"

	"github.com/maf-sandbox/maf-sandbox-go/internal/engine"
)

// Machine is one sandbox as the commands need it.
type Machine interface {
	// Run runs source text. The Result is valid beside an error too; errors
	// are *engine.Error.
	Run(ctx context.Context, req engine.Request) (engine.Result, error)
	// Reset puts the machine back to how it started.
	Reset(ctx context.Context) error
	// Generation names the state that the machine holds: it changes with
	// every reset.
	Generation() string
	// Close gives everything back.
	Close() error
}

// Options says what kind of machine to open.
type Options struct {
	// Image is the name of a stored image or the path of an image file; empty
	// means the image of the machine's own Python.
	Image string
	// Memory is the guest's memory in bytes.
	Memory int64
	// Engine is one of the names of package host.
	Engine string
	// Progress, if set, hears what is being done when it may take long.
	Progress func(string)
}

// Info says what was opened.
type Info struct {
	// Engine is the platform's short name, Isolation the rung it reaches.
	Engine, Isolation string
}

// Opener opens a machine. Its errors are *engine.Error.
type Opener func(ctx context.Context, o Options) (Machine, Info, error)
