package microvm

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"testing"
	"time"

	"github.com/maf-sandbox/maf-sandbox-go/internal/wire"
	"github.com/maf-sandbox/maf-sandbox-go/sandbox"
)

// What functions of the host may do that this package calls.

func TestProgressMayCallTheBackend(t *testing.T) {
	var b *Backend
	var heard []string
	system := &fakeSystem{serve: answers(good), capture: func(_ context.Context, c Config) error {
		c.Progress("one")
		c.Progress("two")
		return nil
	}}
	other := spec()
	other.Image, other.Kind = "other", "other"
	b = fakeBackend(t, system, Config{Progress: func(text string) {
		if heard = append(heard, text); len(heard) > 1 {
			return
		}
		_ = b.Isolation()
		if _, err := b.Acquire(context.Background(), key(), other); err != nil {
			t.Errorf("acquire of another image: %v", err)
		}
		if err := b.Dispose(context.Background(), key(), sandbox.DisposeOptions{Kind: other.Kind}); err != nil {
			t.Errorf("dispose: %v", err)
		}
		b.ObserveEgress(nil)
	}})
	if _, err := b.Acquire(t.Context(), key(), spec()); err != nil {
		t.Fatal(err)
	}
	if len(heard) != 4 || heard[0] != "one" || heard[3] != "two" {
		t.Errorf("heard %q", heard)
	}
}

func TestProgressThatDoesNotReturnKeepsNobody(t *testing.T) {
	hold := make(chan struct{})
	defer close(hold)
	system := &fakeSystem{serve: answers(good), capture: func(ctx context.Context, c Config) error {
		c.Progress("one")
		return ctx.Err()
	}}
	b := fakeBackend(t, system, Config{StartupTimeout: 50 * time.Millisecond, Progress: func(string) { <-hold }})
	for range 2 {
		if _, err := b.Acquire(t.Context(), key(), spec()); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("error %v", err)
		}
	}
}

func TestProgressThatCloses(t *testing.T) {
	var b *Backend
	system := &fakeSystem{serve: answers(good), capture: func(ctx context.Context, c Config) error {
		c.Progress("one")
		return ctx.Err()
	}}
	b = fakeBackend(t, system, Config{Progress: func(string) { _ = b.Close() }})
	if _, err := b.Acquire(t.Context(), key(), spec()); !errors.Is(err, sandbox.ErrClosed) {
		t.Errorf("error %v", err)
	}
}

// asksForAnAddress has a worker ask for a request that is refused, and end its run
// when it is answered.
func asksForAnAddress(t *testing.T) func(*fakeWorker) {
	t.Helper()
	head, err := json.Marshal(map[string]any{"method": "GET", "url": "http://192.0.2.1/", "headers": [][]string{}, "timeout": nil})
	if err != nil {
		t.Fatal(err)
	}
	message := append(binary.LittleEndian.AppendUint32(nil, uint32(len(head))), head...)
	return answers(func(w *fakeWorker, f wire.Frame) {
		switch f.Kind {
		case wire.KindRun:
			w.send(wire.KindAsk, f.Call, wire.Ask{ID: f.Call, Name: askHTTP, Payload: message})
		case wire.KindAnswer:
			w.send(wire.KindDone, f.Call, wire.Done{Usable: true})
		case wire.KindReset:
			w.send(wire.KindDone, f.Call, wire.Done{Usable: true})
		}
	})
}

func TestAReportOfARequestMayCallTheBackend(t *testing.T) {
	b := fakeBackend(t, &fakeSystem{serve: asksForAnAddress(t)}, Config{})
	first, err := b.Get(t.Context(), key(), listed("example.com"))
	if err != nil {
		t.Fatal(err)
	}
	reports := 0
	b.ObserveEgress(func(o sandbox.EgressObservation) {
		reports++
		if o.InstanceID != first.ID() || o.Decisions[0].Allowed {
			t.Errorf("reported %+v", o)
		}
		if _, err := b.Acquire(context.Background(), numbered(1), spec()); err != nil {
			t.Errorf("acquire: %v", err)
		}
		// The very sandbox of the request.
		if err := b.Dispose(context.Background(), o.Key, sandbox.DisposeOptions{InstanceID: o.InstanceID}); err != nil {
			t.Errorf("dispose: %v", err)
		}
		b.ObserveEgress(nil)
	})
	if _, err := first.RunCode(t.Context(), "x", time.Minute); !errors.Is(err, sandbox.ErrDisposed) {
		t.Errorf("the run: %v", err)
	}
	if reports != 1 {
		t.Errorf("%d reports", reports)
	}
}

func TestAReportThatDoesNotReturnCostsItsOwnSandboxOnly(t *testing.T) {
	hold := make(chan struct{})
	defer close(hold)
	b := fakeBackend(t, &fakeSystem{serve: asksForAnAddress(t)}, Config{})
	first, err := b.Get(t.Context(), key(), listed("example.com"))
	if err != nil {
		t.Fatal(err)
	}
	reported := make(chan struct{}, 8)
	b.ObserveEgress(func(o sandbox.EgressObservation) {
		reported <- struct{}{}
		if o.Key == key() {
			<-hold
		}
	})
	ended := make(chan error, 1)
	go func() { _, err := first.RunCode(context.Background(), "x", time.Second); ended <- err }()
	select {
	case <-reported:
	case err := <-ended:
		t.Fatalf("the run ended before its request was reported: %v", err)
	}
	other, err := b.Get(t.Context(), numbered(1), listed("example.com"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := other.RunCode(t.Context(), "x", time.Minute); err != nil {
		t.Errorf("another sandbox: %v", err)
	}
	if err := <-ended; !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("the run: %v", err)
	}
	if err := b.Dispose(t.Context(), key(), sandbox.DisposeOptions{}); err != nil {
		t.Errorf("dispose: %v", err)
	}
}
