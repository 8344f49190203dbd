package microvm

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/maf-sandbox/maf-sandbox-go/sandbox"
)

// closes closes a backend while acquires are under way, and looks whether it and
// they come to an end.
func closes(t *testing.T, b *Backend, acquires ...<-chan error) {
	t.Helper()
	closed := make(chan error, 1)
	go func() { closed <- b.Close() }()
	// Longer than it may take, and far from the StartupTimeout.
	hang := time.After(patience(20 * time.Second))
	select {
	case err := <-closed:
		if err != nil {
			t.Errorf("close: %v", err)
		}
	case <-hang:
		t.Fatal("Close waits for an acquire")
	}
	for _, a := range acquires {
		select {
		case err := <-a:
			if !errors.Is(err, sandbox.ErrClosed) {
				t.Errorf("acquire: %v", err)
			}
		case <-hang:
			t.Fatal("an acquire goes on")
		}
	}
}

func TestCloseEndsAcquiresThatAreUnderWay(t *testing.T) {
	const forever = MaxTimeout
	for _, at := range []string{"while an image is captured", "while a worker boots"} {
		for name, acquire := range map[string]func(b *Backend) error{
			"acquire": func(b *Backend) error { _, err := b.Acquire(context.Background(), key(), spec()); return err },
			"prepare": func(b *Backend) error { return b.Prepare(context.Background()) },
		} {
			t.Run(name+" "+at, func(t *testing.T) {
				waiting := make(chan struct{})
				wait := func(ctx context.Context) error {
					close(waiting)
					<-ctx.Done()
					return ctx.Err()
				}
				system := &fakeSystem{serve: answers(good)}
				if at == "while a worker boots" {
					system.boot = wait
				} else {
					system.capture = func(ctx context.Context, _ Config) error { return wait(ctx) }
				}
				b := fakeBackend(t, system, Config{StartupTimeout: forever})
				done := make(chan error, 1)
				go func() { done <- acquire(b) }()
				<-waiting
				closes(t, b, done)
			})
		}
	}
}

func TestCloseEndsTheQueueForAPlaceAndTheReplacementOfALostSandbox(t *testing.T) {
	system := &fakeSystem{serve: answers(good)}
	b := fakeBackend(t, system, Config{StartupTimeout: MaxTimeout})
	if _, err := b.Acquire(t.Context(), key(), spec()); err != nil {
		t.Fatal(err)
	}
	waiting := make(chan struct{}, 2)
	system.boot = func(ctx context.Context) error {
		waiting <- struct{}{}
		<-ctx.Done()
		return ctx.Err()
	}
	system.given[0].die(errors.New("killed"))
	var done []<-chan error
	for range 2 {
		d := make(chan error, 1)
		done = append(done, d)
		go func() { _, err := b.Acquire(context.Background(), key(), spec()); d <- err }()
	}
	<-waiting
	closes(t, b, done...)
}

func TestCloseWaitsForAnotherBackendsTurnAtAPlaceForAWhileOnly(t *testing.T) {
	dir := t.TempDir()
	system := &fakeSystem{serve: answers(good)}
	open := func() *Backend {
		b, err := newBackend(Config{LockDir: dir, StartupTimeout: MaxTimeout, CleanupTimeout: 50 * time.Millisecond}, system)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	one, other := open(), open()
	first, err := one.Get(t.Context(), key(), spec())
	if err != nil {
		t.Fatal(err)
	}
	slot, err := other.realm.sandboxes.Enter(t.Context(), first.place)
	if err != nil {
		t.Fatal(err)
	}
	if err := one.Close(); err == nil {
		t.Error("closed although it could not look")
	}
	other.realm.sandboxes.Leave(slot)
	for _, b := range []*Backend{one, other} {
		b.config.CleanupTimeout = patience(20 * time.Second)
	}
	if err := errors.Join(one.Close(), other.Close()); err != nil {
		t.Errorf("again: %v", err)
	}
	if _, err := first.RunCode(t.Context(), "x", time.Minute); !errors.Is(err, sandbox.ErrClosed) {
		t.Errorf("its sandbox: %v", err)
	}
}
