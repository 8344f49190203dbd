//go:build linux && amd64

package engine_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/maf-sandbox/maf-sandbox-go/internal/engine"
)

// A want is what a case must lead to.
type want struct {
	stdout, stderr string // substrings
	exit           int
	err            error // sentinel; nil: none
	message        string
	// retired: the machine may not be used afterwards.
	retired bool
	// or are errors that are as good.
	or    []error
	check func(t *testing.T, res engine.Result)
}

// A kase is a program and what it must lead to.
type kase struct {
	name, code string
	timeout    time.Duration
	maxOutput  int
	want       want
}

// cases are faults that people reported of other systems; the names are those
// of the reports' list.
var cases = []kase{
	{"A1 lone surrogate", `print('a' + chr(0xD83D) + 'b')`, 0, 0, want{stderr: "UnicodeEncodeError", exit: 1}},
	{"A1 raw bytes", `import sys; sys.stdout.buffer.write(bytes([0xFF, 0x41, 0xC3]))`, 0, 0, want{stdout: "\xffA\xc3"}},
	{"A2 endless output", `while True: print('y' * 4096)`, 30 * time.Second, 1 << 20, want{
		stdout: "yyyy", err: engine.ErrOutputLimit, exit: 1,
		check: func(t *testing.T, res engine.Result) {
			if n := len(res.Stdout) + len(res.Stderr); n != 1<<20 {
				t.Errorf("captured %d bytes, want the limit of %d", n, 1<<20)
			}
			if res.Duration > 10*time.Second {
				t.Errorf("the run went on for %v", res.Duration)
			}
		},
	}},
	{"A4 stderr before traceback", "import sys; sys.stderr.write('warn\\n'); print('half', end=''); raise KeyError('k')", 0, 0, want{
		stdout: "half", stderr: "warn\nTraceback (most recent call last):\n  File \"<sandbox>\", line 1, in <module>", exit: 1,
		check: func(t *testing.T, res engine.Result) {
			if string(res.Stdout) != "half" {
				t.Errorf("stdout %q", res.Stdout)
			}
			if !strings.HasSuffix(string(res.Stderr), "KeyError: 'k'\n") {
				t.Errorf("stderr %q", res.Stderr)
			}
		},
	}},
	{"B1 exit()", `print('kept'); exit()`, 0, 0, want{stdout: "kept\n"}},
	{"B1 sys.exit(None)", `import sys; sys.exit(None)`, 0, 0, want{}},
	{"B1 sys.exit(3)", `import sys; sys.exit(3)`, 0, 0, want{exit: 3}},
	{"B1 sys.exit(256)", `import sys; sys.exit(256)`, 0, 0, want{}},
	{"B1 sys.exit(-1)", `import sys; sys.exit(-1)`, 0, 0, want{exit: 255}},
	{"B1 sys.exit(text)", `import sys; sys.exit('bye')`, 0, 0, want{exit: 1, stderr: "bye\n"}},
	{"B1 SystemExit(True)", `raise SystemExit(True)`, 0, 0, want{exit: 1}},
	{"B1 KeyboardInterrupt", `raise KeyboardInterrupt`, 0, 0, want{exit: 1, stderr: "KeyboardInterrupt"}},
	{"B1 BaseException", `raise BaseException('b')`, 0, 0, want{exit: 1, stderr: "BaseException: b"}},
	{"B1 quit()", `quit(4)`, 0, 0, want{exit: 4}},
	{"B2 os._exit", `import os; print('x', flush=True); os._exit(7)`, 0, 0, want{stdout: "x\n", exit: 7, retired: true}},
	{"B2 os._exit unflushed", `import os; print('x'); os._exit(7)`, 0, 0, want{stdout: "x\n", exit: 7, retired: true}},
	{"B2 abort", `import os; print('x'); os.abort()`, 0, 0, want{
		stdout: "x\n", stderr: "Fatal Python error: Aborted", exit: 134, err: engine.ErrGuestCrash, retired: true,
	}},
	{"B2 null read", `import ctypes; ctypes.string_at(0)`, 0, 0, want{
		stderr: "Fatal Python error: Segmentation fault", exit: 139, err: engine.ErrGuestCrash, retired: true,
		message: "crashed with SIGSEGV at address 0x0",
	}},
	{"B3 endless loop", `while True: pass`, 200 * time.Millisecond, 0, want{err: engine.ErrTimeout, exit: 1, stderr: "line 1, in <module>\n    while True: pass\n"}},
	{"C1 power of big integers", `print('begun'); n = 9 ** (9 ** 9)`, 2 * time.Second, 0, want{
		stdout: "begun\n", err: engine.ErrTimeout, exit: -1,
	}},
	{"C1 shift beyond memory", `1 << 40_000_000_000`, 0, 0, want{exit: 1, stderr: "Error"}},
	{"C1 operation that obeys no signal", `print('begun'); sum(range(10**13))`, 2 * time.Second, 0, want{
		stdout: "begun\n", err: engine.ErrTimeout, exit: 137, retired: true,
	}},
	{"C1 sorted range", `sorted(range(10**9))`, 10 * time.Second, 0, want{exit: 1, stderr: "MemoryError"}},
	{"C4 list of bytearrays", "b = []\nwhile True: b.append(bytearray(8 << 20))", 20 * time.Second, 0, want{exit: 1, stderr: "MemoryError"}},
	{"C4 impossible bytearray", `bytearray(1 << 50)`, 0, 0, want{exit: 1, stderr: "MemoryError"}},
	{"C4 dict of ints", `d = {i: i for i in range(10**9)}`, 30 * time.Second, 0, want{exit: 1, stderr: "MemoryError"}},
	{"C4 small objects", "l = []\nwhile True: l.append([0] * 100)", 30 * time.Second, 0, want{exit: 1, stderr: "MemoryError"}},
	{"C5 recursion", "def f(n): return f(n + 1)\nf(0)", 0, 0, want{exit: 1, stderr: "RecursionError"}},
	{"C5 recursion through partial", "import functools\ndef f(n): return functools.partial(f, n + 1)()\nf(0)", 0, 0, want{exit: 1, stderr: "RecursionError"}},
	{"C5 recursion through sorted", "def f(n): return sorted([n], key=f)\nf(0)", 0, 0, want{exit: 1, stderr: "RecursionError"}},
	// Frames take no C stack, and once memory is full of them to unwind each fails
	// to allocate its traceback entry: slow where exits are.
	{"C5 recursion without a limit", "import sys; sys.setrecursionlimit(10**9)\ndef f(n): return f(n + 1)\nf(0)", 3 * time.Second, 0, want{
		exit: 1, stderr: "Error", or: []error{engine.ErrGuestCrash, engine.ErrMemory, engine.ErrTimeout},
	}},
	{"C5 recursion through C without a limit", "import sys, functools; sys.setrecursionlimit(10**9)\ndef f(n): return functools.partial(f, n + 1)()\nf(0)", 0, 0, want{exit: 1, stderr: "Error", or: []error{engine.ErrGuestCrash, engine.ErrMemory}}},
	{"C5 deep list", "import json\na = []\nfor _ in range(100_000): a = [a]\nfor f in repr, json.dumps:\n  try: f(a)\n  except RecursionError: print('deep')", 0, 0, want{stdout: "deep\ndeep\n", or: []error{engine.ErrGuestCrash, engine.ErrMemory}}},
	{"C5 deep parentheses", `eval('(' * 5000 + ')' * 5000)`, 0, 0, want{exit: 1, stderr: "Error"}},
	{"C5 list that contains itself", "import json\na = []; a.append(a); print(repr(a))\njson.dumps(a)", 0, 0, want{exit: 1, stdout: "[[...]]", stderr: "ValueError"}},
	{"C5 recursive attribute", "class A:\n  def __getattribute__(s, n): return s.x\nA().y", 0, 0, want{exit: 1, stderr: "RecursionError"}},
	{"D5 sleep", `import time; a = time.monotonic(); time.sleep(0.05); print(time.monotonic() - a >= 0.05)`, 0, 0, want{stdout: "True\n"}},
	{"D5 sleep beyond the limit", `import time; time.sleep(100)`, 100 * time.Millisecond, 0, want{err: engine.ErrTimeout, exit: 1}},
	{"D5 negative sleep", `import time; time.sleep(-1)`, 0, 0, want{exit: 1, stderr: "ValueError"}},
	{"D6 time zone", `import time; print(time.tzname, time.localtime().tm_hour - time.gmtime().tm_hour)`, 0, 0, want{stdout: "('UTC', 'UTC') 0\n"}},
	{"D6 zoneinfo", "import zoneinfo\ntry: print(zoneinfo.ZoneInfo('Europe/Brussels'))\nexcept zoneinfo.ZoneInfoNotFoundError: print('Europe/Brussels')", 0, 0, want{stdout: "Europe/Brussels\n"}},
	{"E1 input", `name = input('who? ')`, 0, 0, want{stdout: "who? ", exit: 1, stderr: "EOFError"}},
	{"E1 stdin", `import sys; print(repr(sys.stdin.read()))`, 0, 0, want{stdout: "''\n"}},
	{"E3 thread", "import threading; t = threading.Thread(target=print, args=('t',)); t.start(); t.join()", 0, 0, want{stdout: "t\n"}},
	{"E3 pool of threads", "from concurrent.futures import ThreadPoolExecutor\nwith ThreadPoolExecutor(4) as p: print(sum(p.map(lambda x: x * x, range(100))))", 0, 0, want{stdout: "328350\n"}},
	{"E3 queue", "import queue, threading\nq = queue.Queue(1)\nt = threading.Thread(target=lambda: [q.put(i) for i in range(100)]); t.start()\nprint(sum(q.get() for _ in range(100))); t.join()", 0, 0, want{stdout: "4950\n"}},
	{"E3 exception in a thread", "import threading; t = threading.Thread(target=lambda: 1/0); t.start(); t.join(); print('on')", 0, 0, want{stdout: "on\n", stderr: "ZeroDivisionError"}},
	{"E3 thread that goes on for ever", "import threading\ndef spin():\n  while True: pass\nthreading.Thread(target=spin, daemon=True).start(); print('done')", 0, 0, want{stdout: "done\n"}},
	{"E3 threads beyond the limit of time", "import threading\ndef spin():\n  while True: pass\nts = [threading.Thread(target=spin, daemon=True) for _ in range(5)]\nfor t in ts: t.start()\nfor t in ts: t.join()", 500 * time.Millisecond, 0, want{err: engine.ErrTimeout, exit: 1, stderr: "KeyboardInterrupt"}},
	{"E3 deadlock", "import threading; l = threading.Lock(); l.acquire(); print('waits', flush=True); l.acquire()", 0, 0, want{stdout: "waits\n", err: engine.ErrDeadlock, exit: 1}},
	{"E3 numpy", "try:\n  import numpy; print('ok')\nexcept ModuleNotFoundError: print('ok')", 0, 0, want{stdout: "ok\n"}},
	{"E3 subprocess", "import subprocess\nsubprocess.run(['ls'])", 0, 0, want{exit: 1, stderr: "OSError: [Errno 38] this sandbox does not offer other processes"}},
	{"E3 os.system", "import os\nos.system('ls')", 0, 0, want{exit: 1, stderr: "this sandbox does not offer other processes"}},
	{"E3 socket", "import socket\nsocket.create_connection(('192.0.2.1', 80), 1)", 0, 0, want{exit: 1, stderr: "this sandbox does not offer"}},
	{"E3 multiprocessing", "import multiprocessing\nmultiprocessing.Process(target=print).start()", 0, 0, want{exit: 1, stderr: "Error"}},
	{"syntax error", "x = 1\ndef f(:\n", 0, 0, want{exit: 1, stderr: `File "<sandbox>", line 2`}},
	{"not UTF-8", "print('\xff')", 0, 0, want{exit: 1, stderr: "SyntaxError"}},
}

