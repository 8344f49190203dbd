//go:build linux && amd64

package jail_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/maf-sandbox/maf-sandbox-go/internal/engine"
	"github.com/maf-sandbox/maf-sandbox-go/internal/image"
	"github.com/maf-sandbox/maf-sandbox-go/internal/jail"
	"github.com/maf-sandbox/maf-sandbox-go/internal/platform/host"
	"github.com/maf-sandbox/maf-sandbox-go/internal/tools/testvm/expect"
)

// runLife is a legitimate worker.
func runLife(arg string) {
	life, arg, _ := strings.Cut(arg, ":")
	err := errors.New("no such life")
	switch life {
	case "go":
		err = lifeOfGo()
	case "engine":
		err = lifeOfEngine(arg)
	case "panic":
		enterOrDie(jail.Spec{Keep: []int{2}})
		panic("in the jail")
	case "threads":
		err = lifeOfThreads()
	case "descriptors":
		err = lifeOfDescriptors()
	case "limits":
		err = lifeOfLimits()
	case "crowd":
		err = lifeOfACrowd()
	}
	if err != nil {
		say(err.Error())
		os.Exit(1)
	}
	say("ok")
	os.Exit(0)
}

func live(t *testing.T, life string) {
	t.Helper()
	cmd, out := child(t, "life:"+life)
	if status := ending(t, cmd); status != 0 || out.String() != "ok" {
		t.Fatalf("ended with %#x and said %q", uint32(status), out)
	}
}

func TestGoProgramLivesInTheJail(t *testing.T) { live(t, "go") }

// lifeOfGo uses what the Go runtime does by itself.
func lifeOfGo() error {
	enterOrDie(jail.Spec{Keep: []int{1, 2, keptSocket}})
	// Threads that come and go, each with work and a sleep.
	var group sync.WaitGroup
	for range 32 {
		group.Go(func() {
			runtime.LockOSThread() // not unlocked: the thread ends with it
			b := make([]byte, 64<<10)
			_, _ = rand.Read(b)
			time.Sleep(time.Millisecond)
		})
	}
	group.Wait()
	// Memory that grows, and is collected and given back.
	var all [][]byte
	for range 64 {
		all = append(all, bytes.Repeat([]byte{1}, 1<<20))
	}
	runtime.KeepAlive(all)
	runtime.GC()
	// Pre-emption of a loop without calls.
	stop := time.Now().Add(50 * time.Millisecond)
	go func() {
		for i := 0; ; i++ {
			_ = i
		}
	}()
	for time.Now().Before(stop) {
		runtime.Gosched()
	}
	// A panic, with its traceback.
	func() {
		defer func() { _ = recover() }()
		nothing := map[string]*int{}
		*nothing["x"] = 1 // a fault, which the runtime turns into a panic
	}()
	// The socket, by the network poller: the other end is this process's, too.
	if err := unix.SetNonblock(keptSocket, true); err != nil {
		return err
	}
	f := os.NewFile(keptSocket, "socket")
	if err := f.SetDeadline(time.Now().Add(time.Millisecond)); err != nil {
		return err
	}
	if _, err := f.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
		return fmt.Errorf("read until a deadline: %w", err)
	}
	if err := f.SetDeadline(time.Time{}); err != nil {
		return err
	}
	if _, err := f.WriteString("x"); err != nil {
		return err
	}
	return f.Close()
}

func TestPanicInTheJailIsReported(t *testing.T) {
	cmd, _ := child(t, "life:panic")
	var said bytes.Buffer
	cmd.Stderr = &said
	if status := ending(t, cmd); status.ExitStatus() != 2 || !strings.Contains(said.String(), "panic: in the jail") || !strings.Contains(said.String(), "life_test.go") {
		t.Errorf("ended with %#x and said %q", uint32(status), &said)
	}
}

func TestGuestLivesInTheJail(t *testing.T) {
	for _, name := range []string{host.KVM, host.Ptrace} {
		t.Run(name, func(t *testing.T) {
			p, _, err := host.Open(name)
			if err != nil {
				expect.KVM.Skip(t, "needs engine %s: %v", name, err)
			}
			_ = p.Close()
			guestLives(t, name)
		})
	}
}

func guestLives(t *testing.T, name string) {
	t.Helper()
	dir := t.TempDir()
	imagePath := os.Getenv("MAF_SANDBOX_TEST_IMAGE")
	if imagePath == "" {
		s, err := image.OpenStore(filepath.Join(dir, "images"))
		if err != nil {
			t.Fatal(err)
		}
		info, err := s.Build(context.Background(), image.Options{}, "jail")
		if errors.Is(err, image.ErrNoPython) {
			t.Skipf("needs a Python: %v", err)
		}
		if err != nil {
			t.Fatal(err)
		}
		if imagePath, err = s.Resolve(info.ID); err != nil {
			t.Fatal(err)
		}
	}
	live(t, "engine:"+name+":"+imagePath+":"+filepath.Join(dir, "templates"))
}

