package microvm

import (
	"context"
	"errors"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/maf-sandbox/maf-sandbox-go/internal/wire"
	"github.com/maf-sandbox/maf-sandbox-go/sandbox"
)

// What a worker can do that a guest has taken over.

// soon fails when a call took much longer than it may: the bound is one for
// hangs, not for speed.
func soon(t *testing.T, start time.Time) {
	t.Helper()
	if d := time.Since(start); d > patience(5*time.Second) {
		t.Errorf("it took %v", d)
	}
}

func TestAWorkerThatAsksWithoutListeningKeepsNobody(t *testing.T) {
	b := fakeBackend(t, &fakeSystem{serve: func(w *fakeWorker) {
		f, err := w.r.Next()
		if err != nil {
			return
		}
		for id := uint32(1); ; id++ {
			if id%8 == 0 {
				time.Sleep(200 * time.Microsecond) // answers pile up meanwhile
			}
			p, _ := wire.Encode(wire.Ask{ID: id, Name: "x"})
			if w.w.Write(wire.Frame{Kind: wire.KindAsk, Call: f.Call, Payload: p}) != nil {
				return
			}
		}
	}}, Config{})
	s, err := b.Get(t.Context(), key(), listed("example.com"))
	if err != nil {
		t.Fatal(err)
	}
	before, start := runtime.NumGoroutine(), time.Now()
	if _, err = s.RunCode(t.Context(), "x", time.Second); err == nil || sandbox.Usable(err) {
		t.Errorf("error %v", err)
	}
	soon(t, start)
	if n := runtime.NumGoroutine(); n > before+2*wire.MaxAsks {
		t.Errorf("%d goroutines, %d before", n, before)
	}
}

func TestAskedBytesAreBounded(t *testing.T) {
	hold := make(chan struct{})
	defer close(hold)
	b := fakeBackend(t, &fakeSystem{serve: answers(func(w *fakeWorker, f wire.Frame) {
		for id := range uint32(3) {
			w.send(wire.KindAsk, f.Call, wire.Ask{ID: id + 1, Name: "x", Payload: make([]byte, wire.MaxAskBytes)})
		}
	})}, Config{})
	s, err := b.Get(t.Context(), key(), listed("example.com"))
	if err != nil {
		t.Fatal(err)
	}
	s.link.asks.serve = holding(hold)
	if _, err = s.RunCode(t.Context(), "x", 10*time.Second); !errors.Is(err, wire.ErrProtocol) {
		t.Errorf("error %v", err)
	}
}

func TestAWorkerThatDoesNotReadKeepsNobodyWhoGivesUp(t *testing.T) {
	asked := make(chan struct{})
	b := fakeBackend(t, &fakeSystem{serve: func(w *fakeWorker) {
		if n, _ := w.theirs.Read(make([]byte, 1)); n == 1 { // of much more than the connection holds
			close(asked)
		}
	}}, Config{})
	s, err := b.Get(t.Context(), key(), spec())
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	go func() { <-asked; cancel() }()
	start := time.Now()
	if _, err = s.RunCode(ctx, strings.Repeat("#", 1<<20), time.Hour); !errors.Is(err, sandbox.ErrCanceled) || sandbox.Usable(err) {
		t.Errorf("error %v", err)
	}
	soon(t, start)
}

func TestAResetHasNothingToAsk(t *testing.T) {
	b := fakeBackend(t, &fakeSystem{serve: answers(func(w *fakeWorker, f wire.Frame) {
		w.send(wire.KindAsk, f.Call, wire.Ask{ID: 1, Name: "http"})
	})}, Config{})
	s, err := b.Get(t.Context(), key(), listed("example.com"))
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Reset(t.Context()); !errors.Is(err, wire.ErrProtocol) {
		t.Errorf("error %v", err)
	}
}

func TestClaimsThatCannotBeTrueAreNotPassedOn(t *testing.T) {
	for kind, not := range map[string]error{"canceled": context.Canceled, "unavailable": sandbox.ErrUnavailable} {
		b := fakeBackend(t, &fakeSystem{serve: answers(func(w *fakeWorker, f wire.Frame) {
			w.send(wire.KindDone, f.Call, wire.Done{Kind: kind, Usable: true})
		})}, Config{})
		s, err := b.Get(t.Context(), key(), spec())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.RunCode(t.Context(), "x", time.Minute); errors.Is(err, not) || !errors.Is(err, sandbox.ErrWorkerLost) || sandbox.Usable(err) {
			t.Errorf("%s: %v", kind, err)
		}
	}
}

func TestFramesWithoutContentAreNotCountedForEver(t *testing.T) {
	b := fakeBackend(t, &fakeSystem{serve: answers(func(w *fakeWorker, f wire.Frame) { w.send(wire.KindStdout, f.Call, []byte{}) })}, Config{})
	s, err := b.Get(t.Context(), key(), spec())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.RunCode(t.Context(), "x", time.Minute); !errors.Is(err, wire.ErrProtocol) {
		t.Errorf("error %v", err)
	}
}

func TestALargeEndOfACallIsRefusedWhateverItsProgramMayAsk(t *testing.T) {
	b := fakeBackend(t, &fakeSystem{serve: answers(func(w *fakeWorker, f wire.Frame) {
		w.send(wire.KindDone, f.Call, wire.Done{Usable: true, Value: strings.Repeat("v", 9<<20)})
	})}, Config{})
	s, err := b.Get(t.Context(), key(), listed("example.com"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.RunCode(t.Context(), "x", time.Minute); !errors.Is(err, wire.ErrProtocol) {
		t.Errorf("error %v", err)
	}
}

func TestImagesThatDoNotExistLeaveNothing(t *testing.T) {
	s := &fakeSystem{serve: answers(good), launchErr: unavailable("no such image", nil)}
	b := fakeBackend(t, s, Config{})
	for i := range 2 * maxPools {
		sp := spec()
		sp.Image = strings.Repeat("i", i+1)
		if _, err := b.Acquire(t.Context(), key(), sp); !errors.Is(err, sandbox.ErrUnavailable) {
			t.Fatalf("image %d: %v", i, err)
		}
	}
	s.launchErr = nil
	if _, err := b.Acquire(t.Context(), key(), spec()); err != nil {
		t.Error(err)
	}
}