// asyncioCases need poll, epoll and socketpair in memory.
var asyncioCases = []kase{
	{"E2 asyncio.run", "import asyncio\nasync def main():\n  await asyncio.sleep(0.01)\n  return 5\nprint(asyncio.run(main()))", 0, 0, want{stdout: "5\n"}},
	{"E2 gather", "import asyncio\nasync def f(i):\n  await asyncio.sleep(0.01)\n  return i\nasync def main(): return sum(await asyncio.gather(*map(f, range(100))))\nprint(asyncio.run(main()))", 0, 0, want{stdout: "4950\n"}},
	{"E2 wait_for", "import asyncio\nasync def main():\n  try: await asyncio.wait_for(asyncio.sleep(100), 0.01)\n  except asyncio.TimeoutError: print('late')\nasyncio.run(main())", 0, 0, want{stdout: "late\n"}},
	{"E2 to_thread", "import asyncio, time\nasync def main():\n  loop = asyncio.get_running_loop()\n  return await loop.run_in_executor(None, lambda: time.sleep(0.01) or 7)\nprint(asyncio.run(main()))", 0, 0, want{stdout: "7\n"}},
	{"E2 run in a running loop", "import asyncio\nasync def main():\n  c = asyncio.sleep(0)\n  try: asyncio.run(c)\n  finally: c.close()\nasyncio.run(main())", 0, 0, want{exit: 1, stderr: "RuntimeError: asyncio.run() cannot be called from a running event loop"}},
	{"E2 pending task", "import asyncio\nasync def late():\n  try: await asyncio.sleep(100)\n  except asyncio.CancelledError: print('cancelled'); raise\nasync def main():\n  global t; t = asyncio.ensure_future(late()); await asyncio.sleep(0)\nasyncio.run(main()); print('done')", 0, 0, want{stdout: "cancelled\ndone\n"}},
	{"E2 beyond the limit of time", "import asyncio\nasync def main():\n  print('begun', flush=True)\n  await asyncio.sleep(100)\nasyncio.run(main())", 2 * time.Second, 0, want{stdout: "begun\n", err: engine.ErrTimeout, exit: 1}},
	{"E2 future that nobody completes", "import asyncio\nasync def main(): await asyncio.get_running_loop().create_future()\nasyncio.run(main())", 0, 0, want{err: engine.ErrDeadlock, exit: 1}},
}

