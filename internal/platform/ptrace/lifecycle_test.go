//go:build linux && amd64

package ptrace

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/maf-sandbox/maf-sandbox-go/internal/platform"
	"github.com/maf-sandbox/maf-sandbox-go/internal/platform/platformtest"
)

// roleVariable has the test binary be another process.
const roleVariable = "MAF_SANDBOX_PTRACE_TEST"

func TestMain(m *testing.M) {
	var err error
	switch os.Getenv(roleVariable) {
	case "":
		os.Exit(m.Run())
	case "host":
		err = beHost()
	case "user":
		err = beUser()
	default:
		err = errors.New("no such role")
	}
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	os.Exit(0)
}

// role is the test binary in a role.
func role(name string) *exec.Cmd {
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = []string{roleVariable + "=" + name, "TMPDIR=" + os.TempDir()}
	cmd.Stderr = os.Stderr
	return cmd
}

// small makes a machine without any memory file.
func small(p *Platform, code []byte) (*Machine, error) {
	text := platform.Span{Lo: codeAddr, Hi: readOnly, Prot: platform.Read | platform.Exec}
	m, err := p.newMachine(memory{size: readOnly, spans: []platform.Span{text}, fd: -1}, -1, nil)
	if err == nil && !m.Load(codeAddr, code) {
		err = errors.Join(errors.New("not loaded"), m.Close())
	}
	if err == nil {
		m.Regs().RIP = codeAddr
	}
	return m, err
}

// beHost has two guests, one that runs and one that does not, says which they
// are, and waits to be killed.
func beHost() error {
	p, err := New()
	if err != nil {
		return err
	}
	var pids []any
	for range 2 {
		m, err := small(p, []byte{0xEB, 0xFE})
		if err != nil {
			return err
		}
		if pids = append(pids, m.child.pid); len(pids) == 1 {
			go func() { _, _ = m.Run() }()
		}
	}
	fmt.Println(pids...)
	_, err = io.Copy(io.Discard, os.Stdin)
	return err
}

func TestGuestsDieWithTheirHost(t *testing.T) {
	testPlatform(t)
	cmd := role("host")
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = in.Close() }()
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	var fds []unix.PollFd
	for _, f := range strings.Fields(line) {
		pid, err := strconv.Atoi(f)
		if err != nil {
			t.Fatalf("%q", line)
		}
		fd, err := unix.PidfdOpen(pid, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = unix.Close(fd) }()
		fds = append(fds, unix.PollFd{Fd: int32(fd), Events: unix.POLLIN})
	}
	if len(fds) != 2 {
		t.Fatalf("%q", line)
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // it was killed
	for i := range fds {
		// A pidfd can be read when its process has ended.
		n, err := unix.Poll(fds[i:i+1], int(patience/time.Millisecond))
		for errors.Is(err, unix.EINTR) {
			n, err = unix.Poll(fds[i:i+1], int(patience/time.Millisecond))
		}
		if n != 1 || err != nil {
			t.Errorf("guest %d lives on: %v", i, err)
		}
	}
}

// beUser runs a guest and says what it got. It may forbid namespaces first.
func beUser() error {
	if os.Getenv("NONAMESPACES") != "" {
		if err := os.WriteFile("/proc/sys/user/max_user_namespaces", []byte("0"), 0); err != nil {
			return err
		}
		// Nor those for which root needs no user namespace.
		h := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
		runtime.LockOSThread()
		if _, _, e := syscall.AllThreadsSyscall(unix.SYS_PRCTL, unix.PR_SET_NO_NEW_PRIVS, 1, 0); e != 0 {
			return e
		}
		if err := dropOnAllThreads(&h); err != nil {
			return err
		}
	}
	p, err := New()
	if err != nil {
		return err
	}
	m, err := small(p, []byte{0xFF, 0xC0, 0x0F, 0x05})
	if err != nil {
		return err
	}
	m.Regs().RAX = 41
	e, err := m.Run()
	if err != nil || e.Kind != platform.Syscall || m.Regs().RAX != 42 {
		return fmt.Errorf("%+v, %w", e, err)
	}
	why, command := p.Lacks()
	fmt.Printf("%s, %s, %s\n", p.Isolation(), why, command)
	return errors.Join(m.Close(), p.Close())
}

