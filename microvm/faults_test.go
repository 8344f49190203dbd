package microvm

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/maf-sandbox/maf-sandbox-go/internal/wire"
	"github.com/maf-sandbox/maf-sandbox-go/sandbox"
)

// ceiling is the end of a worker that met its memory ceiling.
type ceiling struct{}

func (ceiling) Error() string    { return "met its ceiling" }
func (ceiling) MetCeiling() bool { return true }

func TestWhatAWorkerDoesWrongCostsItsSandboxOnly(t *testing.T) {
	big := bytes.Repeat([]byte("x"), wire.MaxOutputPayload)
	for name, c := range map[string]struct {
		reply func(w *fakeWorker, f wire.Frame)
		class error
		not   error
	}{
		"it dies":                    {func(w *fakeWorker, _ wire.Frame) { w.die(errors.New("killed")) }, sandbox.ErrWorkerLost, sandbox.ErrMemory},
		"it dies of memory":          {func(w *fakeWorker, _ wire.Frame) { w.die(ceiling{}) }, sandbox.ErrMemory, nil},
		"it closes its connection":   {func(w *fakeWorker, _ wire.Frame) { _ = w.theirs.Close(); w.die(errors.New("closed")) }, sandbox.ErrWorkerLost, nil},
		"it sends garbage":           {func(w *fakeWorker, _ wire.Frame) { _, _ = w.theirs.Write(bytes.Repeat([]byte{0xff}, 64)) }, sandbox.ErrWorkerLost, nil},
		"it sends a frame cut short": {func(w *fakeWorker, _ wire.Frame) { _, _ = w.theirs.Write([]byte{9, 0, 0}); w.die(errors.New("gone")) }, sandbox.ErrWorkerLost, nil},
		"it announces too much": {func(w *fakeWorker, f wire.Frame) {
			_, _ = w.theirs.Write([]byte{0xff, 0xff, 0xff, 0x7f, 6, 0, 0, 0, 1, 0, 0, 0})
		}, sandbox.ErrWorkerLost, nil},
		"it answers another call":      {func(w *fakeWorker, f wire.Frame) { w.send(wire.KindDone, f.Call+1, wire.Done{Usable: true}) }, sandbox.ErrWorkerLost, nil},
		"it sends what only hosts say": {func(w *fakeWorker, f wire.Frame) { w.send(wire.KindRun, f.Call, wire.Run{}) }, sandbox.ErrWorkerLost, nil},
		"its end is no message":        {func(w *fakeWorker, f wire.Frame) { w.send(wire.KindDone, f.Call, []byte{0xff}) }, sandbox.ErrWorkerLost, nil},
		"it sends output without end": {func(w *fakeWorker, f wire.Frame) {
			for w.w.Write(wire.Frame{Kind: wire.KindStdout, Call: f.Call, Payload: big}) == nil {
			}
		}, sandbox.ErrWorkerLost, sandbox.ErrOutputLimit},
		"it says what nobody knows": {func(w *fakeWorker, f wire.Frame) { w.send(wire.KindDone, f.Call, wire.Done{Kind: "odd\x1b[31m"}) }, sandbox.ErrInternal, nil},
		"its guest crashes":         {func(w *fakeWorker, f wire.Frame) { w.send(wire.KindDone, f.Call, wire.Done{Kind: "guest_crash"}) }, sandbox.ErrGuestCrash, nil},
		"its guest exits":           {func(w *fakeWorker, f wire.Frame) { w.send(wire.KindDone, f.Call, wire.Done{Exited: true, ExitCode: 7}) }, sandbox.ErrGuestCrash, nil},
	} {
		t.Run(name, func(t *testing.T) {
			s := &fakeSystem{serve: answers(c.reply)}
			b := fakeBackend(t, s, Config{})
			first, err := b.Acquire(t.Context(), key(), spec())
			if err != nil {
				t.Fatal(err)
			}
			_, err = first.RunCode(t.Context(), "x", time.Minute)
			if !errors.Is(err, c.class) || c.not != nil && errors.Is(err, c.not) || sandbox.Usable(err) {
				t.Fatalf("error %v", err)
			}
			if strings.ContainsRune(err.Error(), 0x1b) {
				t.Errorf("a worker's byte goes through: %q", err)
			}
			if _, err := first.RunCode(t.Context(), "x", time.Minute); !errors.Is(err, sandbox.ErrWorkerLost) || sandbox.Usable(err) {
				t.Errorf("afterwards: %v", err)
			}
			if err := first.Reset(t.Context()); !errors.Is(err, sandbox.ErrWorkerLost) {
				t.Errorf("a reset afterwards: %v", err)
			}
			s.serve = answers(good)
			again, err := b.Acquire(t.Context(), key(), spec())
			if err != nil || again.ID() == first.ID() {
				t.Fatalf("acquired again: %v, %v", again, err)
			}
			if r, err := again.RunCode(t.Context(), "x", time.Minute); err != nil || string(r.Stdout) != "42\n" {
				t.Errorf("the next sandbox: %q, %v", r.Stdout, err)
			}
		})
	}
}

