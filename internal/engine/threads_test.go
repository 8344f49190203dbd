//go:build linux && amd64

package engine_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/maf-sandbox/maf-sandbox-go/internal/engine"
)

func TestThreadsGiveTheRightAnswers(t *testing.T) {
	tm := template(t, nil)
	for name, c := range map[string]struct{ code, want string }{
		"start and join": {`
import threading
t = threading.Thread(target=print, args=('t',)); t.start(); t.join()
print(threading.active_count())`, "t\n1\n"},
		"a lock guards a count": {`
import threading, sys
sys.setswitchinterval(1e-5)
n, lock = 0, threading.Lock()
def add():
    global n
    for _ in range(2000):
        with lock: n += 1
ts = [threading.Thread(target=add) for _ in range(5)]
for t in ts: t.start()
for t in ts: t.join()
print(n)`, "10000\n"},
		"a queue feeds workers": {`
import queue, threading
q, out = queue.Queue(3), []
def work():
    while (x := q.get()) is not None: out.append(x * x)
ts = [threading.Thread(target=work) for _ in range(3)]
for t in ts: t.start()
for i in range(500): q.put(i)
for _ in ts: q.put(None)
for t in ts: t.join()
print(sum(out), len(out))`, "41541750 500\n"},
		"a pool of threads": {`
from concurrent.futures import ThreadPoolExecutor, as_completed
with ThreadPoolExecutor(4) as ex:
    print(list(ex.map(pow, range(5), range(5))))
    print(sorted(f.result() for f in as_completed([ex.submit(sum, range(n)) for n in (10, 100, 1000)])))`,
			"[1, 1, 4, 27, 256]\n[45, 4950, 499500]\n"},
		"barrier, condition, semaphore, event": {`
import threading
b, s, e, out = threading.Barrier(3), threading.Semaphore(0), threading.Event(), []
def f(i):
    b.wait(); out.append(i); s.release(); e.wait(10)
ts = [threading.Thread(target=f, args=(i,)) for i in range(3)]
for t in ts: t.start()
for _ in ts: assert s.acquire(timeout=10)
e.set()
for t in ts: t.join()
print(sorted(out), e.wait(0.001), s.acquire(timeout=0.01))`, "[0, 1, 2] True False\n"},
		"thread locals and timers": {`
import threading
d = threading.local(); d.x = 1
def f(): print(hasattr(d, 'x'))
t = threading.Timer(0.01, f); t.start(); t.join()
print(d.x)`, "False\n1\n"},
		"an exception in a thread is told and hurts nobody": {`
import threading
threading.excepthook = lambda a: print(a.exc_type.__name__)
t = threading.Thread(target=lambda: 1/0); t.start(); t.join(); print('on')`, "ZeroDivisionError\non\n"},
		"a spinning thread beside one that sleeps": {`
import threading, time
stop = False
def spin():
    while not stop: pass
t = threading.Thread(target=spin); t.start()
for _ in range(5): time.sleep(0.005)
stop = True; t.join(); print('done')`, "done\n"},
		"a timer signal breaks a loop": {`
import signal
def ring(*_): raise TimeoutError('rang')
signal.signal(signal.SIGALRM, ring)
signal.setitimer(signal.ITIMER_REAL, 0.02)
try:
    n = 0
    while True: n += 1
except TimeoutError as e: print(e)`, "rang\n"},
		"a signal for a thread": {`
import signal, threading
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])
got = []
t = threading.Thread(target=lambda: got.append(signal.sigwait([signal.SIGUSR1]))); t.start()
signal.pthread_kill(t.ident, signal.SIGUSR1); t.join(); print(got[0].name)`, "SIGUSR1\n"},
		"processor time of a thread": {`
import threading, time
out = []
def f():
    n = 0
    for i in range(200000): n += i
    out.append(time.thread_time())
t = threading.Thread(target=f); t.start(); t.join()
print(0 < out[0] <= time.process_time(), threading.get_native_id() > 0)`, "True True\n"},
	} {
		t.Run(name, func(t *testing.T) {
			vm := machine(t, tm)
			output(t, vm, c.code, c.want)
			// Once more in the same interpreter, and after a reset.
			output(t, vm, c.code, c.want)
			reset(t, vm)
			output(t, vm, c.code, c.want)
		})
	}
}

