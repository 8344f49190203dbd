// Command host is a small host program: an agent with two conversations, each of
// which has a micro-VM of its own, and an operator who sees and removes them with
// mst. Start it, then try "mst list" and "mst delete ID" in another terminal.
//
//	go run ./examples/host
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/maf-sandbox/maf-sandbox-go/codeact"
	"github.com/maf-sandbox/maf-sandbox-go/control"
	"github.com/maf-sandbox/maf-sandbox-go/control/fence"
	"github.com/maf-sandbox/maf-sandbox-go/microvm"
	"github.com/maf-sandbox/maf-sandbox-go/router"
	"github.com/maf-sandbox/maf-sandbox-go/sandbox"
)

// What the keys of this host's sandboxes are made of. A real host has a scope for
// each of its users.
const (
	scope = "example"
	agent = "analyst"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := serve(ctx, os.Stdout); err != nil {
		_, _ = fmt.Fprintln(os.Stderr, "host:", err)
		os.Exit(1)
	}
}

// host is what serves the conversations.
type host struct {
	router *router.Router
	tool   *codeact.Tool
	// fence has every call inside, so that an operator's wish stops it.
	fence fence.Fence
}

// serve runs until ctx ends.
func serve(ctx context.Context, out io.Writer) (err error) {
	backend, err := microvm.New(microvm.Config{
		Private: true, // a program of one's own needs no name on this machine
		Pool:    1,    // a spare one, so that a new conversation does not wait
		// The weakest ceiling, and the only one that needs no setup.
		Enforcement: microvm.EnforceRlimit,
	})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, backend.Close()) }()
	// Takes some seconds the first time, and says what this machine lacks.
	if err := backend.Prepare(ctx); err != nil {
		return err
	}

	// The monitor knows what the router lets in.
	monitor := control.NewMonitor(backend)
	h := &host{}
	h.router, err = router.New(router.Config{
		Backends: []sandbox.Backend{monitor}, MinCleanup: sandbox.CleanupReset, // keeps sandboxes warm between calls
	})
	if err != nil {
		return err
	}
	if h.tool, err = h.newTool(backend); err != nil {
		return err
	}
	threads := []string{"forecast", "incident"}
	defer func() { err = errors.Join(err, h.dispose(out, threads)) }()

	operators, err := h.operators(monitor)
	if err != nil {
		return err
	}
	// First of all at the end: what is withdrawn gets no new wishes.
	defer func() { err = errors.Join(err, operators.Close()) }()

	for i, thread := range threads {
		answer, err := h.execute(ctx, thread, fmt.Sprintf("print(%d * 7)", i+5))
		if err != nil {
			return err
		}
		_, _ = fmt.Fprintf(out, "%s/%s: %s\n", scope, thread, answer)
	}
	_, _ = fmt.Fprintln(out, "now: mst list, mst show ID, mst delete ID, mst purge-thread --scope example --thread forecast; Ctrl-C ends all of it")
	<-ctx.Done()
	return nil
}

// newTool makes the tool, which tells the model what is in the image and how far
// programs may go.
func (h *host) newTool(backend *microvm.Backend) (*codeact.Tool, error) {
	facts, err := backend.Facts(sandbox.Spec{})
	if err != nil {
		return nil, err
	}
	return codeact.NewTool(h.fence.Calls(h.router), codeact.Config{
		AgentID: agent, Caller: caller, Logger: slog.Default(), Facts: facts,
		Bounds: codeact.Bounds{Memory: microvm.DefaultMemory, MaxOutput: microvm.DefaultMaxOutput, MaxCode: microvm.DefaultMaxCode},
	})
}

// threadKey is where this host keeps the conversation of a call.
type threadKey struct{}

// caller says for whom a call is: the host knows, never the model.
func caller(ctx context.Context) codeact.Caller {
	thread, _ := ctx.Value(threadKey{}).(string)
	return codeact.Caller{Scope: scope, ThreadID: thread}
}

// execute is a call of the tool by the model of a conversation.
func (h *host) execute(ctx context.Context, thread, code string) (string, error) {
	outcome, err := h.tool.Execute(context.WithValue(ctx, threadKey{}, thread), code)
	return outcome.Report(), err
}

// operators opts in to control: nothing listens without it.
func (h *host) operators(monitor *control.Monitor) (*control.Server, error) {
	const name = "example-host"
	c, err := control.NewHost(control.HostConfig{
		SourceID: name, Monitors: []*control.Monitor{monitor}, Router: h.router,
		Quiesce: h.fence.Hold,
		Purge: func(ctx context.Context, scope, thread string) (sandbox.ScopePurge, error) {
			release, err := h.fence.HoldThread(ctx, scope, thread)
			if err != nil {
				return sandbox.ScopePurge{}, err
			}
			defer release()
			return h.router.DisposeScope(ctx, scope, thread), nil
		},
	})
	if err != nil {
		return nil, err
	}
	server, err := control.NewServer(control.ServerConfig{Control: c, SourceID: name, Socket: true})
	if err != nil {
		return nil, err
	}
	return server, server.Start()
}

// dispose ends the conversations; every sandbox is confirmed gone, or the error
// says which is not.
func (h *host) dispose(out io.Writer, threads []string) error {
	// The caller's context has ended by now.
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	var problems []error
	for _, thread := range threads {
		purge := h.router.DisposeScope(ctx, scope, thread)
		_, _ = fmt.Fprintf(out, "%s/%s: %d disposed of\n", scope, thread, purge.Disposed)
		problems = append(problems, purge.Err())
	}
	return errors.Join(problems...)
}
