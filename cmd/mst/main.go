// Command mst is the operator console: it shows the sandboxes of this machine's
// hosts and has them dispose of those that the operator chooses.
package main

import (
	"context"
	"os"

	"github.com/maf-sandbox/maf-sandbox-go/internal/console"
	"github.com/maf-sandbox/maf-sandbox-go/internal/mst/command"
	"github.com/maf-sandbox/maf-sandbox-go/internal/mst/fleet"
)

func main() {
	f := command.New()
	f.Console = func(ctx context.Context, hosts *fleet.Fleet) error { return console.Run(ctx, hosts, console.Config{}) }
	os.Exit(command.Main(f))
}
