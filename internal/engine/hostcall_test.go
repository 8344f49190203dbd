//go:build linux && amd64

package engine_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/maf-sandbox/maf-sandbox-go/internal/engine"
)

// runWith runs code with a host.
func runWith(vm *engine.VM, code string, host engine.HostFunc) (engine.Result, error) {
	return vm.Run(context.Background(), engine.Request{Code: []byte("from _maf_host import call\n" + code), Timeout: patience(time.Minute), Host: host})
}

// outputWith runs code with a host and expects exit 0 and a standard output.
func outputWith(t testing.TB, vm *engine.VM, code, want string, host engine.HostFunc) {
	t.Helper()
	res, err := runWith(vm, code, host)
	if err != nil || res.ExitCode != 0 || string(res.Stdout) != want {
		t.Fatalf("run %.300q: %v, exit %d, stdout %.2000q, want %q\nstderr %.3000s", code, err, res.ExitCode, res.Stdout, want, res.Stderr)
	}
}

// stillUsable expects an error of a kind after which the machine goes on.
func stillUsable(t *testing.T, vm *engine.VM, res engine.Result, err, kind error) {
	t.Helper()
	var e *engine.Error
	if !errors.Is(err, kind) || !errors.As(err, &e) || !e.Usable {
		t.Fatalf("%v, want %v; stderr %q", err, kind, res.Stderr)
	}
	if !strings.Contains(string(res.Stderr), "KeyboardInterrupt") {
		t.Errorf("stderr %q", res.Stderr)
	}
	output(t, vm, "print(6*7)", "42\n")
}

// manners is a host with functions of all kinds.
func manners(_ context.Context, name string, request []byte) ([]byte, error) {
	switch name {
	case "echo", "écho":
		return request, nil
	case "large":
		return bytes.Repeat([]byte("L"), engine.MaxHostBytes), nil
	case "too large":
		return make([]byte, engine.MaxHostBytes+1), nil
	case "fail":
		return []byte("ignored"), errors.New("it broke\xff")
	case "panic":
		panic("a mistake of the host's")
	case "full":
		return nil, engine.ErrNoRoom
	}
	return nil, fmt.Errorf("%q: %w", name, engine.ErrNotOffered)
}

func TestAProgramCallsTheHost(t *testing.T) {
	vm := machine(t, template(t, nil))
	for name, c := range map[string]struct{ code, want string }{
		"bytes come back":    {"print(call('echo', b'hi'), call('echo'), call('écho', b'\\0\\xff'))", "b'hi' b'' b'\\x00\\xff'\n"},
		"whatever has bytes": {"import array\nprint(call('echo', bytearray(b'a')), call('echo', memoryview(b'abc')[1:]), len(call('echo', array.array('i', [1]))))", "b'a' b'bc' 4\n"},
		"every size": {`
import os
for n in 1, 65535, 65536, 65537, 1 << 20, (8 << 20) + (68 << 10):
    b = os.urandom(1000) * (n // 1000 + 1)
    assert call('echo', b[:n]) == b[:n], n
b = None
print('same')`, "same\n"},
		"a request that is too large": {"try: call('echo', bytes((8 << 20) + (68 << 10) + 1))\nexcept OSError as e: print(e)", "[Errno 90] echo: the request is larger than a call to the host can carry\n"},
		"a large reply":               {"b = call('large'); print(len(b) == (8 << 20) + (68 << 10), b.count(b'L') == len(b))", "True True\n"},
		"a reply that is too large":   {"try: call('too large')\nexcept OSError as e: print(e)", "[Errno 121] too large: the host's reply is too large\n"},
		"an error of the host's":      {"try: call('fail')\nexcept OSError as e: print(e.errno, ascii(str(e)))", "121 '[Errno 121] fail: it broke\\ufffd'\n"},
		"a panic of the host's":       {"try: call('panic')\nexcept OSError as e: print(e)", "[Errno 121] panic: the function failed in the host\n"},
		"a host without room":         {"try: call('full')\nexcept OSError as e: print(e)", "[Errno 105] full: the host has no room for the request beside those of others; try again later\n"},
		"an unknown name":             {"try: call('nothing')\nexcept OSError as e: print(e)", "[Errno 38] this sandbox does not offer nothing\n"},
		"a long name":                 {"try: call('n' * 256)\nexcept OSError as e: print(e)", "[Errno 22] " + strings.Repeat("n", 80) + "...: the name of a call to the host is too long\n"},
		"text instead of bytes":       {"try: call('echo', 'text')\nexcept TypeError: print('TypeError')", "TypeError\n"},
		"thousands of calls":          {"print(sum(call('echo', b'%d' % i) == b'%d' % i for i in range(2000)))", "2000\n"},
	} {
		t.Run(name, func(t *testing.T) { outputWith(t, vm, c.code, c.want, manners) })
	}
}