func TestAWorkerThatDoesNotAnswerIsStoppedAfterTheDeadline(t *testing.T) {
	// A machine that stands still may use up the time before the worker is asked,
	// which is another error; then there is more of it.
	enough := func(call func(time.Duration) error) (err error) {
		for limit := 10 * time.Millisecond; limit < patience(20*time.Second); limit *= 4 {
			if err = call(limit); !errors.Is(err, sandbox.ErrQueuedTimeout) {
				break
			}
		}
		return err
	}
	for name, c := range map[string]struct {
		call  func(ctx context.Context, s sandbox.Sandbox, asked <-chan struct{}) error
		class error
	}{
		"a run": {func(ctx context.Context, s sandbox.Sandbox, _ <-chan struct{}) error {
			return enough(func(limit time.Duration) error { _, err := s.RunCode(ctx, "x", limit); return err })
		}, sandbox.ErrTimeout},
		"a reset": {func(ctx context.Context, s sandbox.Sandbox, _ <-chan struct{}) error {
			return enough(func(limit time.Duration) error {
				ctx, cancel := context.WithTimeout(ctx, limit)
				defer cancel()
				return s.Reset(ctx)
			})
		}, sandbox.ErrTimeout},
		"a run that is canceled": {func(ctx context.Context, s sandbox.Sandbox, asked <-chan struct{}) error {
			ctx, cancel := context.WithCancel(ctx)
			go func() { <-asked; cancel() }()
			_, err := s.RunCode(ctx, "x", time.Hour)
			return err
		}, sandbox.ErrCanceled},
	} {
		t.Run(name, func(t *testing.T) {
			asked := make(chan struct{}, 2) // the call, and its interruption
			s := &fakeSystem{serve: answers(func(*fakeWorker, wire.Frame) { asked <- struct{}{} })}
			b := fakeBackend(t, s, Config{})
			first, err := b.Acquire(t.Context(), key(), spec())
			if err != nil {
				t.Fatal(err)
			}
			if err := c.call(t.Context(), first, asked); !errors.Is(err, c.class) || sandbox.Usable(err) {
				t.Errorf("error %v", err)
			}
			if len(s.given) != 1 || s.given[0].Cause() == nil {
				t.Error("the worker was not stopped")
			}
		})
	}
}

func TestALateAnswerIsNeverTakenForTheNextCalls(t *testing.T) {
	asked := make(chan struct{}, 2)
	s := &fakeSystem{serve: answers(func(w *fakeWorker, f wire.Frame) {
		if f.Kind == wire.KindRun {
			asked <- struct{}{}
		}
		if f.Kind == wire.KindInterrupt { // gives way, but says so twice
			w.send(wire.KindDone, f.Call, wire.Done{Kind: "canceled", Usable: true})
			w.send(wire.KindDone, f.Call, wire.Done{Usable: true})
		}
	})}
	b := fakeBackend(t, s, Config{})
	first, err := b.Acquire(t.Context(), key(), spec())
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	go func() { <-asked; cancel() }()
	if _, err := first.RunCode(ctx, "x", time.Hour); !errors.Is(err, sandbox.ErrCanceled) || !sandbox.Usable(err) {
		t.Fatalf("error %v", err)
	}
	if _, err := first.RunCode(t.Context(), "x", time.Minute); !errors.Is(err, sandbox.ErrWorkerLost) {
		t.Errorf("error %v", err)
	}
}

func TestOverrunsCostTheSandboxUnderTheOriginalsRule(t *testing.T) {
	for _, kind := range []string{"timeout", "output_limit"} {
		for rule, usable := range map[Overrun]bool{OverrunInterrupt: true, OverrunRetire: false} {
			s := &fakeSystem{serve: answers(func(w *fakeWorker, f wire.Frame) { w.send(wire.KindDone, f.Call, wire.Done{Kind: kind, Usable: true}) })}
			b := fakeBackend(t, s, Config{Overrun: rule})
			first, err := b.Acquire(t.Context(), key(), spec())
			if err != nil {
				t.Fatal(err)
			}
			if _, err := first.RunCode(t.Context(), "x", time.Minute); err == nil || sandbox.Usable(err) != usable {
				t.Errorf("%s under %s: %v", kind, rule, err)
			}
		}
	}
}

