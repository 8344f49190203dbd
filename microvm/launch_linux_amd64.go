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
	"github.com/maf-sandbox/maf-sandbox-go/internal/platform/host"
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

func (thisSystem) isolation(e Engine) (reached sandbox.Isolation) {
	p, _, err := host.Open(string(e))
	if err != nil {
		return sandbox.IsolationUnset
	}
	defer func() { _ = p.Close() }() // nothing was made of it
	if reached.UnmarshalText([]byte(p.Isolation())) != nil {
		return sandbox.IsolationUnset
	}
	return reached
}

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
		return "", otherImage(id, info.ID+", the image of that name")
	}
	return info.Path, nil
}

// otherImage is the refusal of an image that is not the one asked for.
func otherImage(id, allowed string) error {
	return &sandbox.RefusalError{
		Reason: sandbox.ErrNotSupported, Subject: "spec.image_id", Asked: fmt.Sprintf("%.80q", id), Allowed: allowed, Decider: decider,
	}
}

func (thisSystem) launch(c Config, file, id string, o ownership) (supervisor, error) {
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
			Engine: string(c.Engine), Image: file, ImageID: id, Templates: filepath.Join(c.CacheDir, "templates"), Memory: c.Memory, Grace: c.Grace, Warm: c.Pool > 0,
		},
	})
	if err != nil {
		return nil, unavailable("no supervisor", err)
	}
	return supervised{s, id, c.Engine, c.Enforcement}, nil
}

// supervised is package supervise in the words of this one.
type supervised struct {
	*supervise.Supervisor
	id          string // that its image must have, or empty
	engine      Engine
	enforcement Enforcement
}

func (s supervised) Acquire(ctx context.Context) (process, error) {
	w, err := s.Supervisor.Acquire(ctx)
	var failed *supervise.StartError
	switch {
	case err == nil:
		return supervisedWorker{w}, nil
	case errors.Is(err, supervise.ErrSupervisor):
		return nil, &goneError{err}
	case errors.As(err, &failed) && failed.Kind == string(engine.KindRefused) && s.id != "":
		return nil, otherImage(s.id, failed.Message)
	case errors.As(err, &failed):
		return nil, startFailure(failed, s.engine, s.enforcement)
	}
	return nil, err
}

// startFailure is what acquire says of a worker that did not start.
func startFailure(e *supervise.StartError, on Engine, how Enforcement) error {
	o := &sandbox.OpError{Op: opAcquire, Class: sandbox.ErrInternal, Cause: e}
	switch e.Kind {
	case string(engine.KindMemory):
		o.Class = sandbox.ErrMemory
	case string(engine.KindUnavailable):
		o.Class = sandbox.ErrUnavailable
	case string(engine.KindNoPlatform):
		o.Class, o.Cause = sandbox.ErrUnavailable, &EngineError{Engine: on, Problem: e.Message}
	case supervise.KindKilled:
		o.Class, o.Detail = sandbox.ErrWorkerLost, "the worker was ended from outside before it was ready, by a person or for want of memory; it can be tried again"
	}
	if e.Ceiling {
		o.Detail, o.Cause = "the memory ceiling cannot be enforced", &SetupError{Enforcement: how, Problem: e.Message, Mend: e.Mend}
	}
	return o
}

type supervisedWorker struct{ *supervise.Worker }

func (w supervisedWorker) Ready() wire.Ready { return w.Worker.Ready }
func (w supervisedWorker) Conn() net.Conn    { return w.Worker.Conn }
func (w supervisedWorker) Side() net.Conn    { return w.Worker.Side }
func (w supervisedWorker) PID() int          { return w.Worker.PID }

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