func TestWithoutAHostACallIsAnOrdinaryException(t *testing.T) {
	vm := machine(t, template(t, nil))
	const code = "try: call('echo')\nexcept OSError as e: print(e)"
	const want = "[Errno 38] this sandbox does not offer echo\n"
	outputWith(t, vm, code, want, nil)
	outputWith(t, vm, "print(call('echo', b'x'))", "b'x'\n", manners)
	outputWith(t, vm, code, want, nil)
}

func TestThreadsCallTheHostAtOnceWhileOthersGoOn(t *testing.T) {
	vm := machine(t, template(t, nil))
	both := make(chan struct{}, 2)
	host := func(ctx context.Context, name string, request []byte) ([]byte, error) {
		switch name {
		case "meet": // returns when there are two
			select {
			case both <- struct{}{}:
			case <-both:
			}
		case "hold": // until the other thread lets go
			select {
			case <-both:
			case <-ctx.Done():
			}
		case "release":
			both <- struct{}{}
		}
		return append([]byte("to "), request...), nil
	}
	both = make(chan struct{})
	outputWith(t, vm, `
from concurrent.futures import ThreadPoolExecutor
with ThreadPoolExecutor(2) as ex:
    print(list(ex.map(lambda i: call('meet', b'%d' % i), range(2))))`, "[b'to 0', b'to 1']\n", host)
	outputWith(t, vm, `
import threading
t = threading.Thread(target=lambda: print(call('hold', b'thread'))); t.start()
n = sum(range(100000))
call('release')
t.join(); print(n)`, "b'to thread'\n4999950000\n", host)
	outputWith(t, vm, `
import asyncio
async def main():
    held = asyncio.ensure_future(asyncio.get_running_loop().run_in_executor(None, call, 'hold', b'task'))
    for _ in range(100): await asyncio.sleep(0)
    call('release')
    print(await held)
asyncio.run(main())`, "b'to task'\n", host)
}

func TestCallsBeyondTheBoundWaitForTheirTurn(t *testing.T) {
	vm := machine(t, template(t, nil))
	var mu sync.Mutex
	now, most := 0, 0
	full := make(chan struct{})
	host := func(context.Context, string, []byte) ([]byte, error) {
		mu.Lock()
		now++
		if most = max(most, now); now == engine.MaxHostCalls {
			select {
			case <-full:
			default:
				close(full)
			}
		}
		mu.Unlock()
		<-full
		mu.Lock()
		now--
		mu.Unlock()
		return nil, nil
	}
	outputWith(t, vm, `
from concurrent.futures import ThreadPoolExecutor
with ThreadPoolExecutor(40) as ex: print(len(list(ex.map(call, ['x'] * 100))))`, "100\n", host)
	if most != engine.MaxHostCalls {
		t.Errorf("%d calls at once", most)
	}
}

func TestAThreadThatWaitsForTheHostIsNoDeadlock(t *testing.T) {
	vm := machine(t, template(t, nil))
	host := func(context.Context, string, []byte) ([]byte, error) {
		time.Sleep(20 * time.Millisecond) // in which nothing in the guest can happen
		return []byte("x"), nil
	}
	outputWith(t, vm, "import threading\nt = threading.Thread(target=call, args=['x']); t.start(); t.join()\nprint(call('x'))", "b'x'\n", host)
	res, err := runWith(vm, "call('x')\nimport threading; threading.Event().wait()", host)
	stillUsable(t, vm, res, err, engine.ErrDeadlock)
}

// patient is a host that waits for the end of the run; entered hears of each call.
func patient(entered chan<- struct{}) engine.HostFunc {
	return func(ctx context.Context, _ string, _ []byte) ([]byte, error) {
		entered <- struct{}{}
		<-ctx.Done()
		return nil, ctx.Err()
	}
}

