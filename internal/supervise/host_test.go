//go:build linux

package supervise

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/maf-sandbox/maf-sandbox-go/internal/owner"
)

// hostVariable makes the test binary a host that is to be killed: its value is a
// hostConfig. The value "sleep" makes it a process that does nothing.
const hostVariable = "MAF_SANDBOX_SUPERVISE_TEST"

// hostConfig is what a host has its supervisor do.
type hostConfig struct {
	Dir     string // of the lock
	Image   string
	Spare   int
	Root    string // for the enforcers of the tests
	Systemd bool   // a scope of systemd
}

// hostMain starts a supervisor, tells its number, and does what its standard
// input says, line by line.
func hostMain(settings string) {
	if settings == "sleep" {
		forever()
	}
	h := new(hostProcess)
	if err := h.begin(settings); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Println(h.s.cmd.Process.Pid)
	in := bufio.NewScanner(os.Stdin)
	for in.Scan() {
		said, err := h.do(in.Text())
		if err != nil {
			said = "error: " + strings.ReplaceAll(err.Error(), "\n", "; ")
		}
		fmt.Println(said)
	}
	forever()
}

type hostProcess struct {
	lock    *owner.Lock
	s       *Supervisor
	workers []*Worker
}

func (h *hostProcess) begin(settings string) (err error) {
	var c hostConfig
	if err := json.Unmarshal([]byte(settings), &c); err != nil {
		return err
	}
	if h.lock, err = owner.Acquire(c.Dir, "shared"); err != nil {
		return err
	}
	k := config(h.lock.File())
	k.Spare, k.Start.Image = c.Spare, c.Image
	if c.Root != "" {
		k.Limits.Enforcement, k.Limits.Root = Cgroup, c.Root
	}
	if c.Systemd {
		k.Limits.Enforcement = Systemd
	}
	h.s, err = Start(k)
	return err
}

func (h *hostProcess) do(command string) (string, error) {
	ctx := context.Background()
	switch command {
	case "acquire":
		w, err := h.s.Acquire(ctx)
		if err != nil {
			return "", err
		}
		h.workers = append(h.workers, w)
		return w.Ready.Isolation, nil
	case "begin to acquire":
		go func() { _, _ = h.s.Acquire(ctx) }()
	case "begin to release":
		go func() { _ = h.workers[0].Release(ctx) }()
	case "begin to close":
		go func() { _ = h.s.Close(ctx) }()
	case "release":
		return "released", h.workers[0].Release(ctx)
	case "echo":
		return "echoed", echo(h.workers[0])
	case "cycle":
		return "cycling", h.cycle(ctx)
	case "await the supervisor's end":
		<-h.s.Done()
		for _, w := range h.workers {
			if err := w.Release(ctx); err != nil {
				return "", err
			}
		}
		return "ended", nil
	case "exit":
		os.Exit(0)
	default:
		return "", errors.New("unknown command")
	}
	return "begun", nil
}

// cycle acquires, uses and releases from now on, and returns when that goes
// well.
func (h *hostProcess) cycle(ctx context.Context) error {
	const loops, enough = 4, 20
	var n atomic.Int32
	going := make(chan error, loops)
	for range loops {
		go func() {
			for {
				w, err := h.s.Acquire(ctx)
				if err == nil {
					err = errors.Join(echo(w), w.Release(ctx))
				}
				if n := n.Add(1); n == enough || err != nil {
					going <- err
				}
				if err != nil {
					return
				}
			}
		}()
	}
	return <-going
}

func echo(w *Worker) error {
	if _, err := w.Conn.Write([]byte{1}); err != nil {
		return err
	}
	_, err := w.Conn.Read(make([]byte, 1))
	return err
}

// host is a process that has a supervisor.
type host struct {
	cmd        *exec.Cmd
	in         *os.File
	out        *bufio.Reader
	home       string // the value of HOME in all its processes
	pid        int    // the supervisor's
	process    watched
	supervisor watched
	workers    []watched
}

func startHost(t *testing.T, c hostConfig) *host {
	t.Helper()
	settings, err := json.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	h := &host{cmd: exec.Command("/proc/self/exe"), home: t.TempDir()}
	h.cmd.Env = append(os.Environ(), hostVariable+"="+string(settings), "HOME="+h.home)
	h.cmd.Stderr = os.Stderr
	in, h2, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	h.cmd.Stdin, h.in = in, h2
	out, err := h.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := h.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = h.cmd.Process.Kill()
		_ = h.cmd.Wait()
		_ = errors.Join(in.Close(), h2.Close())
		eventually(t, "no process of the host's", func() bool { return len(withHome(t, h.home)) == 0 })
	})
	h.out = bufio.NewReader(out)
	if h.pid, err = strconv.Atoi(h.says(t)); err != nil {
		t.Fatal(err)
	}
	h.process, h.supervisor = watch(t, h.cmd.Process.Pid), watch(t, h.pid)
	return h
}

func (h *host) says(t *testing.T) string {
	t.Helper()
	line, err := h.out.ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(line)
}

// do has the host do something and gives what it says then.
func (h *host) do(t *testing.T, command string) string {
	t.Helper()
	if _, err := h.in.WriteString(command + "\n"); err != nil {
		t.Fatal(err)
	}
	said := h.says(t)
	if strings.HasPrefix(said, "error") {
		t.Fatalf("%s: %s", command, said)
	}
	return said
}

// acquire has the host acquire workers.
func (h *host) acquire(t *testing.T, n int) {
	t.Helper()
	for range n {
		h.workers = append(h.workers, watch(t, parse(t, h.do(t, "acquire")).PID))
	}
}

// kill kills the host and waits for it.
func (h *host) kill(t *testing.T) {
	t.Helper()
	h.process.signal(t, unix.SIGKILL)
	_ = h.cmd.Wait()
}

// withHome are the processes with that value of HOME, whatever session they are
// in and whose child they are. Those that end have no environment any more,
// though for a moment still their files.
func withHome(t *testing.T, home string) (pids []int) {
	t.Helper()
	entries, err := os.ReadDir("/proc")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		b, err := os.ReadFile("/proc/" + e.Name() + "/environ")
		if err == nil && strings.Contains("\x00"+string(b), "\x00HOME="+home+"\x00") {
			pids = append(pids, pid)
		}
	}
	return pids
}
