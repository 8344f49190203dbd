package microvm

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/maf-sandbox/maf-sandbox-go/sandbox"
)

// hostEnv makes this test program a host that does what the variable says.
const hostEnv = "MICROVM_TEST_HOST"

// hosts are what such a host can be told to do, each with a backend of its own.
var hosts = map[string]func(b *Backend) error{
	// acquires again and again, always another key
	"acquire": func(b *Backend) error {
		for i := 0; ; i++ {
			if _, err := b.Acquire(context.Background(), numbered(i%8), spec()); err != nil {
				return err
			}
			if i%8 == 7 {
				b.DisposeScope(context.Background(), key().Scope, key().ThreadID)
			}
		}
	},
	"run": func(b *Backend) error {
		return withSandbox(b, func(s *Sandbox) error {
			_, err := s.RunCode(context.Background(), "while True: pass", time.Hour)
			return err
		})
	},
	"reset": func(b *Backend) error {
		return withSandbox(b, func(s *Sandbox) error {
			for {
				if err := s.Reset(context.Background()); err != nil {
					return err
				}
			}
		})
	},
	"dispose": func(b *Backend) error {
		for {
			if err := withSandbox(b, func(*Sandbox) error { return nil }); err != nil {
				return err
			}
			if err := b.Dispose(context.Background(), key(), sandbox.DisposeOptions{}); err != nil {
				return err
			}
		}
	},
	// ends as programs do that forget to close
	"exit": func(b *Backend) error {
		return withSandbox(b, func(*Sandbox) error { return nil })
	},
	// answers each line of its input with a run's output
	"serve": func(b *Backend) error {
		return withSandbox(b, func(s *Sandbox) error {
			for in := bufio.NewScanner(os.Stdin); in.Scan(); {
				r, err := s.RunCode(context.Background(), in.Text(), 0)
				fmt.Printf("%s %v\n", strings.TrimSpace(string(r.Stdout)), err)
			}
			return nil
		})
	},
	// has too few descriptors
	"descriptors": func(b *Backend) error {
		if err := b.Prepare(context.Background()); err != nil {
			return err
		}
		used, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			return err
		}
		few := syscall.Rlimit{Cur: uint64(len(used) + 8), Max: uint64(len(used) + 8)}
		if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &few); err != nil {
			return err
		}
		n := 0
		for ; n < 64; n++ {
			if _, err = b.Acquire(context.Background(), numbered(n), spec()); err != nil {
				break
			}
		}
		if err == nil {
			return errors.New("there was no end of descriptors")
		}
		fmt.Printf("full: %v\n", err)
		if p := b.DisposeScope(context.Background(), key().Scope, key().ThreadID); p.Disposed != n || p.Undisposed != nil {
			return fmt.Errorf("purge: %+v of %d", p, n)
		}
		return withSandbox(b, func(s *Sandbox) error {
			_, err := s.RunCode(context.Background(), "print(6*7)", 0)
			return err
		})
	},
}

func numbered(i int) sandbox.Key {
	k := key()
	k.AgentID = fmt.Sprint("agent-", i)
	return k
}

func withSandbox(b *Backend, f func(s *Sandbox) error) error {
	s, err := b.Get(context.Background(), key(), spec())
	if err != nil {
		return err
	}
	fmt.Println("ready")
	return f(s)
}

// hostMain is a host: its arguments are the folder of the lock and the cache.
func hostMain(duty string) error {
	b, err := New(Config{
		LockDir: os.Args[1], CacheDir: os.Args[2], Image: os.Getenv(imageEnv), Engine: testEngine(), Enforcement: enforcement(), Pool: 1, Namespace: "hosts",
	})
	if err != nil {
		return err
	}
	fmt.Println("begins")
	return hosts[duty](b)
}

// hostProcess is a host process.
type hostProcess struct {
	t     *testing.T
	cmd   *exec.Cmd
	in    io.Writer
	out   *bufio.Scanner
	lock  string
	cache string
	// supervisor is its supervisor's process, which leads the session of all
	// helpers.
	supervisor int
}

// startHost starts a host and waits until it has said something.
func startHost(t *testing.T, duty, word string) *hostProcess {
	t.Helper()
	c := live(t)
	h := &hostProcess{t: t, lock: t.TempDir(), cache: c.CacheDir}
	h.cmd = exec.Command("/proc/self/exe", h.lock, c.CacheDir) //nolint:gosec // this very program
	h.cmd.Env = append(os.Environ(), hostEnv+"="+duty)
	h.cmd.Stderr = os.Stderr
	in, err := h.cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := h.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	h.in, h.out = in, bufio.NewScanner(out)
	if err := h.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = h.cmd.Process.Kill(); _ = h.cmd.Wait() })
	h.hears(word)
	eventually(t, "the host has a supervisor", func() bool {
		found := children(t, h.cmd.Process.Pid, "maf-sandbox-supervisor")
		if len(found) > 0 {
			h.supervisor = found[0]
		}
		return len(found) > 0
	})
	return h
}

// hears waits for a line that begins with a word and gives the rest.
func (h *hostProcess) hears(word string) string {
	h.t.Helper()
	for h.out.Scan() {
		if rest, ok := strings.CutPrefix(h.out.Text(), word); ok {
			return rest
		}
	}
	h.t.Fatalf("the host did not say %q", word)
	return ""
}