func TestAsyncioCases(t *testing.T) { testCases(t, asyncioCases) }

func TestCases(t *testing.T) { testCases(t, cases) }

func testCases(t *testing.T, cases []kase) {
	t.Helper()
	tm := template(t, nil)
	fast := template(t, func(c *engine.Config) { c.Grace = 50 * time.Millisecond })
	shapes := []struct {
		name    string
		prepare func(t *testing.T, vm *engine.VM)
	}{
		{"fresh", func(*testing.T, *engine.VM) {}},
		{"after a failure", func(t *testing.T, vm *engine.VM) {
			if res := run(t, vm, "print('before'); 1/0"); res.ExitCode != 1 {
				t.Fatalf("exit %d", res.ExitCode)
			}
		}},
		{"after a reset", func(t *testing.T, vm *engine.VM) {
			run(t, vm, "import builtins; builtins.len = None; left = 1")
			if err := vm.Reset(context.Background()); err != nil {
				t.Fatal(err)
			}
		}},
	}
	if testing.Short() {
		shapes = shapes[2:] // the one that takes most
	}
	for _, c := range cases {
		for _, s := range shapes {
			t.Run(c.name+"/"+s.name, func(t *testing.T) {
				from := tm
				if c.want.retired || c.want.or != nil {
					from = fast // nobody obeys: do not wait for it
				}
				vm := machine(t, from)
				s.prepare(t, vm)
				res, err := vm.Run(context.Background(), engine.Request{Code: []byte(c.code), Timeout: c.limit(), MaxOutput: c.maxOutput})
				c.want.verify(t, res, err)
				afterwards(t, vm, c.want.retired || err != nil && !usable(err))
			})
		}
	}
}

