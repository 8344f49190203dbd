//go:build unix

package interop

import (
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/maf-sandbox/maf-sandbox-go/control"
	"github.com/maf-sandbox/maf-sandbox-go/control/liveness"
	"github.com/maf-sandbox/maf-sandbox-go/internal/cli"
	"github.com/maf-sandbox/maf-sandbox-go/internal/cli/root"
	"github.com/maf-sandbox/maf-sandbox-go/internal/console"
	"github.com/maf-sandbox/maf-sandbox-go/internal/mst/command"
	"github.com/maf-sandbox/maf-sandbox-go/internal/mst/fleet"
	"github.com/maf-sandbox/maf-sandbox-go/sandbox"
	"github.com/maf-sandbox/maf-sandbox-go/sandbox/sandboxtest"
)

// workerVariable has the test binary be a worker: a process that does nothing
// until its input ends.
const workerVariable = "MAF_SANDBOX_INTEROP_WORKER"

// TestMain is also the programs of this repository, for tests that start them.
func TestMain(m *testing.M) {
	if os.Getenv(workerVariable) != "" {
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(0)
	}
	testscript.Main(tests{m}, map[string]func(){
		cli.Program: func() { os.Exit(root.Main()) },
		command.Program: func() {
			f := command.New()
			f.Console = func(ctx context.Context, hosts *fleet.Fleet) error { return console.Run(ctx, hosts, console.Config{}) }
			os.Exit(command.Main(f))
		},
	})
}

// cache is the folder of images and templates of the programs that tests start:
// capturing and booting a Python takes a second.
var cache string

type tests struct{ *testing.M }

func (t tests) Run() int {
	dir, err := os.MkdirTemp("", "maf-sandbox-interop-")
	if err != nil {
		panic(err)
	}
	defer func() { _ = os.RemoveAll(dir) }() // a folder for temporary files
	cache = filepath.Join(dir, "cache")
	return t.M.Run()
}

// workers is a backend in memory whose sandboxes have a real process each, as
// those of the micro-VM backend do.
type workers struct {
	*sandboxtest.Backend

	mu    sync.Mutex
	boxes map[sandbox.Key]*box // one kind each is enough here; guarded by mu
}

// box is a sandbox and its process.
type box struct {
	sandbox.Sandbox
	command *exec.Cmd
	input   io.Closer
	exited  chan struct{}
}

func (b *box) Liveness() liveness.Report {
	select {
	case <-b.exited:
		return liveness.Report{State: liveness.Exited, ProcessID: b.command.Process.Pid}
	default:
		return liveness.Report{State: liveness.Ready, ProcessID: b.command.Process.Pid}
	}
}

func (b *box) kill() {
	_ = b.command.Process.Kill()
	<-b.exited
}

func startBox(inner sandbox.Sandbox) (*box, error) {
	program, err := os.Executable()
	if err != nil {
		return nil, err
	}
	b := &box{Sandbox: inner, command: exec.Command(program), exited: make(chan struct{})}
	b.command.Env = []string{workerVariable + "=1"}
	input, err := b.command.StdinPipe()
	if err != nil {
		return nil, err
	}
	b.input = input
	if err := b.command.Start(); err != nil {
		return nil, err
	}
	go func() {
		defer close(b.exited)
		_ = b.command.Wait()
	}()
	return b, nil
}

func newWorkers(t *testing.T) *workers {
	w := &workers{Backend: sandboxtest.New(sandboxtest.Config{}), boxes: make(map[sandbox.Key]*box)}
	t.Cleanup(func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		for _, b := range w.boxes {
			b.kill()
		}
	})
	return w
}

func (w *workers) Acquire(ctx context.Context, key sandbox.Key, spec sandbox.Spec) (sandbox.Sandbox, error) {
	inner, err := w.Backend.Acquire(ctx, key, spec)
	if err != nil {
		return nil, err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if b := w.boxes[key]; b != nil && b.Sandbox == inner {
		return b, nil
	}
	b, err := startBox(inner)
	if err != nil {
		return nil, err
	}
	w.boxes[key] = b
	return b, nil
}

// reap ends the processes of sandboxes that are gone.
func (w *workers) reap() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for key, b := range w.boxes {
		_, err := b.RunCode(context.Background(), "", time.Second)
		if errors.Is(err, sandbox.ErrDisposed) {
			b.kill()
			delete(w.boxes, key)
		}
	}
}

func (w *workers) Dispose(ctx context.Context, key sandbox.Key, options sandbox.DisposeOptions) error {
	err := w.Backend.Dispose(ctx, key, options)
	w.reap()
	return err
}

func (w *workers) DisposeScope(ctx context.Context, scope, threadID string) sandbox.ScopePurge {
	purge := w.Backend.DisposeScope(ctx, scope, threadID)
	w.reap()
	return purge
}

// plainRouter is a router without a policy.
type plainRouter struct{ monitor *control.Monitor }

func (r plainRouter) Acquire(ctx context.Context, key sandbox.Key, spec sandbox.Spec) (sandbox.Sandbox, error) {
	box, err := r.monitor.Acquire(ctx, key, spec)
	if err == nil {
		r.monitor.Admitted(key, spec, box)
	}
	return box, err
}

func (r plainRouter) DisposeKind(ctx context.Context, key sandbox.Key, kind, id string, timeout time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	return r.monitor.Dispose(ctx, key, sandbox.DisposeOptions{Kind: kind, InstanceID: id})
}

// goHost is a host of this repository that is announced in the folder, with the
// sandboxes of the threads t-1 and t-2 of tenant.
func goHost(t *testing.T, dir, source string) []sandbox.Sandbox {
	t.Helper()
	monitor := control.NewMonitor(newWorkers(t))
	router := plainRouter{monitor}
	host, err := control.NewHost(control.HostConfig{
		SourceID: source, Monitors: []*control.Monitor{monitor}, Router: router,
		Quiesce: func(context.Context, sandbox.Key) (func(), error) { return func() {}, nil },
		Purge: func(ctx context.Context, scope, threadID string) (sandbox.ScopePurge, error) {
			return monitor.DisposeScope(ctx, scope, threadID), nil
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	serve(t, dir, source, host)
	var boxes []sandbox.Sandbox
	for _, thread := range []string{"t-1", "t-2"} {
		box, err := router.Acquire(context.Background(), sandbox.Key{Scope: "tenant", ThreadID: thread, AgentID: "agent"}, spec(t))
		if err != nil {
			t.Fatal(err)
		}
		boxes = append(boxes, box)
	}
	return boxes
}

func spec(t *testing.T) sandbox.Spec {
	t.Helper()
	rules, err := sandbox.AllowHosts("b.example", "a.example")
	if err != nil {
		t.Fatal(err)
	}
	return sandbox.Spec{
		Kind: "python", Requires: sandbox.SetOf(sandbox.CapRunCode), Egress: sandbox.EgressAllowlist,
		EgressAllow: rules, ExecutionContract: "contract-1",
	}
}

func serve(t *testing.T, dir, source string, c control.Control) *control.Server {
	t.Helper()
	return serveWith(t, control.ServerConfig{Control: c, SourceID: source, Directory: dir, Socket: true})
}

func serveWith(t *testing.T, config control.ServerConfig) *control.Server {
	t.Helper()
	server, err := control.NewServer(config)
	if err != nil {
		t.Fatal(err)
	}
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := server.Close(); err != nil {
			t.Errorf("close the server: %v", err)
		}
	})
	return server
}