// session are the living processes of the helpers' session.
func (h *hostProcess) session() (pids []int) {
	h.t.Helper()
	for _, pid := range processes(h.t) {
		if fields := stat(pid); len(fields) > 3 && fields[3] == strconv.Itoa(h.supervisor) {
			pids = append(pids, pid)
		}
	}
	return pids
}

// gone waits until nothing of the host's helpers is left, and then the namespace
// can be owned by another.
func (h *hostProcess) gone() {
	h.t.Helper()
	eventually(h.t, "all helpers are gone", func() bool { return len(h.session()) == 0 })
	b, err := New(Config{LockDir: h.lock, CacheDir: h.cache, Image: os.Getenv(imageEnv), Engine: testEngine(), Enforcement: enforcement(), Namespace: "hosts"})
	if err != nil {
		h.t.Fatal(err)
	}
	var s sandbox.Sandbox
	eventually(h.t, "the namespace is free", func() bool {
		s, err = b.Acquire(h.t.Context(), key(), spec())
		return !errors.Is(err, sandbox.ErrUnavailable)
	})
	if err != nil {
		h.t.Fatal(err)
	}
	ask(h.t, s)
	if err := b.Close(); err != nil {
		h.t.Error(err)
	}
}

func TestNothingIsLeftOfAHostThatIsKilled(t *testing.T) {
	for duty, word := range map[string]string{"acquire": "begins", "run": "ready", "reset": "ready", "dispose": "ready"} {
		t.Run("during "+duty, func(t *testing.T) {
			h := startHost(t, duty, word)
			if err := h.cmd.Process.Kill(); err != nil {
				t.Fatal(err)
			}
			h.gone()
		})
	}
}

func TestNothingIsLeftOfAHostThatEndsWithoutClosing(t *testing.T) {
	h := startHost(t, "serve", "ready")
	_ = h.in.(io.Closer).Close()
	if err := h.cmd.Wait(); err != nil {
		t.Error(err)
	}
	h.gone()
}

func TestAHostThatIsStoppedForAWhileIsNotDead(t *testing.T) {
	h := startHost(t, "serve", "ready")
	before := h.session()
	if err := h.cmd.Process.Signal(unix.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	pause := 3 * time.Second
	if d, err := time.ParseDuration(os.Getenv("MAF_SANDBOX_STOP")); err == nil {
		pause = d
	}
	time.Sleep(pause) // nothing is to happen in this time
	// A spare worker may have come meanwhile; none may have gone.
	now := h.session()
	for _, pid := range before {
		if !slices.Contains(now, pid) {
			t.Errorf("helpers were %v and are %v", before, now)
		}
	}
	if err := h.cmd.Process.Signal(unix.SIGCONT); err != nil {
		t.Fatal(err)
	}
	_, _ = io.WriteString(h.in, "print('awake')\n")
	if rest := h.hears("awake"); rest != " <nil>" {
		t.Errorf("after the pause: %s", rest)
	}
}

func TestASupervisorThatIsKilledTakesItsWorkersWithIt(t *testing.T) {
	for _, duty := range []string{"acquire", "run", "reset", "dispose"} {
		t.Run("during "+duty, func(t *testing.T) {
			h := startHost(t, duty, map[bool]string{true: "begins", false: "ready"}[duty == "acquire"])
			if err := unix.Kill(h.supervisor, unix.SIGKILL); err != nil {
				t.Fatal(err)
			}
			// The host may have another supervisor by now.
			eventually(t, "its helpers are gone", func() bool { return len(h.session()) == 0 })
			if err := h.cmd.Process.Kill(); err != nil {
				t.Fatal(err)
			}
			h.gone()
		})
	}
}

func TestAHostWithoutDescriptorsSaysSoAndRecovers(t *testing.T) {
	h := startHost(t, "descriptors", "begins")
	if why := h.hears("full: "); !strings.Contains(why, "too many open files") {
		t.Errorf("refused with %q", why)
	}
	if err := h.cmd.Wait(); err != nil {
		t.Error(err)
	}
	h.gone()
}

func TestASecondHostIsRefusedAndToldWhoOwns(t *testing.T) {
	h := startHost(t, "serve", "ready")
	b, err := New(Config{LockDir: h.lock, CacheDir: h.cache, Engine: testEngine(), Enforcement: enforcement(), Namespace: "hosts"})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = b.Close() }()
	_, err = b.Acquire(t.Context(), key(), spec())
	if !errors.Is(err, sandbox.ErrUnavailable) || !strings.Contains(err.Error(), fmt.Sprint("process ", h.cmd.Process.Pid)) {
		t.Errorf("Acquire: %v", err)
	}
	var failure *sandbox.DisposalFailure
	if err := b.Dispose(t.Context(), key(), sandbox.DisposeOptions{}); !errors.As(err, &failure) || failure.Code != sandbox.DisposalUnreachable {
		t.Errorf("Dispose: %v", err)
	}
	if purge := b.DisposeScope(t.Context(), "tenant", "thread"); purge.Undisposed == nil {
		t.Errorf("DisposeScope: %+v", purge)
	}
	_, _ = io.WriteString(h.in, "print('mine')\n")
	if rest := h.hears("mine"); rest != " <nil>" {
		t.Errorf("the owner's sandbox: %s", rest)
	}
}
