package command

import (
	"context"
	"os"
	"runtime/debug"
	"strings"
	"time"

	"github.com/maf-sandbox/maf-sandbox-go/internal/mst/fleet"
	"github.com/maf-sandbox/maf-sandbox-go/internal/selfupdate"
	"github.com/maf-sandbox/maf-sandbox-go/internal/streams"
)

// Program is the name in front of every message.
const Program = "mst"

// Factory is what every command is made from.
type Factory struct {
	Streams *streams.Streams
	// Now is the clock.
	Now func() time.Time
	// Unread says that nobody can read the output: it is closed.
	Unread bool
	// Directory is the discovery folder; empty for the user's own.
	Directory string
	// Terminal says what kind of terminal there is: the value of TERM.
	Terminal string
	// Console runs the console until the operator leaves it. Who calls it has
	// checked that there is a terminal.
	Console func(ctx context.Context, hosts *fleet.Fleet) error
	// Installation finds out how this program was installed.
	Installation func(context.Context) (selfupdate.Installation, error)
	// SelfUpdate replaces this program with another release of it.
	SelfUpdate func(context.Context, selfupdate.Options) (selfupdate.Report, error)
}

// New gives the factory of this process, without a console.
func New() *Factory {
	f := &Factory{
		Streams: streams.System(), Now: time.Now, Unread: outputClosed(), Terminal: os.Getenv("TERM"),
		Installation: func(ctx context.Context) (selfupdate.Installation, error) {
			return selfupdate.Detect(ctx, selfupdate.Options{Program: itself()})
		},
		SelfUpdate: selfupdate.Run,
	}
	f.Streams.Color = wantsColor(f.Streams.Color, os.Getenv)
	return f
}

// wantsColor adds to what the terminal can do what its user asks for: the
// variables of no-color.org and bixense.com/clicolors.
func wantsColor(terminal bool, env func(string) string) bool {
	if env("NO_COLOR") != "" {
		return false
	}
	if force := env("CLICOLOR_FORCE"); force != "" && force != "0" {
		return true
	}
	return terminal && env("CLICOLOR") != "0"
}

// stamped is the version of a wheel, which its build sets through the linker:
// there is no released module whose version it could have.
var stamped string

// Version is this build's version, without the "v" that Go puts before it;
// "(devel)" when it was built from a checkout.
func Version() string {
	if stamped != "" {
		return stamped
	}
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" {
		return strings.TrimPrefix(info.Main.Version, "v")
	}
	return "(devel)"
}