// limit is the case's limit of time. What goes on until then only needs the time
// to begin; everything else must come to its end.
func (c kase) limit() time.Duration {
	switch {
	case c.timeout == 0:
		return patience(engine.DefaultTimeout)
	case errors.Is(c.want.err, engine.ErrTimeout) || slices.Contains(c.want.or, engine.ErrTimeout):
		return min(patience(c.timeout), max(3*c.timeout, 2*time.Second))
	default:
		return patience(c.timeout)
	}
}

func usable(err error) bool {
	var e *engine.Error
	return errors.As(err, &e) && e.Usable
}

func (w want) verify(t *testing.T, res engine.Result, err error) {
	t.Helper()
	for _, e := range w.or {
		if errors.Is(err, e) {
			return
		}
	}
	if !errors.Is(err, w.err) || w.err == nil && err != nil {
		t.Fatalf("error %v, want %v\nstdout %.2000q\nstderr %.2000q", err, w.err, res.Stdout, res.Stderr)
	}
	if err != nil && !strings.Contains(err.Error(), w.message) {
		t.Errorf("error %q lacks %q", err, w.message)
	}
	if errors.Is(err, engine.ErrTimeout) && !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("%v is not a context.DeadlineExceeded", err)
	}
	if w.exit >= 0 && res.ExitCode != w.exit {
		t.Errorf("exit %d, want %d; stderr %.2000q", res.ExitCode, w.exit, res.Stderr)
	}
	if !strings.Contains(string(res.Stdout), w.stdout) {
		t.Errorf("stdout %.2000q lacks %q", res.Stdout, w.stdout)
	}
	if !strings.Contains(string(res.Stderr), w.stderr) {
		t.Errorf("stderr %.2000q lacks %q", res.Stderr, w.stderr)
	}
	if w.check != nil {
		w.check(t, res)
	}
}

// afterwards checks that the machine can be used, or honestly says that it
// cannot.
func afterwards(t *testing.T, vm *engine.VM, retired bool) {
	t.Helper()
	if !retired {
		output(t, vm, "print(6*7)", "42\n")
		if err := vm.Reset(context.Background()); err != nil {
			t.Fatal(err)
		}
		output(t, vm, "print(6*7)", "42\n")
		return
	}
	var e *engine.Error
	if _, err := vm.Run(context.Background(), engine.Request{Code: []byte("print(6*7)")}); !errors.As(err, &e) || e.Usable {
		t.Errorf("a retired machine ran: %v", err)
	}
	if err := vm.Reset(context.Background()); !errors.As(err, &e) || e.Usable {
		t.Errorf("a retired machine was reset: %v", err)
	}
}
