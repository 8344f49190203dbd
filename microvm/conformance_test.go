package microvm

import (
	"context"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/maf-sandbox/maf-sandbox-go/sandbox"
	"github.com/maf-sandbox/maf-sandbox-go/sandbox/sandboxtest"
)

// spec is one that the backend serves.
func spec() sandbox.Spec {
	return sandbox.Spec{Kind: "conformance", Requires: sandbox.SetOf(sandbox.CapRunCode, sandbox.CapSnapshot)}
}

// harness is what the conformance suite knows of a configuration. Each backend
// gets a namespace of its own, which its siblings share.
func harness(t *testing.T, c Config) sandboxtest.Harness {
	c.Private = false
	workDir := spec()
	workDir.WorkDir = sandbox.DefaultWorkDir
	pinned := spec()
	pinned.Image, pinned.ImageID = "default", strings.Repeat("0", 64)
	create := func(tt sandboxtest.T, dir string) sandbox.Backend {
		c := c
		c.LockDir = dir
		b, err := New(c)
		if err != nil {
			tt.Fatalf("%v", err)
		}
		return &stoppable{Backend: b, t: t}
	}
	h := sandboxtest.Harness{
		New: func(tt sandboxtest.T) sandbox.Backend { return create(tt, t.TempDir()) },
		Sibling: func(tt sandboxtest.T, first sandbox.Backend) sandbox.Backend {
			return create(tt, first.(*stoppable).config.LockDir)
		},
		Spec:          spec(),
		Programs:      sandboxtest.PythonPrograms(),
		MaxCode:       DefaultMaxCode,
		MaxOutput:     DefaultMaxOutput,
		FailDisposals: stopSupervisors,
		Refused: []sandboxtest.RefusedSpec{
			{Name: "a work folder", Spec: workDir, Reason: sandbox.ErrNotSupported},
			{Name: "a wildcard", Spec: listed("*.example.com"), Reason: sandbox.ErrEgressNotEnforced},
		},
		Short: patience(150 * time.Millisecond),
	}
	if inTestVM {
		// Two waits of that length fit in, and twice as much for what is slow.
		h.Busy = 4 * h.Short
	}
	if c.Image == "" {
		h.Refused = append(h.Refused, sandboxtest.RefusedSpec{Name: "an image with another ID", Spec: pinned, Reason: sandbox.ErrNotSupported})
	}
	return h
}

// stoppable is a backend whose disposals can be made to fail as they can in
// earnest: its supervisor is stopped, and nobody confirms anything.
type stoppable struct {
	*Backend
	t     *testing.T
	stops atomic.Bool
}

// stopSupervisors is the harness's FailDisposals.
func stopSupervisors(backend sandbox.Backend) (heal func()) {
	b := backend.(*stoppable) // the harness made it
	b.stops.Store(true)
	was := b.config.CleanupTimeout
	b.config.CleanupTimeout = 100 * time.Millisecond
	return sync.OnceFunc(func() {
		b.stops.Store(false)
		b.config.CleanupTimeout = was
		signalAll(supervisors(b.t), unix.SIGCONT)
	})
}

func (b *stoppable) stop() {
	if !b.stops.Load() {
		return
	}
	for _, pid := range supervisors(b.t) {
		_ = unix.Kill(pid, unix.SIGSTOP)
		eventually(b.t, "the supervisor is stopped", func() bool { return stateOf(pid) == "T" })
	}
}

func (b *stoppable) Dispose(ctx context.Context, key sandbox.Key, options sandbox.DisposeOptions) error {
	b.stop()
	return b.Backend.Dispose(ctx, key, options)
}

func (b *stoppable) DisposeScope(ctx context.Context, scope, threadID string) sandbox.ScopePurge {
	b.stop()
	return b.Backend.DisposeScope(ctx, scope, threadID)
}

func (b *stoppable) Close() error {
	b.stop()
	return b.Backend.Close()
}

func TestTheBackendConforms(t *testing.T) {
	c := live(t)
	c.Pool = 2
	if inTestVM {
		c.Pool = 1 // each is a machine more for every rule
	}
	sandboxtest.RunConformance(t, harness(t, c))
}

func TestTheBackendConformsWithoutSpareWorkers(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: the same with spare workers has run")
	}
	c := live(t)
	c.Overrun = OverrunRetire
	sandboxtest.RunConformance(t, harness(t, c))
}