// lifeOfEngine makes a machine, enters the jail, and uses the machine in every
// way.
func lifeOfEngine(arg string) error {
	name, arg, _ := strings.Cut(arg, ":")
	imagePath, cache, _ := strings.Cut(arg, ":")
	ctx := context.Background()
	p, _, err := host.Open(name)
	if err != nil {
		return err
	}
	tm, err := engine.Open(ctx, engine.Config{Image: imagePath, Cache: cache, Platform: p, Grace: 20 * time.Second})
	if err != nil {
		return err
	}
	tm.Sync()
	vm, err := tm.New(ctx)
	if err != nil {
		return err
	}
	fds, err := jail.Descriptors()
	if err != nil {
		return err
	}
	spec := jail.Spec{Keep: fds, Ioctls: p.Needs().Ioctls}
	for _, c := range p.Needs().Children {
		spec.Trace = append(spec.Trace, jail.Tracee(c))
	}
	enterOrDie(spec)

	expect := func(code, want string) error {
		r, err := vm.Run(ctx, engine.Request{Code: []byte(code)})
		if err != nil || string(r.Stdout) != want {
			return fmt.Errorf("%q: %w, stdout %q, stderr %q", code, err, r.Stdout, r.Stderr)
		}
		return nil
	}
	for _, step := range []struct{ code, want string }{
		{"print(6*7)", "42\n"},
		// Modules that were not in the template are read from the image now.
		{"import json, decimal; print(json.dumps([str(decimal.Decimal('1.1') * 2)]))", "[\"2.2\"]\n"},
		{"open('x', 'w').write('y'); print(open('x').read())", "y\n"},
		{"b = bytearray(64 << 20); b[::4096] = b'x' * len(b[::4096]); print(len(b))", "67108864\n"},
		{"import time, threading; t = threading.Thread(target=time.sleep, args=(0.01,)); t.start(); t.join(); print('t')", "t\n"},
		{"import uuid; print(len(uuid.uuid4().hex), time.time() > 1e9)", "32 True\n"},
	} {
		if err := expect(step.code, step.want); err != nil {
			return err
		}
	}
	// Resets of both kinds: few pages, and more than are copied back.
	for range 3 {
		if err := vm.Reset(ctx); err != nil {
			return err
		}
		if err := expect("print('b' in globals())", "False\n"); err != nil {
			return err
		}
	}
	_, err = vm.Run(ctx, engine.Request{Code: []byte("while True: pass"), Timeout: time.Second})
	if !errors.Is(err, engine.ErrTimeout) {
		return fmt.Errorf("soft time limit: %w", err)
	}
	if err := expect("print('still here')", "still here\n"); err != nil {
		return err
	}
	canceled, cancel := context.WithCancel(ctx)
	defer cancel()
	// Not before the program has begun, which takes its time in emulation.
	begun := engine.Request{Code: []byte("print('begun')\nwhile True: pass"), Live: true, Stdout: onWrite(cancel)}
	if _, err = vm.Run(canceled, begun); !errors.Is(err, engine.ErrCanceled) {
		return fmt.Errorf("cancellation: %w", err)
	}
	_, err = vm.Run(ctx, engine.Request{Code: []byte("print('x' * (2 << 20))")})
	if !errors.Is(err, engine.ErrOutputLimit) {
		return fmt.Errorf("output limit: %w", err)
	}
	return vm.Close()
}

// onWrite is a writer that only tells that something was written.
type onWrite func()

func (f onWrite) Write(b []byte) (int, error) {
	f()
	return len(b), nil
}

