package mcp

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"

	"github.com/maf-sandbox/maf-sandbox-go/control"
	"github.com/maf-sandbox/maf-sandbox-go/internal/cli"
	"github.com/maf-sandbox/maf-sandbox-go/internal/mcp"
)

// controlName is how operators know this server.
func (o *Options) controlName() string {
	if o.ControlName != "" {
		return o.ControlName
	}
	return "mcp-" + strconv.Itoa(os.Getpid())
}

// startControl lets operators see and remove the sandboxes of a server, and
// tells whoever started the program where.
func (o *Options) startControl(monitor *control.Monitor, r control.Router, server *mcp.Server, logger *slog.Logger) (*control.Server, error) {
	name := o.controlName()
	host, err := control.NewHost(control.HostConfig{
		SourceID: name, Monitors: []*control.Monitor{monitor}, Router: r, Quiesce: server.Quiesce, Purge: server.Purge,
	})
	if err != nil {
		return nil, err
	}
	directory := control.RuntimeDirectory()
	c, err := control.NewServer(control.ServerConfig{
		Control: host, SourceID: name, Directory: directory, Socket: true, Logger: logger,
	})
	if err != nil {
		return nil, err
	}
	if err := c.Start(); err != nil {
		return nil, fmt.Errorf("--control: %w", err)
	}
	manifest, err := c.Manifest()
	if err != nil {
		return nil, errors.Join(err, c.Close())
	}
	// Standard output is the protocol's. A hint only.
	_, _ = fmt.Fprintf(o.Factory.Streams.Err, "%s: mst shows this server as %q: control at %s, announced in %s\n",
		cli.Program, name, manifest.Endpoint, filepath.Clean(directory))
	return c, nil
}