func TestAnOrdinaryUserHasGuests(t *testing.T) {
	testPlatform(t)
	if os.Geteuid() != 0 {
		t.Skip("is one, as all other tests are run by")
	}
	cmd := role("user")
	cmd.Dir = "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	out, err := cmd.Output()
	if rung, _, _ := strings.Cut(string(out), ","); err != nil || rung != "container" && rung != "os_process" {
		t.Errorf("%v: %s", err, out)
	}
	t.Logf("%s", out)
}

// Where namespaces are forbidden guests run all the same, one rung lower, and
// the platform says why.
func TestWithoutNamespacesTheRungIsAProcess(t *testing.T) {
	testPlatform(t)
	cmd := role("user")
	cmd.Env = append(cmd.Env, "NONAMESPACES=1")
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  syscall.CLONE_NEWUSER,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Geteuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getegid(), Size: 1}},
	}
	out, err := cmd.Output()
	if cmd.ProcessState == nil {
		t.Skipf("this host does not permit a user namespace to test in: %v", err)
	}
	if strings.Contains(string(out), syscall.EOPNOTSUPP.Error()) {
		t.Skip("needs a build without cgo, as the race detector's is, to give up rights on all threads")
	}
	if want := "os_process, user.max_user_namespaces is 0, sudo sysctl -w user.max_user_namespaces=10000\n"; err != nil || string(out) != want {
		t.Errorf("%v: %s, want %s", err, out, want)
	}
}

func TestMachinesLeaveNothingBehind(t *testing.T) {
	p := testPlatform(t)
	b, c := platformtest.Template(t, p, platformtest.Dirty)
	round := func() {
		m, err := p.Clone(b, memSize, platformtest.Spans, c)
		if err != nil {
			t.Fatal(err)
		}
		booted, fd, err := p.Boot(memSize, platformtest.Spans, nil)
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(m.Close(), m.Close(), booted.Close(), unix.Close(fd)); err != nil {
			t.Fatal(err)
		}
		m.Interrupt()
		platformtest.WhatCannotBeMade(t, p, b, c)
	}
	round()
	fds, kids, routines := platformtest.OpenDescriptors(t), children(t), runtime.NumGoroutine()
	for range 10 {
		round()
	}
	if n, k := platformtest.OpenDescriptors(t), children(t); n != fds || k != kids {
		t.Errorf("%d descriptors and %d children before; %d and %d after", fds, kids, n, k)
	}
	// A goroutine is counted for a moment after the last that it did.
	for end := time.Now().Add(patience); runtime.NumGoroutine() > routines; runtime.Gosched() {
		if time.Now().After(end) {
			t.Fatalf("%d goroutines before, %d after", routines, runtime.NumGoroutine())
		}
	}
	if len(p.Needs().Children) != kids {
		t.Errorf("the platform knows of %d children, there are %d", len(p.Needs().Children), kids)
	}
}

func TestHalfMadeMachinesAreTakenApart(t *testing.T) {
	platformtest.HalfMadeMachinesAreTakenApart(t, testPlatform(t), 8, func() int { return children(t) })
}

func TestCloseWhileOthersInterrupt(t *testing.T) {
	platformtest.CloseWhileOthersInterrupt(t, testPlatform(t))
}