func TestEveryThreadIsJailed(t *testing.T) {
	cmd, _ := child(t, "life:threads")
	cmd.Stdout = nil
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(out, make([]byte, len("ready"))); err != nil {
		t.Fatal(err)
	}
	tasks, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/status", cmd.Process.Pid))
	if err != nil || len(tasks) < 16 {
		t.Fatalf("%d threads, %v", len(tasks), err)
	}
	want := []string{"NoNewPrivs:\t1", "Seccomp:\t2", "CapInh:\t" + none, "CapPrm:\t" + none, "CapEff:\t" + none, "CapAmb:\t" + none}
	if os.Geteuid() == 0 {
		want = append(want, "CapBnd:\t"+none)
	}
	for _, task := range tasks {
		b, err := os.ReadFile(task)
		if err != nil {
			t.Fatal(err)
		}
		for _, w := range want {
			if !slices.Contains(strings.Split(string(b), "\n"), w) {
				t.Errorf("%s: no line %q in\n%s", task, w, b)
			}
		}
	}
	if err := in.Close(); err != nil {
		t.Fatal(err)
	}
	rest, err := io.ReadAll(out)
	if status := ending(t, cmd); status != 0 || string(rest) != "ok" || err != nil {
		t.Fatalf("ended with %#x and said %q, %v", uint32(status), rest, err)
	}
}

const none = "0000000000000000"

// lifeOfThreads has threads from before the jail and from within.
func lifeOfThreads() error {
	hold := make(chan struct{})
	var up sync.WaitGroup
	threads := func() {
		for range 8 {
			up.Add(1)
			go func() {
				runtime.LockOSThread()
				up.Done()
				<-hold
			}()
		}
		up.Wait()
	}
	threads()
	enterOrDie(jail.Spec{Keep: []int{0, 1, 2}})
	threads()
	say("ready")
	_, err := syscall.Read(0, make([]byte, 1)) // until the parent has looked
	return err
}

func TestOnlyKeptDescriptorsStayOpen(t *testing.T) { live(t, "descriptors") }

func lifeOfDescriptors() error {
	var fds []int
	for range 20 {
		fd, err := unix.Open("/dev/null", unix.O_RDONLY, 0)
		if err != nil {
			return err
		}
		fds = append(fds, fd)
	}
	// An inherited poller would have a hold on descriptors of others.
	foreign, err := unix.EpollCreate1(0)
	if err != nil {
		return err
	}
	keep := []int{2, fds[7], fds[3], 1, 2}
	r := enterOrDie(jail.Spec{Keep: keep})
	if len(r.Runtime) != 2 {
		return fmt.Errorf("kept %v for the runtime", r.Runtime)
	}
	want := slices.Concat(keep, r.Runtime)
	for fd := range foreign + 100 {
		_, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0)
		if (err == nil) != slices.Contains(want, fd) {
			return fmt.Errorf("descriptor %d: %w", fd, err)
		}
	}
	return nil
}

func TestDataLimitHolds(t *testing.T) { live(t, "limits") }

func lifeOfLimits() error {
	const limit = 1 << 30
	abi := landlockABI()
	r := enterOrDie(jail.Spec{Keep: []int{1, 2}, DataLimit: limit})
	if r.Landlock != min(abi, 11) || !strings.Contains(r.String(), "seccomp") {
		return fmt.Errorf("report: %s", r)
	}
	b, err := unix.Mmap(-1, 0, limit/4, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		return fmt.Errorf("map a quarter of the limit: %w", err)
	}
	if err := unix.Munmap(b); err != nil {
		return err
	}
	if _, err := unix.Mmap(-1, 0, limit+4096, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON); !errors.Is(err, unix.ENOMEM) {
		return fmt.Errorf("map more than the limit: %w", err)
	}
	return nil
}

// crowd is the limit of processes that a worker has before it is jailed.
const crowd = 160

func TestThreadsWithoutEndLeaveTheUserAReserve(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root, to be a user who has no other processes")
	}
	cmd, out := child(t, "life:crowd")
	var said bytes.Buffer
	cmd.Stderr = &said
	const nobodyElse = 61234
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobodyElse, Gid: nobodyElse}}
	// The runtime's words, without cgo and with it.
	if status := ending(t, cmd); status.ExitStatus() != 2 ||
		!strings.Contains(said.String(), "failed to create new OS thread") && !strings.Contains(said.String(), "pthread_create failed") {
		t.Fatalf("ended with %#x and said %.500s", uint32(status), &said)
	}
	if n := out.Len(); n > crowd-crowd/8 || n < crowd/2 {
		t.Errorf("there were %d threads and the runtime's, of %d that the user may have", n, crowd)
	}
}

// lifeOfACrowd makes threads until it dies of it.
func lifeOfACrowd() error {
	lim := unix.Rlimit{Cur: crowd, Max: crowd}
	if err := unix.Prlimit(0, unix.RLIMIT_NPROC, &lim, nil); err != nil {
		return err
	}
	enterOrDie(jail.Spec{Keep: []int{1, 2}})
	for range 2 * crowd {
		go func() {
			runtime.LockOSThread()
			say(".") // one for each thread
			select {}
		}()
	}
	time.Sleep(hang) // the runtime's end is this process's
	return nil
}
