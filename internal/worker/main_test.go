//go:build linux && amd64

package worker

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/maf-sandbox/maf-sandbox-go/internal/helper"
	"github.com/maf-sandbox/maf-sandbox-go/internal/image"
	"github.com/maf-sandbox/maf-sandbox-go/internal/owner"
	"github.com/maf-sandbox/maf-sandbox-go/internal/platform/host"
	"github.com/maf-sandbox/maf-sandbox-go/internal/supervise"
	"github.com/maf-sandbox/maf-sandbox-go/internal/wire"
)

func TestMain(m *testing.M) {
	helper.Main()
	os.Exit(m.Run())
}

// testImage is the image of the machine's Python, below dir unless there is one.
func testImage(t *testing.T, dir string) string {
	t.Helper()
	if p := os.Getenv("MAF_SANDBOX_TEST_IMAGE"); p != "" {
		return p
	}
	s, err := image.OpenStore(filepath.Join(dir, "images"))
	if err != nil {
		t.Fatal(err)
	}
	info, err := s.Build(context.Background(), image.Options{}, "worker")
	if errors.Is(err, image.ErrNoPython) {
		t.Skipf("needs a Python: %v", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	p, err := s.Resolve(info.ID)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// sealed says whether a worker of this program has a filter.
func sealed(t *testing.T) bool {
	t.Helper()
	found, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	self, err := os.Readlink("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range found {
		b, err := os.ReadFile(path)
		if err != nil || string(b) != "maf-sandbox-worker\x00" {
			continue
		}
		// Who is not dumpable has an exe that only root may read.
		exe, err := os.Readlink(filepath.Join(filepath.Dir(path), "exe"))
		status, _ := os.ReadFile(filepath.Join(filepath.Dir(path), "status"))
		if (err != nil || exe == self) && strings.Contains(string(status), "Seccomp:\t2") {
			return true
		}
	}
	return false
}

func TestJailedWorkerOfASupervisorRunsPython(t *testing.T) {
	for _, name := range []string{host.KVM, host.Ptrace} {
		t.Run(name, func(t *testing.T) {
			p, _, err := host.Open(name)
			if err != nil {
				t.Skipf("needs engine %s: %v", name, err)
			}
			_ = p.Close()
			workerRunsPython(t, name)
		})
	}
}

func workerRunsPython(t *testing.T, engine string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	dir := t.TempDir()
	l, err := owner.Acquire(dir, "worker")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Release() }()
	s, err := supervise.Start(supervise.Config{
		Lock: l.File(), Role: Role, Spare: 1,
		Start:  wire.Start{Engine: engine, Image: testImage(t, dir), Templates: filepath.Join(dir, "templates"), Grace: time.Second, Warm: true},
		Limits: supervise.Limits{Enforcement: supervise.Rlimit, MemoryMax: 4 << 30},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := s.Close(ctx); err != nil {
			t.Error(err)
		}
	}()
	for range 2 {
		w, err := s.Acquire(ctx)
		if err != nil {
			if e := (*supervise.StartError)(nil); errors.As(err, &e) {
				t.Log(e.Diagnostics)
			}
			t.Fatal(err)
		}
		if w.Ready.Engine != engine || w.Ready.Python == "" || w.Ready.Generation == "" {
			t.Errorf("ready: %+v", w.Ready)
		}
		if !sealed(t) {
			t.Error("the worker has no seccomp filter")
		}
		c := &client{t: t, conn: w.Conn, r: wire.NewReader(w.Conn, wire.MaxPayload), w: wire.NewWriter(w.Conn)}
		c.run(1, "print(6 * 7)")
		if f := c.next(wire.KindStdout, 1, nil); string(f.Payload) != "42\n" {
			t.Errorf("stdout %q", f.Payload)
		}
		if d := c.done(1); !d.Usable || d.Kind != "" || d.ExitCode != 0 {
			t.Errorf("done: %+v", d)
		}
		if err := w.Release(ctx); err != nil {
			t.Error(err)
		}
		if _, err := w.Conn.Read(make([]byte, 1)); err == nil || errors.Is(err, io.EOF) {
			t.Errorf("the connection is open after the release: %v", err)
		}
	}
}
