package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"github.com/maf-sandbox/maf-sandbox-go/internal/exits"
	"github.com/maf-sandbox/maf-sandbox-go/internal/streams"
)

// Program is the name in front of every message.
const Program = "maf-sandbox"

// CacheEnv names the environment variable that puts the cache folder somewhere
// else.
const CacheEnv = "MAF_SANDBOX_CACHE"

// Factory is what every command is made from.
type Factory struct {
	Streams *streams.Streams
	// Open opens a machine.
	Open Opener
	// CacheDir gives the folder for images, templates and the history. It
	// does not create it.
	CacheDir func() (string, error)
	// Signals delivers the signals that ask the program to stop, until stop
	// is called.
	Signals func() (c <-chan os.Signal, stop func())
}

// ImageDir gives the folder of the image store.
func (f *Factory) ImageDir() (string, error) {
	dir, err := f.CacheDir()
	if err != nil {
		return "", err
	}
	return filepath.Join(dir, "images"), nil
}

// New gives the factory of this process.
func New() *Factory {
	return &Factory{
		Streams:  streams.System(),
		Open:     Open,
		CacheDir: CacheDir,
		Signals:  Signals,
	}
}

// CacheDir gives the program's folder in the user's cache, or the absolute
// path that MAF_SANDBOX_CACHE names.
func CacheDir() (string, error) {
	if dir := os.Getenv(CacheEnv); dir != "" {
		abs, err := filepath.Abs(dir)
		if err != nil {
			return "", fmt.Errorf("cache folder %s: %w", dir, err)
		}
		return abs, nil
	}
	dir, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("no cache folder, set %s: %w", CacheEnv, err)
	}
	return filepath.Join(dir, Program), nil
}

// Signals delivers SIGINT, SIGTERM and SIGHUP until stop is called.
func Signals() (<-chan os.Signal, func()) {
	c := make(chan os.Signal, 1)
	signal.Notify(c, os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	return c, func() { signal.Stop(c) }
}

// SignalError is the cause of a context that a signal ended.
type SignalError struct{ Signal os.Signal }

// Error says which signal it was.
func (e *SignalError) Error() string { return e.Signal.String() }

// Interruptible gives a context that the first signal ends, with a
// *SignalError as its cause. A moment later (exits.Echo) signals have their
// ordinary effect, so that a second one kills a program that does not come to
// its end. release must be called.
func (f *Factory) Interruptible(parent context.Context) (ctx context.Context, release func()) {
	ctx, cancel := context.WithCancelCause(parent)
	c, stop := f.Signals()
	released := make(chan struct{})
	go func() {
		select {
		case s := <-c:
			cancel(&SignalError{s})
		case <-ctx.Done():
			return
		}
		select {
		case <-time.After(exits.Echo):
			stop()
		case <-released:
		}
	}()
	return ctx, sync.OnceFunc(func() {
		close(released)
		stop()
		cancel(nil)
	})
}

// StopCause gives why ctx was ended if that decides how the program ends: a
// signal, or output that cannot be written. It is nil otherwise.
func StopCause(ctx context.Context) error {
	cause := context.Cause(ctx)
	var sig *SignalError
	if errors.As(cause, &sig) || errors.Is(cause, streams.ErrPipe) || errors.Is(cause, streams.ErrWrite) {
		return cause
	}
	return nil
}
