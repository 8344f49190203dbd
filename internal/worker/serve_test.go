package worker

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/maf-sandbox/maf-sandbox-go/internal/engine"
	"github.com/maf-sandbox/maf-sandbox-go/internal/wire"
)

// fakeMachine understands a few words instead of Python.
type fakeMachine struct {
	mu         sync.Mutex
	ran        []string
	generation int
	closed     bool
	// running is sent to when a program that waits has begun.
	running chan struct{}
}

func (m *fakeMachine) Run(ctx context.Context, r engine.Request) (engine.Result, error) {
	m.mu.Lock()
	m.ran = append(m.ran, string(r.Code))
	m.mu.Unlock()
	word, rest, _ := strings.Cut(string(r.Code), " ")
	switch word {
	case "print":
		_, _ = r.Stdout.Write([]byte(rest))
		_, _ = r.Stderr.Write([]byte("e" + rest))
		return engine.Result{ExitCode: 3, Value: "v", Duration: 5}, nil
	case "wait":
		m.running <- struct{}{}
		<-ctx.Done()
		return engine.Result{}, &engine.Error{Kind: engine.KindCanceled, Message: "interrupted", Usable: true, Cause: ctx.Err()}
	case "spam":
		for {
			if _, err := r.Stdout.Write(make([]byte, 100<<10)); err != nil {
				return engine.Result{}, &engine.Error{Kind: engine.KindCanceled, Message: "nobody listens", Cause: ctx.Err()}
			}
		}
	case "ask": // NAME: what comes of it is the output
		if r.Ask == nil {
			_, _ = r.Stdout.Write([]byte("no host"))
			return engine.Result{}, nil
		}
		reply, err := wait(r.Ask)(ctx, rest, []byte("request"))
		if err != nil {
			_, _ = r.Stdout.Write([]byte("error: " + err.Error()))
			return engine.Result{}, nil
		}
		_, _ = r.Stdout.Write(reply)
	case "asks": // several at once, in no order
		var all sync.WaitGroup
		for i := range 3 {
			all.Go(func() {
				reply, err := wait(r.Ask)(ctx, fmt.Sprint(i), nil)
				if err != nil || string(reply) != fmt.Sprint("to ", i) {
					panic(fmt.Sprintf("%q, %v", reply, err))
				}
			})
		}
		all.Wait()
	case "drop": // one call that nobody waits for any more
		ctx, cancel := context.WithCancel(ctx)
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			_, _ = wait(r.Ask)(ctx, rest, nil)
		}()
		<-m.running
		cancel()
		<-ended
	case "exit":
		return engine.Result{ExitCode: 7, Exited: true}, nil
	case "odd":
		return engine.Result{}, errors.New("odd failure")
	}
	return engine.Result{}, nil
}

// programs are those that have run.
func (m *fakeMachine) programs() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.ran)
}

func (m *fakeMachine) Reset(context.Context) error { m.generation++; return nil }
func (m *fakeMachine) Generation() string          { return fmt.Sprint("g", m.generation) }
func (m *fakeMachine) Close() error                { m.closed = true; return nil }

// client is the host's side in tests.
type client struct {
	t    testing.TB
	conn net.Conn
	r    *wire.Reader
	w    *wire.Writer
	// aside writes to the side line.
	side  net.Conn
	aside *wire.Writer
	m     *fakeMachine
	// ended gives what Serve returned.
	ended chan error
}

func serve(t *testing.T, change func(*Config)) *client {
	t.Helper()
	host, calls := pair(t)
	side, theirSide := pair(t)
	worker, err := wire.NewStream(calls, time.Millisecond)
	if err != nil {
		t.Fatal(err)
	}
	theirs := connection(t, theirSide)
	m := &fakeMachine{running: make(chan struct{}, 1)}
	c := &client{t: t, conn: host, side: side, aside: wire.NewWriter(side), r: wire.NewReader(host, wire.MaxPayload), w: wire.NewWriter(host), m: m, ended: make(chan error, 1)}
	config := Config{Open: func(context.Context, wire.Start) (Machine, wire.Ready, error) {
		return m, wire.Ready{Engine: "fake", Python: "3.x"}, nil
	}}
	if change != nil {
		change(&config)
	}
	over := make(chan struct{})
	go func() {
		defer close(over)
		c.ended <- Serve(worker, theirs, config)
		worker.Stop() // as the end of the process does
	}()
	t.Cleanup(func() {
		c.close()
		<-over
		_ = worker.Close()
	})
	return c
}

// pair is a connection, and the descriptor of its other end.
func pair(t *testing.T) (net.Conn, int) {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	return connection(t, fds[0]), fds[1]
}