func TestACallToTheHostIsInterrupted(t *testing.T) {
	tm := template(t, nil)
	for name, c := range map[string]struct {
		code    string
		timeout time.Duration
		cancel  bool
		want    error
	}{
		"at the deadline":     {"call('x')", patience(200 * time.Millisecond), false, engine.ErrTimeout},
		"when it is canceled": {"call('x')", time.Minute, true, engine.ErrCanceled},
		"in a program with threads": {
			"import threading\nt = threading.Thread(target=call, args=['x'], daemon=True); t.start()\ncall('y')", time.Minute, true, engine.ErrCanceled,
		},
		"and so is the next one": {"try: call('x')\nexcept OSError: pass\nexcept KeyboardInterrupt: call('y')", time.Minute, true, engine.ErrCanceled},
		"at too much output": {
			"import threading\ndef f():\n    while True: print('x' * 1000)\nt = threading.Thread(target=f, daemon=True); t.start()\ntry: call('x')\nfinally:\n    f = None", time.Minute, false, engine.ErrOutputLimit,
		},
	} {
		t.Run(name, func(t *testing.T) {
			vm := machine(t, tm)
			before := count(t)
			entered := make(chan struct{}, 2)
			ctx, cancel := context.WithCancel(context.Background())
			defer cancel()
			if c.cancel {
				go func() { <-entered; cancel() }()
			}
			res, err := vm.Run(ctx, engine.Request{
				Code: []byte("from _maf_host import call\n" + c.code), Timeout: c.timeout, MaxOutput: 1 << 16, Host: patient(entered),
			})
			var e *engine.Error
			if !errors.Is(err, c.want) || !errors.As(err, &e) {
				t.Fatalf("%v, want %v; stderr %q", err, c.want, res.Stderr)
			}
			if c.want == engine.ErrOutputLimit {
				// Its other thread prints on.
				reset(t, vm)
			} else if !e.Usable || !strings.Contains(string(res.Stderr), "KeyboardInterrupt") && !strings.Contains(c.code, "except") {
				t.Errorf("%v; stderr %q", err, res.Stderr)
			}
			output(t, vm, "print(6*7)", "42\n")
			settles(t, before)
		})
	}
}

func TestAHostThatDoesNotListenToTheEndIsLeftBehind(t *testing.T) {
	vm := machine(t, template(t, nil))
	release, returned := make(chan struct{}), make(chan struct{}, engine.MaxHostCalls)
	entered := make(chan struct{})
	deaf := func(context.Context, string, []byte) ([]byte, error) {
		entered <- struct{}{}
		<-release
		defer func() { returned <- struct{}{} }()
		return []byte("late"), nil
	}
	for i := range engine.MaxHostCalls {
		ctx, cancel := context.WithCancel(context.Background())
		go func() { <-entered; cancel() }()
		res, err := vm.Run(ctx, engine.Request{Code: []byte("from _maf_host import call\ncall('x')"), Host: deaf})
		stillUsable(t, vm, res, err, engine.ErrCanceled)
		if i%4 == 3 {
			reset(t, vm)
		}
	}
	// They still count: a further one is not begun before one has returned.
	res, err := vm.Run(context.Background(), engine.Request{
		Code: []byte("from _maf_host import call\ncall('x')"), Timeout: patience(100 * time.Millisecond), Host: manners,
	})
	stillUsable(t, vm, res, err, engine.ErrTimeout)
	close(release)
	for range engine.MaxHostCalls {
		<-returned
	}
	outputWith(t, vm, "print(call('echo', b'x'))", "b'x'\n", manners)
}

// ringing sends the program SIGALRM as soon as its main thread hangs in a call.
const ringing = `
import os, signal, threading
def ring():
    call('until it hangs')
    os.kill(os.getpid(), signal.SIGALRM)
threading.Thread(target=ring).start()
`

