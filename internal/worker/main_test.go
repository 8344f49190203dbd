//go:build linux && amd64

package worker

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/maf-sandbox/maf-sandbox-go/internal/helper"
	"github.com/maf-sandbox/maf-sandbox-go/internal/image"
	"github.com/maf-sandbox/maf-sandbox-go/internal/owner"
	"github.com/maf-sandbox/maf-sandbox-go/internal/platform/kvmvm"
	"github.com/maf-sandbox/maf-sandbox-go/internal/supervise"
	"github.com/maf-sandbox/maf-sandbox-go/internal/tools/testvm/expect"
	"github.com/maf-sandbox/maf-sandbox-go/internal/wire"
)

func TestMain(m *testing.M) {
	helper.Main()
	if start := os.Getenv(hostVariable); start != "" {
		hostMain(start)
	}
	os.Exit(m.Run())
}

// testImage is the image of the machine's Python, below dir unless there is one.
func testImage(t testing.TB, dir string) string {
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

// supervisor starts one with a spare worker, or skips the test by name and reason.
func supervisor(ctx context.Context, t testing.TB) *supervise.Supervisor {
	t.Helper()
	p, err := kvmvm.New()
	if err != nil {
		expect.KVM.Skip(t, "needs a usable /dev/kvm: %v", err)
	}
	_ = p.Close()
	dir := t.TempDir()
	l, err := owner.Acquire(dir, "worker")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Release() })
	s, err := supervise.Start(supervise.Config{
		Lock: l.File(), Role: Role, Spare: 1, StartTimeout: 2 * time.Minute,
		Start:  wire.Start{Image: testImage(t, dir), Templates: filepath.Join(dir, "templates"), Grace: 20 * time.Second, Warm: true},
		Limits: supervise.Limits{Enforcement: supervise.Rlimit, MemoryMax: 4 << 30},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(ctx); err != nil {
			t.Error(err)
		}
	})
	return s
}

// acquire takes a worker of a supervisor.
func acquire(ctx context.Context, t testing.TB, s *supervise.Supervisor) *supervise.Worker {
	t.Helper()
	w, err := s.Acquire(ctx)
	if err != nil {
		if e := (*supervise.StartError)(nil); errors.As(err, &e) {
			t.Log(e.Diagnostics)
		}
		t.Fatal(err)
	}
	return w
}

func newClient(t testing.TB, w *supervise.Worker) *client {
	return &client{t: t, conn: w.Conn, r: wire.NewReader(w.Conn, wire.MaxPayload), w: wire.NewWriter(w.Conn)}
}

func TestJailedWorkerOfASupervisorRunsPython(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	t.Cleanup(cancel)
	s := supervisor(ctx, t)
	for range 2 {
		w := acquire(ctx, t, s)
		if w.Ready.Engine != "kvm" || w.Ready.Python == "" || w.Ready.Generation == "" {
			t.Errorf("ready: %+v", w.Ready)
		}
		if !sealed(t) {
			t.Error("the worker has no seccomp filter")
		}
		c := newClient(t, w)
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

// serveAsks answers what a call asks by giving it back, until the call is done.
func (c *client) serveAsks(number uint32) (out []byte, d wire.Done) {
	c.t.Helper()
	for {
		f, err := c.r.Next()
		if err != nil {
			c.t.Fatal(err)
		}
		switch f.Kind {
		case wire.KindAsk:
			var a wire.Ask
			if err := wire.Decode(f.Payload, &a); err != nil {
				c.t.Fatal(err)
			}
			if a.Name == "hang" {
				continue // until it is withdrawn
			}
			c.send(wire.KindAnswer, number, wire.Answer{ID: a.ID, Payload: a.Payload})
		case wire.KindWithdraw:
			var w wire.Withdraw
			if err := wire.Decode(f.Payload, &w); err != nil {
				c.t.Fatal(err)
			}
			c.send(wire.KindAnswer, number, wire.Answer{ID: w.ID, Failed: true})
		case wire.KindDone:
			if err := wire.Decode(f.Payload, &d); err != nil {
				c.t.Fatal(err)
			}
			return out, d
		default:
			out = append(out, f.Payload...)
		}
	}
}

func TestAProgramInAJailedWorkerAsksTheHost(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	t.Cleanup(cancel)
	w := acquire(ctx, t, supervisor(ctx, t))
	c := newClient(t, w)
	for i, k := range []struct {
		code, want, kind string
		timeout          time.Duration
	}{
		{"from _maf_host import call\nprint(call('echo', b'hi'))", "b'hi'\n", "", time.Minute},
		{"print(call('echo', bytes(8 << 20)) == bytes(8 << 20))", "True\n", "", time.Minute},
		{"from concurrent.futures import ThreadPoolExecutor\nwith ThreadPoolExecutor(20) as ex: print(len(set(ex.map(lambda i: call('echo', b'%d' % i), range(100)))))", "100\n", "", time.Minute},
		{"call('hang')", "KeyboardInterrupt", "timeout", 300 * time.Millisecond},
		{"print(call('echo', b'again'))", "b'again'\n", "", time.Minute},
	} {
		n := uint32(i + 1)
		c.send(wire.KindRun, n, wire.Run{Code: []byte(k.code), Timeout: k.timeout, MaxOutput: 1 << 20, Host: true})
		out, d := c.serveAsks(n)
		if !strings.HasSuffix(strings.TrimSpace(string(out)), strings.TrimSpace(k.want)) || d.Kind != k.kind || !d.Usable {
			t.Errorf("%s: %q, %+v", k.code, out, d)
		}
	}
	if err := w.Release(ctx); err != nil {
		t.Error(err)
	}
}

func BenchmarkAskThroughAWorker(b *testing.B) {
	ctx := context.Background()
	s := supervisor(ctx, b)
	for _, size := range []int{10, 15 << 10} {
		b.Run(strconv.Itoa(size), func(b *testing.B) {
			w := acquire(ctx, b, s)
			c := newClient(b, w)
			run := func(number uint32, n int) {
				code := fmt.Sprintf("from _maf_host import call\np = bytes(%d)\nfor i in range(%d): call('echo', p)", size, n)
				c.send(wire.KindRun, number, wire.Run{Code: []byte(code), Timeout: time.Hour, MaxOutput: 1 << 20, Host: true})
				if out, d := c.serveAsks(number); d.Kind != "" || d.ExitCode != 0 {
					b.Fatalf("%+v; %q", d, out)
				}
			}
			run(1, 100)
			b.ResetTimer()
			run(2, b.N)
			b.StopTimer()
			if err := w.Release(ctx); err != nil {
				b.Error(err)
			}
		})
	}
}
