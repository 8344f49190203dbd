package microvm

import (
	"context"
	"encoding/json"
	"errors"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/maf-sandbox/maf-sandbox-go/sandbox"
)

// interrupted is a sandbox whose programs are interrupted, and chance.
type interrupted struct {
	*testing.T
	s      *Sandbox
	random *rand.Rand
	rounds int
}

// upTo is a context that is canceled within a while; one whose while is zero is
// canceled by the caller alone.
func (i *interrupted) upTo(most time.Duration) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(context.Background())
	if most == 0 {
		return ctx, cancel
	}
	timer := time.AfterFunc(time.Duration(i.random.Int64N(int64(most))), cancel)
	return ctx, func() { timer.Stop(); cancel() }
}

// run runs a program that may be cut short, and nothing else.
func (i *interrupted) run(ctx context.Context, code string) (cut bool) {
	i.Helper()
	r, err := i.s.RunCode(ctx, code, patience(time.Minute))
	if err != nil && (!errors.Is(err, sandbox.ErrCanceled) || !sandbox.Usable(err)) || err == nil && r.ExitCode != 0 {
		i.Fatalf("%q: exit %d, stderr %q, %v", code, r.ExitCode, r.Stderr, err)
	}
	return err != nil
}

// undisturbed wants the next programs to know nothing of it.
func (i *interrupted) undisturbed(what string) {
	i.Helper()
	for code, want := range map[string]string{"print(6*7)": "42\n", "print(sum(range(20000)))": "199990000\n"} {
		r, err := i.s.RunCode(context.Background(), code, patience(time.Minute))
		if err != nil || string(r.Stdout) != want || len(r.Stderr) != 0 || r.ExitCode != 0 {
			i.Fatalf("after %s: %q: exit %d, %q, stderr %q, %v", what, code, r.ExitCode, r.Stdout, r.Stderr, err)
		}
	}
}

func TestAnInterruptIsOfItsOwnRunAndCostsNoSandbox(t *testing.T) {
	entered := make(chan struct{}, 1)
	answer := make(chan struct{}, 1)
	tools, err := sandbox.NewHostTools(
		sandbox.Tool{Name: "wait", Call: func(ctx context.Context, _ json.RawMessage) (any, error) {
			entered <- struct{}{}
			<-ctx.Done()
			return nil, ctx.Err()
		}},
		sandbox.Tool{Name: "deaf", Call: func(context.Context, json.RawMessage) (any, error) {
			entered <- struct{}{}
			<-answer
			return strings.Repeat("x", 100_000), nil
		}},
	)
	if err != nil {
		t.Fatal(err)
	}
	with := spec()
	with.Requires, with.HostTools = with.Requires.With(sandbox.CapHostTools), tools
	// What counts is that programs obey, not how soon.
	b := open(t, func(c *Config) { c.Grace = patience(5 * time.Second) })
	rounds := 100
	if testing.Short() {
		rounds = 20
	}
	for name, shape := range map[string]func(i *interrupted){
		"before the first line": func(i *interrupted) {
			ctx, cancel := i.upTo(2 * time.Millisecond)
			defer cancel()
			if !i.run(ctx, "while True: pass") {
				i.Fatal("an endless program has come to its end")
			}
		},
		"as the run ends": func(i *interrupted) {
			ctx, cancel := i.upTo(500 * time.Microsecond)
			defer cancel()
			i.run(ctx, "pass")
		},
		"while the host works on a call": func(i *interrupted) {
			ctx, cancel := i.upTo(0)
			defer cancel()
			go func() { <-entered; cancel() }()
			if !i.run(ctx, "call_tool('wait')") {
				i.Fatal("a program that waits for ever has come to its end")
			}
		},
		"as the host answers a call": func(i *interrupted) {
			ctx, cancel := i.upTo(0)
			defer cancel()
			go func() {
				<-entered
				if i.random.IntN(2) == 0 {
					cancel()
					answer <- struct{}{}
				} else {
					answer <- struct{}{}
					cancel()
				}
			}()
			i.run(ctx, "call_tool('deaf')")
		},
		"twice": func(i *interrupted) {
			ctx, cancel := i.upTo(0)
			defer cancel()
			number := i.s.link.last + 1
			again := func() { i.s.link.interrupt(ctx, number, call{patience: patience(time.Minute)}) }
			go func() { <-entered; cancel(); again(); again() }()
			if !i.run(ctx, "try: call_tool('wait')\nexcept KeyboardInterrupt: raise") {
				i.Fatal("a program that waits for ever has come to its end")
			}
			again() // of a run that is over
		},
	} {
		t.Run(name, func(t *testing.T) {
			s, err := b.Get(t.Context(), key(), with)
			if err != nil {
				t.Fatal(err)
			}
			i := &interrupted{t, s, rand.New(rand.NewPCG(3, 4)), rounds} //nolint:gosec // repeatable on purpose
			id := s.ID()
			prints(t, s, "kept = 1")
			for range i.rounds {
				shape(i)
				i.undisturbed(name)
			}
			if got := prints(t, s, "print(kept)"); got != "1\n" || s.ID() != id {
				t.Errorf("the names are gone: %q", got)
			}
		})
	}
}

// A reset takes less time than an interrupt: whoever gives up gets it done, or
// nothing.
func TestAnInterruptDuringAResetLeavesADoneResetOrNone(t *testing.T) {
	b := open(t, nil)
	s := get(t, b, key())
	i := &interrupted{t, s, rand.New(rand.NewPCG(5, 6)), 150} //nolint:gosec // repeatable on purpose
	if testing.Short() {
		i.rounds = 30
	}
	done := 0
	for range i.rounds {
		prints(t, s, "left = 1")
		id := s.ID()
		ctx, cancel := i.upTo(500 * time.Microsecond)
		err := s.Reset(ctx)
		cancel()
		want := "False\n"
		switch {
		case err == nil:
			done++
		case errors.Is(err, sandbox.ErrCanceled) && sandbox.Usable(err):
			want = "True\n"
		default:
			t.Fatal(err)
		}
		if got := prints(t, s, "print('left' in globals())"); got != want || (s.ID() == id) != (err != nil) {
			t.Fatalf("after a reset that gave %v: %q, a new generation: %t", err, got, s.ID() != id)
		}
		i.undisturbed("a reset")
	}
	t.Logf("%d of %d resets were done", done, i.rounds)
}

// early is a context whose time is up, and which does not say so yet.
type early struct{ context.Context }

func (early) Deadline() (time.Time, bool) { return time.Now().Add(-time.Millisecond), true }

func TestTimeThatIsUpBeforeItsContextSaysSoIsNoCancellation(t *testing.T) {
	b := fakeBackend(t, &fakeSystem{serve: answers(good)}, Config{})
	s, err := b.Acquire(t.Context(), key(), spec())
	if err != nil {
		t.Fatal(err)
	}
	_, err = s.RunCode(early{t.Context()}, "x", time.Minute)
	if !errors.Is(err, sandbox.ErrQueuedTimeout) || errors.Is(err, sandbox.ErrCanceled) || !sandbox.Usable(err) {
		t.Errorf("got %v", err)
	}
	if r, err := s.RunCode(t.Context(), "x", time.Minute); err != nil || string(r.Stdout) != "42\n" {
		t.Errorf("the next run: %q, %v", r.Stdout, err)
	}
}