func TestASignalDoesNotMakeACallTwice(t *testing.T) {
	vm := machine(t, template(t, nil))
	hangs, rang, dropped := make(chan struct{}, 1), make(chan struct{}, 1), make(chan struct{}, 1)
	heard := 0
	host := func(ctx context.Context, name string, _ []byte) ([]byte, error) {
		switch name {
		case "until it hangs":
			<-hangs
		case "rang":
			rang <- struct{}{}
		case "until it rang":
			heard++
			hangs <- struct{}{}
			<-rang
		case "until it is dropped":
			hangs <- struct{}{}
			<-ctx.Done()
			dropped <- struct{}{}
		}
		return []byte(name), nil
	}
	outputWith(t, vm, "import signal\nsignal.signal(signal.SIGALRM, lambda *_: call('rang'))"+ringing+"print(call('until it rang'))", "b'until it rang'\n", host)
	if heard != 1 {
		t.Errorf("the host heard it %d times", heard)
	}
	outputWith(t, vm, `
def handle(*_): raise TimeoutError('rang')
signal.signal(signal.SIGALRM, handle)
`+ringing+`
try: call('until it is dropped')
except TimeoutError as e: print(e)
print(call('next'))`, "rang\nb'next'\n", host)
	<-dropped
}

func TestCallsEndWithTheirRun(t *testing.T) {
	tm := template(t, nil)
	for name, end := range map[string]func(vm *engine.VM){
		"and the next run hears of it": func(vm *engine.VM) {
			output(t, vm, "t.join(); print(got)", "['[Errno 125] hang: the run in which the host was called is over']\n")
		},
		"and a reset forgets them": func(vm *engine.VM) {
			reset(t, vm)
			if err := vm.Verify(); err != nil {
				t.Error(err)
			}
			output(t, vm, "import threading; print(threading.active_count())", "1\n")
		},
	} {
		t.Run(name, func(t *testing.T) {
			vm := machine(t, tm)
			before := count(t)
			hung, ended := make(chan struct{}), make(chan struct{})
			outputWith(t, vm, `
import threading
got = []
def hang():
    try: got.append(call('hang'))
    except OSError as e: got.append(str(e))
t = threading.Thread(target=hang); t.start()
call('until it hangs')`, "", func(ctx context.Context, name string, _ []byte) ([]byte, error) {
				if name == "hang" {
					close(hung)
					<-ctx.Done()
					close(ended)
				} else {
					<-hung
				}
				return []byte("late"), nil
			})
			<-ended
			end(vm)
			settles(t, before)
		})
	}
}

func TestAGuestThatForgesCallsHurtsItselfOnly(t *testing.T) {
	vm := machine(t, template(t, nil))
	outputWith(t, vm, `
import os
CALL = (1 << 20) + 5
def bad(*a):
    try: return os.preadv(CALL, *a)
    except OSError as e: return -e.errno
b = bytearray(8)
print(bad([b], 1), bad([b, b, b], 1 << 62), bad([b] * 4, 1), bad([b, b, bytearray()], 5), bad([b, b, bytearray()], 5), bad([b, b, b], 5))
print(os.write(CALL, bytes(8)), bad([bytearray(b'echo'), b, b], 7), bad([bytearray(b'\xff\0'), b, b], 7))`,
		"-22 -38 -22 -38 -38 -38\n8 8 -38\n", manners)
	outputWith(t, vm, "print(bad([bytearray(b'echo'), b, bytearray()], 9), bad([b, b, bytearray(8)], 9))", "8 8\n", manners)
	// A call that is left in the air ends with its run.
	hangs := make(chan struct{}, 1)
	outputWith(t, vm, "import signal\ndef handle(*_): raise TimeoutError\nsignal.signal(signal.SIGALRM, handle)"+ringing+`
try: os.preadv(CALL, [bytearray(b'x'), b, b], 1 << 40)
except TimeoutError: print('left')`, "left\n", func(ctx context.Context, name string, _ []byte) ([]byte, error) {
		if name == "x" {
			hangs <- struct{}{}
			<-ctx.Done()
		} else {
			<-hangs
		}
		return nil, ctx.Err()
	})
	outputWith(t, vm, "print(bad([bytearray(b'echo'), bytearray(b'new'), b], 1 << 40), bytes(b[:3]))", "3 b'new'\n", manners)
}

func BenchmarkHostCall(b *testing.B) {
	for _, size := range []int{10, 15 << 10, 1 << 20} {
		b.Run(fmt.Sprint(size), func(b *testing.B) {
			vm := machine(b, template(b, nil))
			outputWith(b, vm, fmt.Sprintf("p = bytes(%d)\nfor i in range(100): call('echo', p)", size), "", manners)
			b.ResetTimer()
			outputWith(b, vm, fmt.Sprintf("for i in range(%d): call('echo', p)", b.N), "", manners)
		})
	}
}