func TestAGuestThatIsKilledFromOutsideIsAFailedMachine(t *testing.T) {
	p := testPlatform(t)
	b, c := platformtest.Template(t, p, []byte{0xEB, 0xFE})
	for name, end := range map[string]func(g *sync.WaitGroup, m *Machine){
		"while it runs":     func(g *sync.WaitGroup, m *Machine) { g.Go(func() { m.child.signal(unix.SIGKILL) }) },
		"while it does not": func(_ *sync.WaitGroup, m *Machine) { m.child.signal(unix.SIGKILL) },
	} {
		t.Run(name, func(t *testing.T) {
			m := clone(t, p, b, c)
			var g sync.WaitGroup
			end(&g, m)
			if _, err := m.Run(); !errors.Is(err, platform.ErrMachine) {
				t.Errorf("%v", err)
			}
			g.Wait()
			if _, err := m.Revert(c); !errors.Is(err, platform.ErrMachine) {
				t.Errorf("reverted: %v", err)
			}
			if m.CopyIn(make([]byte, 8), dataAddr) || m.CopyOut(dataAddr, make([]byte, 8)) {
				t.Error("its memory is still there")
			}
			m.StartClock(1)
			m.Interrupt()
			if err := m.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}

// A template whose file is cut off while it is in use is an error of its
// machines.
func TestAPageThatTheHostHasLostIsAnErrorOfTheMachine(t *testing.T) {
	p := testPlatform(t)
	b, c := platformtest.Template(t, p, platformtest.Dirty)
	m := clone(t, p, b, c)
	if err := unix.Ftruncate(b.FD, 4096); err != nil {
		t.Fatal(err)
	}
	if _, err := m.Run(); !errors.Is(err, platform.ErrMachine) {
		t.Errorf("run: %v", err)
	}
	if _, err := m.Revert(c); err == nil {
		// Nothing had been changed, so nothing had to be read.
		t.Log("reverted")
	}
}

func TestWhatIsCalledOnTheThreadEndsAsUsual(t *testing.T) {
	m := newGuest(t, []byte{0x0F, 0x05})
	func() {
		defer func() {
			if v := recover(); v != "a panic" {
				t.Errorf("recovered %v", v)
			}
		}()
		m.OnThread(func() { panic("a panic") })
	}()
	inside := false
	m.OnThread(func() {
		m.OnThread(func() { inside = m.thread.here() })
		if e, err := m.Run(); err != nil || e.Kind != platform.Syscall {
			t.Errorf("%+v, %v", e, err)
		}
	})
	if !inside || m.thread.here() {
		t.Error("it was called elsewhere")
	}
	// A caller that ends its goroutine ends, and does not hang.
	other := newGuest(t, nil)
	done := make(chan bool)
	go func() {
		defer close(done)
		other.OnThread(runtime.Goexit)
		done <- true
	}()
	if <-done {
		t.Error("it went on")
	}
}

func TestRefusalsNameWhatIsMissing(t *testing.T) {
	for _, c := range []struct {
		name       string
		err        error
		namespaces bool
		says       string
		refusal    bool
	}{
		{"ptrace", unix.EPERM, false, "to trace a child (ptrace)", true},
		{"exec", unix.EACCES, false, "to execute a program from memory", true},
		{"proc", unix.ENOENT, false, "/proc has to be mounted", true},
		{"processes", unix.EAGAIN, false, "pids.max", true},
		{"namespaces", unix.EPERM, true, "namespaces for a process", true},
		{"too many namespaces", unix.ENOSPC, true, "user.max_*_namespaces", true},
		{"descriptors", unix.EMFILE, true, "too many open files", false},
		{"memory", unix.ENOMEM, false, "cannot allocate memory", false},
	} {
		err := startRefused(c.err, c.namespaces)
		var r *Refusal
		if errors.As(err, &r) != c.refusal || errors.Is(err, platform.ErrUnavailable) != c.refusal || errors.Is(err, platform.ErrMachine) == c.refusal {
			t.Errorf("%s: %T %v", c.name, err, err)
		}
		if !errors.Is(err, c.err) || !strings.Contains(err.Error(), c.says) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v, want %q in it", c.name, err, c.says)
		}
	}
}

// Two programs of one page are the whole of the stub: its tables are where the
// code and the filter say.
func TestTheStubIsOnePageThatHoldsItsParts(t *testing.T) {
	b, err := stubFile()
	if err != nil {
		t.Fatal(err)
	}
	if len(b) != platform.PageSize {
		t.Fatalf("%d bytes", len(b))
	}
	for at, code := range stubCode {
		if got := b[at-stubBase:]; !bytes.HasPrefix(got, code) {
			t.Errorf("at %#x: % x", at, got[:len(code)])
		}
		for other, c := range stubCode {
			if at < other && at+uint64(len(code)) > other || other < at && other+uint64(len(c)) > at {
				t.Errorf("code at %#x and at %#x overlaps", at, other)
			}
		}
	}
	if n := len(filterProgram()); filterAddr+uint64(n)*8 > stubEnd {
		t.Errorf("a filter of %d instructions does not fit", n)
	}
}