func TestWhatKeepsAHostFromServingIsSaid(t *testing.T) {
	for name, c := range map[string]struct {
		system *fakeSystem
		class  error
	}{
		"no ownership":                   {&fakeSystem{ownErr: errors.New("process 7 owns it")}, sandbox.ErrUnavailable},
		"no supervisor":                  {&fakeSystem{launchErr: unavailable("no", errors.New("no memory controller"))}, sandbox.ErrUnavailable},
		"a supervisor that always ends":  {&fakeSystem{acquireErr: &goneError{errors.New("exit status 1")}}, sandbox.ErrUnavailable},
		"a worker that cannot be had":    {&fakeSystem{acquireErr: errors.New("odd")}, sandbox.ErrInternal},
		"a worker that is ended twice":   {&fakeSystem{acquireErr: &sandbox.OpError{Op: "acquire", Class: sandbox.ErrWorkerLost}}, sandbox.ErrWorkerLost},
		"a worker without enough memory": {&fakeSystem{acquireErr: &sandbox.OpError{Op: "acquire", Class: sandbox.ErrMemory}}, sandbox.ErrMemory},
	} {
		t.Run(name, func(t *testing.T) {
			b := fakeBackend(t, c.system, Config{})
			if _, err := b.Acquire(t.Context(), key(), spec()); !errors.Is(err, c.class) {
				t.Errorf("Acquire: %v", err)
			}
			if purge := b.DisposeScope(t.Context(), "tenant", "thread"); (purge.Undisposed != nil) != (c.system.ownErr != nil) {
				t.Errorf("DisposeScope: %+v", purge)
			}
		})
	}
}

func TestASupervisorThatEndedIsReplaced(t *testing.T) {
	s := &fakeSystem{serve: answers(good), acquireErr: &goneError{errors.New("exit status 1")}}
	b := fakeBackend(t, s, Config{})
	if _, err := b.Acquire(t.Context(), key(), spec()); err == nil {
		t.Fatal("acquired")
	}
	s.acquireErr = nil
	if _, err := b.Acquire(t.Context(), key(), spec()); err != nil {
		t.Fatal(err)
	}
	if s.launched != 3 {
		t.Errorf("%d supervisors, want the two that ended and another", s.launched)
	}
}

func TestImagesHaveSupervisorsOfTheirOwnUpToABound(t *testing.T) {
	s := &fakeSystem{serve: answers(good)}
	b := fakeBackend(t, s, Config{})
	for i := range maxPools + 1 {
		sp := spec()
		sp.Image, sp.Kind = strings.Repeat("i", i+1), strings.Repeat("k", i+1)
		_, err := b.Acquire(t.Context(), key(), sp)
		if full := i == maxPools; full != errors.Is(err, sandbox.ErrNotSupported) || !full && err != nil {
			t.Errorf("image %d: %v", i, err)
		}
	}
	if s.launched != maxPools {
		t.Errorf("%d supervisors", s.launched)
	}
}

func TestFreshMeansThatNothingHasRun(t *testing.T) {
	b := fakeBackend(t, &fakeSystem{serve: answers(good)}, Config{})
	s, err := b.Get(t.Context(), key(), spec())
	if err != nil {
		t.Fatal(err)
	}
	if !s.Fresh() {
		t.Error("a new sandbox is not fresh")
	}
	if _, err := s.RunCode(t.Context(), "x", 0); err != nil || s.Fresh() {
		t.Errorf("after a run: fresh %v, %v", s.Fresh(), err)
	}
	if err := s.Reset(t.Context()); err != nil || !s.Fresh() {
		t.Errorf("after a reset: fresh %v, %v", s.Fresh(), err)
	}
}

func TestALiveSandboxIsNotUsedUnderOtherResources(t *testing.T) {
	s := &fakeSystem{serve: answers(good)}
	dir := t.TempDir()
	open := func(c Config) *Backend {
		c.LockDir = dir
		b, err := newBackend(c, s)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = b.Close() })
		return b
	}
	one, other := open(Config{}), open(Config{MaxOutput: 4096})
	if _, err := one.Acquire(t.Context(), key(), spec()); err != nil {
		t.Fatal(err)
	}
	_, err := other.Acquire(t.Context(), key(), spec())
	if !errors.Is(err, sandbox.ErrConfigurationChanged) || !strings.Contains(err.Error(), "config.max_output") {
		t.Errorf("with another output limit: %v", err)
	}
	if err := other.Dispose(t.Context(), key(), sandbox.DisposeOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := other.Acquire(t.Context(), key(), spec()); err != nil {
		t.Errorf("after the disposal: %v", err)
	}
}
