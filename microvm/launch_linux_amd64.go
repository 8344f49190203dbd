package microvm

import (
	"context"
	"errors"
	"fmt"
	"net"
	"path/filepath"

	"github.com/maf-sandbox/maf-sandbox-go/internal/cgroup"
	"github.com/maf-sandbox/maf-sandbox-go/internal/engine"
	"github.com/maf-sandbox/maf-sandbox-go/internal/helper"
	"github.com/maf-sandbox/maf-sandbox-go/internal/image"
	"github.com/maf-sandbox/maf-sandbox-go/internal/owner"
	"github.com/maf-sandbox/maf-sandbox-go/internal/supervise"
	"github.com/maf-sandbox/maf-sandbox-go/internal/wire"
	"github.com/maf-sandbox/maf-sandbox-go/internal/worker"
	"github.com/maf-sandbox/maf-sandbox-go/sandbox"
)

// A program that has this package can be the supervisor and the worker; as
// either it does not get beyond this point.
func init() { helper.Main() }

// thisSystem is Linux.
type thisSystem struct{}

func (thisSystem) own(c Config) (ownership, error) {
	if c.Private {
		return owner.AcquirePrivate()
	}
	dir, err := c.LockDir, error(nil)
	if dir == "" {
		dir, err = owner.Folder()
	}
	if err != nil {
		return nil, err
	}
	return owner.Acquire(dir, c.Namespace)
}

func (thisSystem) image(ctx context.Context, c Config, name, id string) (string, error) {
	store, err := image.OpenStore(filepath.Join(c.CacheDir, "images"))
	if err != nil {
		return "", unavailable("no image store", err)
	}
	var file string
	if name == "" && id == "" {
		file, _, err = store.Default(ctx, c.Progress)
	} else {
		file, err = resolve(store, name, id)
	}
	var refusal *sandbox.RefusalError
	switch {
	case err == nil:
		return file, nil
	case errors.As(err, &refusal), ctx.Err() != nil && errors.Is(err, ctx.Err()):
		return "", err
	}
	return "", unavailable("no Python for the sandbox", err)
}

// resolve finds a named image and makes sure of its ID.
func resolve(store *image.Store, name, id string) (string, error) {
	if name == "" {
		name = id
	}
	info, err := store.Show(name)
	if err != nil {
		return "", err
	}
	if id != "" && info.ID != id {
		return "", &sandbox.RefusalError{
			Reason: sandbox.ErrNotSupported, Subject: "spec.image_id", Asked: fmt.Sprintf("%.80q", id),
			Allowed: fmt.Sprintf("%s, the image of that name", info.ID), Decider: decider,
		}
	}
	return info.Path, nil
}

func (thisSystem) launch(c Config, file string, o ownership) (supervisor, error) {
	lock, ok := o.(*owner.Lock)
	if !ok {
		return nil, fmt.Errorf("an ownership that is a %T", o)
	}
	limits := supervise.Limits{Enforcement: supervise.Enforcement(c.Enforcement), MemoryMax: c.WorkerMemory}
	if c.Enforcement == EnforceCgroup {
		limits.Root = c.CgroupRoot
		if limits.Root == "" {
			limits.Root = cgroup.DefaultRoot
		}
	}
	s, err := supervise.Start(supervise.Config{
		Path: c.WorkerPath, Lock: lock.File(), Role: worker.Role, Spare: c.Pool, Limits: limits, StartTimeout: c.StartupTimeout,
		Start: wire.Start{
			Image: file, Templates: filepath.Join(c.CacheDir, "templates"), Memory: c.Memory, Grace: c.Grace, Warm: c.Pool > 0,
		},
	})
	if err != nil {
		return nil, unavailable("no supervisor", err)
	}
	return supervised{s}, nil
}

// supervised is package supervise in the words of this one.
type supervised struct{ *supervise.Supervisor }

func (s supervised) Acquire(ctx context.Context) (process, error) {
	w, err := s.Supervisor.Acquire(ctx)
	var failed *supervise.StartError
	switch {
	case err == nil:
		return supervisedWorker{w}, nil
	case errors.Is(err, supervise.ErrSupervisor):
		return nil, &goneError{err}
	case errors.As(err, &failed):
		return nil, &sandbox.OpError{Op: opAcquire, Class: startClass(failed), Cause: startCause(failed)}
	}
	return nil, err
}

// startClass is the class of a worker that did not start.
func startClass(e *supervise.StartError) error {
	if engine.Kind(e.Kind) == engine.KindMemory {
		return sandbox.ErrMemory
	}
	if engine.Kind(e.Kind) == engine.KindUnavailable {
		return sandbox.ErrUnavailable
	}
	return sandbox.ErrInternal
}

func startCause(e *supervise.StartError) error {
	if len(e.Mend) == 0 {
		return e
	}
	return &SetupError{Problem: e.Message, Mend: e.Mend}
}

type supervisedWorker struct{ *supervise.Worker }

func (w supervisedWorker) Ready() wire.Ready { return w.Worker.Ready }
func (w supervisedWorker) Conn() net.Conn    { return w.Worker.Conn }

func (w supervisedWorker) Cause() error {
	err := w.Worker.Cause()
	var gone *supervise.GoneError
	if errors.As(err, &gone) {
		return ended{gone}
	}
	return err
}

// Abandon is a Release that does not wait.
func (w supervisedWorker) Abandon() {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_ = w.Release(ctx) // only says that it did not wait
}

// ended is how a worker ended.
type ended struct{ *supervise.GoneError }

// MetCeiling implements outOfMemory.
func (e ended) MetCeiling() bool { return e.OutOfMemory }

// Unwrap gives the supervisor's error.
func (e ended) Unwrap() error { return e.GoneError }