func TestADeadlockEndsTheRunAtOnceAndSaysSo(t *testing.T) {
	tm := template(t, nil)
	vm := machine(t, tm)
	for name, code := range map[string]string{
		"a lock taken twice":        "import threading\nl = threading.Lock(); l.acquire(); l.acquire()",
		"two threads crosswise":     "import threading\na, b, m = threading.Lock(), threading.Lock(), threading.Barrier(2)\ndef f(x, y):\n    with x:\n        m.wait()\n        with y: pass\nt = threading.Thread(target=f, args=(a, b), daemon=True); t.start(); f(b, a)",
		"an event that nobody sets": "import threading\nthreading.Event().wait()",
		"a signal that never comes": "import signal\nsignal.pause()",
		"nothing to select from":    "import select\nselect.select([], [], [])",
	} {
		t.Run(name, func(t *testing.T) {
			res, err := vm.Run(context.Background(), engine.Request{Code: []byte(code), Timeout: time.Minute})
			var e *engine.Error
			if !errors.Is(err, engine.ErrDeadlock) || !errors.As(err, &e) || !e.Usable {
				t.Fatalf("%v; stderr %q", err, res.Stderr)
			}
			output(t, vm, "print(6*7)", "42\n")
		})
	}
}

func TestAnInterruptEndsAProgramWithThreads(t *testing.T) {
	tm := template(t, nil)
	const code = `
import threading, time
stop = False
def spin():
    while not stop: pass
def idle():
    while not stop: time.sleep(0.001)
ts = [threading.Thread(target=f) for f in (spin, idle, idle)]
for t in ts: t.start()
# Not in join: CPython 3.11 takes a thread whose join is interrupted for stopped.
print('begun', flush=True)
threading.Event().wait(3600)`
	// CPython's main thread may not win the interpreter lock in time against one
	// that computes, on a machine that is busy. Then the machine is stopped, which
	// is no fault; but it must not be the rule.
	for n := 1; ; n++ {
		vm := machine(t, tm)
		res, err := runUntilBegun(vm, code)
		var e *engine.Error
		if !errors.Is(err, engine.ErrCanceled) || !errors.As(err, &e) {
			t.Fatalf("%v; stderr %q", err, res.Stderr)
		}
		if e.Usable {
			output(t, vm, "stop = True\nfor t in ts: t.join()\nprint(threading.active_count())", "1\n")
			return
		}
		if n == 3 {
			t.Fatalf("not one of %d obeyed: %v; stderr %q", n, err, res.Stderr)
		}
	}
}

func TestThreadsStandStillBetweenRunsAndAreGoneAfterAReset(t *testing.T) {
	tm := template(t, nil)
	vm := machine(t, tm)
	output(t, vm, `
import threading, time
n = 0
def count():
    global n
    while True:
        n += 1
        time.sleep(0)
threading.Thread(target=count, daemon=True).start()
while n == 0: time.sleep(0.001)
a = n
print(a > 0)`, "True\n")
	// Whatever a thread prints after the result was sent belongs to the next run.
	output(t, vm, "b = n\nwhile n == b: time.sleep(0.001)\nprint(n > b, n > a)", "True True\n")
	reset(t, vm)
	output(t, vm, "import threading; print(threading.active_count(), 'n' in globals())", "1 False\n")
}

func TestTooManyThreadsAreAnOrdinaryException(t *testing.T) {
	tm := template(t, nil)
	vm := machine(t, tm)
	output(t, vm, `
import threading
e, ts = threading.Event(), []
try:
    while True:
        t = threading.Thread(target=e.wait); t.start(); ts.append(t)
except RuntimeError as x: print(x)
e.set()
for t in ts: t.join()
print(len(ts) > 50, threading.active_count())`, "can't start new thread\nTrue 1\n")
	output(t, vm, "print(6*7)", "42\n")
}
