package mcp_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/maf-sandbox/maf-sandbox-go/internal/mcp"
)

// raw is a client that speaks JSON-RPC itself, a message a line.
type raw struct {
	t     *testing.T
	to    *io.PipeWriter
	lines *bufio.Scanner
	ended chan error
}

func newRaw(t *testing.T, s *mcp.Server) *raw {
	t.Helper()
	in, to := io.Pipe()
	from, out := io.Pipe()
	r := &raw{t: t, to: to, lines: bufio.NewScanner(from), ended: make(chan error, 1)}
	go func() {
		r.ended <- s.ServeStreams(context.WithoutCancel(t.Context()), in, out)
		_ = out.Close()
	}()
	t.Cleanup(func() { _, _ = to.Close(), from.Close() })
	return r
}

// says sends a message and gives the next one of the server.
func (r *raw) says(message string) string {
	r.t.Helper()
	r.send(message)
	if !r.lines.Scan() {
		r.t.Fatalf("no answer to %s: %v", message, r.lines.Err())
	}
	return r.lines.Text()
}

func (r *raw) send(message string) {
	r.t.Helper()
	if _, err := io.WriteString(r.to, message+"\n"); err != nil {
		r.t.Fatal(err)
	}
}

const (
	initialize  = `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"raw","version":"1"}}}`
	initialized = `{"jsonrpc":"2.0","method":"notifications/initialized"}`
)

func TestAClientThatVanishesStopsItsProgram(t *testing.T) {
	b := memory()
	gate := stuck(b)
	r := newRaw(t, serve(t, b, nil))
	r.says(initialize)
	r.send(initialized)
	r.send(`{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"execute_code","arguments":{"code":"x"}}}`)
	<-gate.Entered()
	_ = r.to.Close()
	_ = await(t, r.ended)
	if left := b.Registered(); left != 0 {
		t.Errorf("%d sandboxes are left", left)
	}
}

func TestARawSessionIsAnswered(t *testing.T) {
	r := newRaw(t, serve(t, memory(), nil))
	if got := r.says(initialize); !strings.Contains(got, `"protocolVersion":"2025-06-18"`) || !strings.Contains(got, `"name":"maf-sandbox"`) {
		t.Errorf("initialize: %s", got)
	}
	r.send(initialized)
	for message, want := range map[string]string{
		`{"jsonrpc":"2.0","id":2,"method":"tools/list"}`:                                                                      `"execute_code"`,
		`{"jsonrpc":"2.0","id":3,"method":"tools/call","params":{"name":"execute_code","arguments":{"code":"print \"42\""}}}`: `{"content":[{"type":"text","text":"stdout:\n42"}],"structuredContent":{"stdout":"42"`,
		`{"jsonrpc":"2.0","id":4,"method":"tools/call","params":{"name":"no_such_tool"}}`:                                     `"error":{"code":-32602`,
		`{"jsonrpc":"2.0","id":5,"method":"no/such/method"}`:                                                                  `"error":{"code":-32601`,
	} {
		if got := r.says(message); !strings.Contains(got, want) {
			t.Errorf("%s\ngot  %s\nwant %s", message, got, want)
		}
	}
	_ = r.to.Close()
	if err := await(t, r.ended); err != nil {
		t.Errorf("the session ended with %v", err)
	}
}

func TestWhatWasAskedBeforeTheEndIsAnswered(t *testing.T) {
	// The end comes while the program runs, and is no reason to stop it at once.
	b := memory()
	gate := stuck(b)
	r := newRaw(t, serve(t, b, nil))
	r.says(initialize)
	r.send(`{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"execute_code","arguments":{"code":"print \"42\""}}}`)
	<-gate.Entered()
	_ = r.to.Close()
	gate.Release()
	if !r.lines.Scan() || !strings.Contains(r.lines.Text(), `stdout:\n42`) {
		t.Errorf("got %q", r.lines.Text())
	}
	if err := await(t, r.ended); err != nil {
		t.Errorf("the session ended with %v", err)
	}
}

// A pipe that nobody reads keeps its writer for ever.
func TestASessionEndsThoughItsAnswersAreNotTaken(t *testing.T) {
	for name, end := range map[string]func(s *mcp.Server, cancel func(), r *raw){
		"by its context": func(_ *mcp.Server, cancel func(), r *raw) {
			r.send("what is no message")
			cancel()
		},
		"by its server": func(s *mcp.Server, _ func(), _ *raw) { s.Close() },
		"by its client": func(_ *mcp.Server, _ func(), r *raw) { _ = r.to.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			s := serve(t, memory(), nil)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			in, to := io.Pipe()
			from, out := io.Pipe()
			r := &raw{t: t, to: to, lines: bufio.NewScanner(from), ended: make(chan error, 1)}
			go func() { r.ended <- s.ServeStreams(ctx, in, out) }()
			t.Cleanup(func() { _, _ = to.Close(), from.Close() })
			r.says(initialize)
			r.send(calls(2, "x", "reset"))
			if _, err := from.Read(make([]byte, 1)); err != nil { // and of what follows nothing
				t.Fatal(err)
			}
			end(s, cancel, r)
			// Of its server's end the SDK makes an error, when there is an answer to write.
			if err := await(t, r.ended); !errors.Is(err, ctx.Err()) && name != "by its server" {
				t.Errorf("got %v", err)
			}
		})
	}
}

// Programs in line, subscriptions and calls that find no place in line keep nobody
// from cancelling.
func TestAClientWithManyRequestsCanCancel(t *testing.T) {
	const many = 100
	b := memory()
	gate := stuck(b)
	defer gate.Release()
	r := newRaw(t, serve(t, b, nil))
	r.says(initialize)
	r.send(calls(2, "x"))
	<-gate.Entered()
	answers := make(chan string, 4*many)
	go func() {
		for r.lines.Scan() {
			answers <- r.lines.Text()
		}
	}()
	for n := range many {
		r.send(fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"subscriptions/listen","params":{"notifications":{"toolsListChanged":true}}}`, 2000+n))
		r.send(calls(1000+n, "reset"))
	}
	r.send(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":2}}`)
	for late := time.After(patience); ; {
		select {
		case got := <-answers:
			if strings.Contains(got, `"id":2,"error":{"code":-32800`) {
				return
			}
		case <-late:
			t.Fatal("the cancelled program is not answered")
		}
	}
}

func TestASessionOutlivesWhatIsNoMessage(t *testing.T) {
	r := newRaw(t, serve(t, memory(), nil))
	for _, step := range []struct{ says, want string }{
		{"Content-Length: 7", `"id":null,"error":{"code":-32700`},
		{initialize, `"protocolVersion":"2025-06-18"`},
		{`{"jsonrpc":"2.0","id":2,"method":"pi`, `"id":null,"error":{"code":-32700`},
		{`[{"jsonrpc":"2.0","id":2,"method":"ping"}]`, `"id":null,"error":{"code":-32600`},
		{`{"jsonrpc":"2.0","id":2,"method":"ping","params":{"x":"` + strings.Repeat("x", mcp.MaxMessage) + `"}}`, `"id":null,"error":{"code":-32600`},
		{`{"id":2,"method":"ping"}`, `"id":2,"error":{"code":-32600`},
		{`{"jsonrpc":"2.0","id":2,"method":"ping"}`, `"id":2,"result":{}`},
	} {
		if got := r.says(step.says); !strings.Contains(got, step.want) {
			t.Errorf("%.80s\ngot  %s\nwant %s", step.says, got, step.want)
		}
	}
	_ = r.to.Close()
	if err := await(t, r.ended); err != nil {
		t.Errorf("the session ended with %v", err)
	}
}
