package mcp_test

import (
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"runtime"
	"testing"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/maf-sandbox/maf-sandbox-go/codeact"
	"github.com/maf-sandbox/maf-sandbox-go/internal/mcp"
	"github.com/maf-sandbox/maf-sandbox-go/router"
	"github.com/maf-sandbox/maf-sandbox-go/sandbox"
	"github.com/maf-sandbox/maf-sandbox-go/sandbox/sandboxtest"
)

// patience bounds every wait of these tests; it is reached only when something
// hangs.
const patience = 20 * time.Second

// memory is a backend in memory that claims to be a micro-VM.
func memory() *sandboxtest.Backend {
	return sandboxtest.New(sandboxtest.Config{Isolation: sandbox.IsolationMicroVM})
}

// serve makes a server over a backend. The test fails when sandboxes or
// goroutines are left after it has been closed.
func serve(t *testing.T, b *sandboxtest.Backend, change func(*mcp.Config)) *mcp.Server {
	t.Helper()
	before := runtime.NumGoroutine()
	r, err := router.New(router.Config{Backends: []sandbox.Backend{b}, MinCleanup: sandbox.CleanupReset})
	if err != nil {
		t.Fatal(err)
	}
	c := mcp.Config{Router: r, KeepState: true, Version: "test", Tool: codeact.Config{Timeout: patience}}
	if testing.Verbose() {
		c.Logger = slog.New(slog.NewTextHandler(t.Output(), nil))
	}
	if change != nil {
		change(&c)
	}
	s, err := mcp.New(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		s.Close()
		if left := b.Registered(); left != 0 {
			t.Errorf("%d sandboxes are left", left)
		}
		eventually(t, "the goroutines end", func() bool { return runtime.NumGoroutine() <= before })
	})
	return s
}

// eventually waits for what another goroutine brings about without telling.
func eventually(t *testing.T, what string, done func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !done(); runtime.Gosched() {
		if time.Now().After(end) {
			t.Fatalf("never happened: %s", what)
		}
	}
}

// connect gives a client in this process and the end of its session at the
// server.
func connect(t *testing.T, s *mcp.Server, options *sdk.ClientOptions) (*sdk.ClientSession, <-chan error) {
	t.Helper()
	near, far := sdk.NewInMemoryTransports()
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(context.WithoutCancel(t.Context()), far) }()
	client := sdk.NewClient(&sdk.Implementation{Name: "test", Version: "1"}, options)
	cs, err := client.Connect(t.Context(), near, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cs.Close() }) // many tests have closed it
	return cs, ended
}

// answered is what a call gave.
type answered struct {
	Text    string
	IsError bool
	Stdout  string
	Stderr  string
	Exit    *int
	Kind    string
	Lost    bool
	LeftOut int
}

// ask calls a tool.
func ask(t *testing.T, cs *sdk.ClientSession, tool string, arguments any) answered {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	res, err := cs.CallTool(ctx, &sdk.CallToolParams{Name: tool, Arguments: arguments})
	if err != nil {
		t.Fatalf("%s: %v", tool, err)
	}
	return read(t, res)
}

func read(t *testing.T, res *sdk.CallToolResult) answered {
	t.Helper()
	if len(res.Content) != 1 {
		t.Fatalf("%d contents", len(res.Content))
	}
	text, ok := res.Content[0].(*sdk.TextContent)
	if !ok {
		t.Fatalf("content %T", res.Content[0])
	}
	a := answered{Text: text.Text, IsError: res.IsError}
	if res.StructuredContent == nil {
		return a
	}
	encoded, err := json.Marshal(res.StructuredContent)
	if err != nil {
		t.Fatal(err)
	}
	var fields struct {
		Stdout  string `json:"stdout"`
		Stderr  string `json:"stderr"`
		Exit    *int   `json:"exit_code"`
		LeftOut int    `json:"left_out"`
		Lost    bool   `json:"state_lost"`
		Error   *struct {
			Kind string `json:"kind"`
		} `json:"error"`
	}
	if err := json.Unmarshal(encoded, &fields); err != nil {
		t.Fatal(err)
	}
	a.Stdout, a.Stderr, a.Exit, a.Lost, a.LeftOut = fields.Stdout, fields.Stderr, fields.Exit, fields.Lost, fields.LeftOut
	if fields.Error != nil {
		a.Kind = fields.Error.Kind
	}
	return a
}

// run calls execute_code.
func run(t *testing.T, cs *sdk.ClientSession, code string) answered {
	t.Helper()
	return ask(t, cs, codeact.Name, map[string]any{"code": code})
}

// wants compares a call's text.
func wants(t *testing.T, got answered, text string) {
	t.Helper()
	if got.Text != text {
		t.Errorf("got %q, want %q", got.Text, text)
	}
}

// await waits for the end of a session.
func await(t *testing.T, ended <-chan error) error {
	t.Helper()
	select {
	case err := <-ended:
		return err
	case <-time.After(patience):
		t.Fatal("the session never ends")
		return io.ErrNoProgress
	}
}