func connection(t *testing.T, fd int) net.Conn {
	t.Helper()
	f := os.NewFile(uintptr(fd), "pair")
	c, err := net.FileConn(f)
	_ = f.Close()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// close ends the connection as a host does that is gone.
func (c *client) close() {
	_ = c.conn.Close()
	_ = c.side.Close()
}

func (c *client) send(kind wire.Kind, number uint32, v any) {
	c.t.Helper()
	var b []byte
	if v != nil {
		var err error
		if b, err = wire.Encode(v); err != nil {
			c.t.Fatal(err)
		}
	}
	w := c.w
	if kind == wire.KindInterrupt || kind == wire.KindAnswer {
		w = c.aside
	}
	if err := w.Write(wire.Frame{Kind: kind, Call: number, Payload: b}); err != nil {
		c.t.Fatal(err)
	}
}

func (c *client) run(number uint32, code string) {
	c.t.Helper()
	c.send(wire.KindRun, number, wire.Run{Code: []byte(code), Timeout: time.Minute})
}

// next reads a frame and decodes it into v.
func (c *client) next(kind wire.Kind, number uint32, v any) wire.Frame {
	c.t.Helper()
	f, err := c.r.Next()
	if err != nil {
		c.t.Fatal(err)
	}
	if f.Kind != kind || f.Call != number {
		c.t.Fatalf("frame of kind %d for call %d, want %d for %d", f.Kind, f.Call, kind, number)
	}
	if v != nil {
		if err := wire.Decode(f.Payload, v); err != nil {
			c.t.Fatal(err)
		}
	}
	return f
}

func (c *client) done(number uint32) (d wire.Done) {
	c.t.Helper()
	c.next(wire.KindDone, number, &d)
	return d
}

func (c *client) start(s wire.Start) (r wire.Ready) {
	c.t.Helper()
	c.send(wire.KindStart, 0, s)
	c.next(wire.KindReady, 0, &r)
	return r
}

// end waits for Serve to return.
func (c *client) end() error {
	c.t.Helper()
	select {
	case err := <-c.ended:
		return err
	case <-time.After(30 * time.Second):
		c.t.Fatal("the worker does not end")
		return nil
	}
}

func TestAWorkerRunsResetsAndEndsWithItsConnection(t *testing.T) {
	c := serve(t, nil)
	if r := c.start(wire.Start{}); r.Generation != "g0" || r.Engine != "fake" {
		t.Errorf("ready: %+v", r)
	}
	c.run(1, "print hello")
	if f := c.next(wire.KindStdout, 1, nil); string(f.Payload) != "hello" {
		t.Errorf("stdout %q", f.Payload)
	}
	if f := c.next(wire.KindStderr, 1, nil); string(f.Payload) != "ehello" {
		t.Errorf("stderr %q", f.Payload)
	}
	want := wire.Done{ExitCode: 3, Value: "v", Duration: 5, Usable: true, Generation: "g0"}
	if d := c.done(1); d != want {
		t.Errorf("done: %+v", d)
	}
	c.send(wire.KindReset, 2, nil)
	if d := c.done(2); d.Generation != "g1" || !d.Usable || d.Kind != "" {
		t.Errorf("reset: %+v", d)
	}
	c.run(3, "exit")
	if d := c.done(3); !d.Exited || d.Usable || d.ExitCode != 7 {
		t.Errorf("exit: %+v", d)
	}
	c.run(4, "odd")
	if d := c.done(4); d.Kind != "internal" || d.Usable || d.Message != "odd failure" {
		t.Errorf("failure: %+v", d)
	}
	c.close()
	if err := c.end(); err != nil && !errors.Is(err, unix.EPIPE) {
		t.Error(err)
	}
	if !c.m.closed {
		t.Error("the machine was not closed")
	}
}

func TestAnInterruptEndsTheCallItNames(t *testing.T) {
	c := serve(t, nil)
	c.start(wire.Start{})
	c.run(1, "wait")
	<-c.m.running
	c.send(wire.KindInterrupt, 9, nil) // a call that is not there
	c.send(wire.KindInterrupt, 1, nil)
	if d := c.done(1); d.Kind != "canceled" || !d.Usable {
		t.Errorf("done: %+v", d)
	}
	c.send(wire.KindInterrupt, 1, nil) // too late
	c.run(2, "x")
	if d := c.done(2); d.Kind != "" {
		t.Errorf("the next call: %+v", d)
	}
}

func TestAnInterruptMayComeBeforeItsCallHasBegun(t *testing.T) {
	c := serve(t, nil)
	c.start(wire.Start{})
	c.run(1, "wait")
	<-c.m.running
	c.send(wire.KindInterrupt, 2, nil)
	c.send(wire.KindInterrupt, 1, nil)
	if d := c.done(1); d.Kind != "canceled" {
		t.Errorf("done: %+v", d)
	}
	c.run(2, "wait")
	if d := c.done(2); d.Kind != "canceled" {
		t.Errorf("done: %+v", d)
	}
}

func TestACallIsCutShortWhenItsHostIsGone(t *testing.T) {
	for _, code := range []string{"wait", "spam"} {
		c := serve(t, nil)
		c.start(wire.Start{})
		c.run(1, code)
		if code == "wait" {
			<-c.m.running
		} else {
			c.next(wire.KindStdout, 1, nil)
		}
		c.close()
		_ = c.end()
		if !c.m.closed {
			t.Errorf("%s: the machine was not closed", code)
		}
	}
}

func TestAWorkerEndsWhenTheProtocolIsBroken(t *testing.T) {
	for name, act := range map[string]func(c *client){
		"no start":              func(c *client) { c.run(1, "x") },
		"a start with garbage":  func(c *client) { c.send(wire.KindStart, 0, []int{1}) },
		"a second start":        func(c *client) { c.start(wire.Start{}); c.send(wire.KindStart, 0, wire.Start{}) },
		"a frame of a worker":   func(c *client) { c.start(wire.Start{}); c.send(wire.KindDone, 1, wire.Done{}) },
		"a run without a limit": func(c *client) { c.start(wire.Start{}); c.send(wire.KindRun, 1, wire.Run{}) },
		"a run with garbage":    func(c *client) { c.start(wire.Start{}); c.send(wire.KindRun, 1, []int{1}) },
		"a reset with more":     func(c *client) { c.start(wire.Start{}); c.send(wire.KindReset, 1, wire.Run{}) },
		"a number twice": func(c *client) {
			c.start(wire.Start{})
			c.run(1, "x")
			c.done(1)
			c.run(1, "x")
		},
		"a call on the side line": func(c *client) {
			c.start(wire.Start{})
			if err := c.aside.Write(wire.Frame{Kind: wire.KindReset, Call: 1}); err != nil {
				c.t.Fatal(err)
			}
		},
		"an interrupt on the line of calls": func(c *client) {
			c.start(wire.Start{})
			if err := c.w.Write(wire.Frame{Kind: wire.KindInterrupt, Call: 1}); err != nil {
				c.t.Fatal(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := serve(t, nil)
			act(c)
			go func() { _, _ = io.Copy(io.Discard, c.conn) }() // what calls under way still say
			if err := c.end(); !errors.Is(err, wire.ErrProtocol) {
				t.Errorf("%v", err)
			}
		})
	}
}

func TestAWorkerIsSealedAndThenWarmBeforeItIsReady(t *testing.T) {
	sealed := make(chan int, 2) // programs that had run at each seal
	c := serve(t, func(k *Config) {
		m, _, err := k.Open(t.Context(), wire.Start{})
		fake, ok := m.(*fakeMachine)
		if err != nil || !ok {
			t.Fatalf("%T, %v", m, err)
		}
		k.Seal = func() error { sealed <- len(fake.programs()); return nil }
	})
	if r := c.start(wire.Start{Warm: true}); r.Generation != "g1" {
		t.Errorf("ready: %+v", r)
	}
	if before, ran := <-sealed, c.m.programs(); before != 0 || len(ran) != 2 || len(sealed) != 0 {
		t.Errorf("ran %q, %d before the seal, %d more seals", ran, before, len(sealed))
	}
}

func TestAWorkerThatCannotStartSaysWhy(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*Config)
		want   wire.Done
	}{
		"no machine": {func(c *Config) {
			c.Open = func(context.Context, wire.Start) (Machine, wire.Ready, error) {
				return nil, wire.Ready{}, &engine.Error{Kind: engine.KindUnavailable, Message: "no KVM"}
			}
		}, wire.Done{Kind: "unavailable", Message: "no KVM"}},
		"not sealed": {func(c *Config) { c.Seal = func() error { return errors.New("no seccomp") } }, wire.Done{Kind: "internal", Message: "no seccomp"}},
	} {
		t.Run(name, func(t *testing.T) {
			cl := serve(t, c.change)
			cl.send(wire.KindStart, 0, wire.Start{})
			if d := cl.done(0); d != c.want {
				t.Errorf("%+v", d)
			}
			if err := cl.end(); err == nil {
				t.Error("the worker ended without an error")
			}
		})
	}
}
