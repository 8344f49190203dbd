//go:build linux && amd64

package engine_test

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/maf-sandbox/maf-sandbox-go/internal/engine"
)

// The tests of this file prove docs/restore-contract.md, which names them.

// left are things that a program can change. look prints what became of them:
// changed while they persist, template after a reset.
var left = []struct {
	name, change, look string
	changed, template  string
}{
	{"names", "g = 1", "print('g' in globals())", "True\n", "False\n"},
	{"modules", "import colorsys, sys; sys.modules['json'] = None", `
import sys
try:
    import json
except ImportError:
    json = None
print('colorsys' in sys.modules, json is None)`, "True True\n", "False False\n"},
	{"patched builtins", "import builtins; builtins.len = lambda o: 0", "print(len('ab'))", "0\n", "2\n"},
	{"patched modules", "import math, random, os\nrandom.random = lambda: 7\nmath.pi = 3\nos.urandom = lambda n: b'x' * n", `
import math, random, os
print(random.random() == 7, math.pi == 3, os.urandom(2) == b'xx')`, "True True True\n", "False False False\n"},
	{"files", `
import os
open('/work/left.txt', 'w').write('s')
os.mkdir('/tmp/d')
os.symlink('/work', '/tmp/d/link')
os.link('/work/left.txt', '/tmp/hard')
os.chmod('/tmp', 0o700)`, `
import os
print(sorted(os.listdir('/work')), sorted(os.listdir('/tmp')), os.path.exists('/tmp/d/link'), oct(os.stat('/tmp').st_mode))`,
		"['left.txt'] ['d', 'hard'] True 0o40700\n", "[] [] False 0o41777\n"},
	{"open descriptors", `
import os
f = open('/tmp/o', 'w')
os.dup2(os.open('/dev/null', os.O_RDONLY), 50)
os.close(0)`, openDescriptors, "[1, 2, 3, 4, 50]\n", "[0, 1, 2]\n"},
	{"standard streams", "import io, sys; sys.stdout = sys.__stdout__ = io.StringIO()", "print('x')", "", "x\n"},
	{"pending output", "w = open(1, 'w', 1 << 16, closefd=False); w.write('left')", `
try:
    w.flush()
except NameError:
    print('nothing', end='')`, "left", "nothing"},
	{"signal handlers", `
import signal
signal.signal(signal.SIGUSR1, lambda *a: None)
signal.signal(signal.SIGINT, signal.SIG_IGN)`, `
import signal
print(signal.getsignal(signal.SIGUSR1) == signal.SIG_DFL, signal.getsignal(signal.SIGINT) == signal.SIG_IGN)`, "False True\n", "True False\n"},
	{"blocked and pending signals", `
import os, signal
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1, signal.SIGINT])
os.kill(os.getpid(), signal.SIGUSR1)`, `
import signal
print(len(signal.pthread_sigmask(signal.SIG_BLOCK, [])), len(signal.sigpending()))`, "2 1\n", "0 0\n"},
	{"environment", "import os; os.environ['LEFT'] = 'x'; del os.environ['HOME']", `
import ctypes, os
print('LEFT' in os.environ, 'HOME' in os.environ, ctypes.CDLL(None).getenv(b'LEFT') != 0)`, "True False True\n", "False True False\n"},
	{"recursion limit", "import sys; sys.setrecursionlimit(3000)", "import sys; print(sys.getrecursionlimit())", "3000\n", "1000\n"},
	{"working folder and umask", "import os; os.chdir('/tmp'); os.umask(0)", "import os; print(os.getcwd(), os.umask(0o22))", "/tmp 0\n", "/work 18\n"},
	{"import path and hooks", "import sys; sys.path.append('/nowhere'); sys.meta_path.insert(0, None); sys.path_hooks.clear()", `
import sys
print('/nowhere' in sys.path, None in sys.meta_path, len(sys.path_hooks) > 0)
while None in sys.meta_path: sys.meta_path.remove(None)`, "True True False\n", "False False True\n"},
	{"tracing", "import sys\ndef f(*a): pass\nsys.setprofile(f); sys.settrace(f)", "import sys; print(sys.getprofile() is None, sys.gettrace() is None)", "False False\n", "True True\n"},
	{"decimal context", "import decimal; decimal.getcontext().prec = 5", "import decimal; print(decimal.getcontext().prec)", "5\n", "28\n"},
	{"garbage collector", "import gc; gc.disable(); gc.set_threshold(7)", "import gc; print(gc.isenabled(), gc.get_threshold()[0] == 7)", "False True\n", "True False\n"},
	{"memory in use", "b = bytearray(150 << 20)", `
try:
    print(len(bytearray(150 << 20)) >> 20)
except MemoryError:
    print('none left')`, "none left\n", "150\n"},
	{"extended CPU state", "import ctypes; ctypes.CDLL('libm.so.6').fesetround(0xC00)", "import ctypes; print(ctypes.CDLL('libm.so.6').fegetround())", "3072\n", "0\n"},
	{"random sequence", "import random; random.seed(1); random.random()", "import random; print(random.random())", "0.8474337369372327\n", ""},
}

// openDescriptors prints which descriptors are open.
const openDescriptors = `
import os
def is_open(fd):
    try:
        os.fstat(fd)
        return True
    except OSError:
        return False
print([fd for fd in range(100) if is_open(fd)])`

// D1: without a reset everything persists, after it nothing does.
func TestNothingSurvivesAReset(t *testing.T) {
	tm := template(t, nil)
	for _, l := range left {
		t.Run(l.name, func(t *testing.T) {
			vm := machine(t, tm)
			if res := run(t, vm, l.change); res.ExitCode != 0 {
				t.Fatal(string(res.Stderr))
			}
			if res := run(t, vm, l.look); string(res.Stdout) != l.changed || res.ExitCode != 0 {
				t.Errorf("before the reset: %q, want %q\n%s", res.Stdout, l.changed, res.Stderr)
			}
			reset(t, vm)
			if err := vm.Verify(); err != nil {
				t.Error(err)
			}
			if l.template == "" { // whatever it is, it is not what was
				if res := run(t, vm, l.look); string(res.Stdout) == l.changed || res.ExitCode != 0 {
					t.Errorf("after the reset: %q\n%s", res.Stdout, res.Stderr)
				}
				return
			}
			output(t, vm, l.look, l.template)
		})
	}
	t.Run("output of a run cut short", func(t *testing.T) {
		vm := machine(t, tm)
		_, err := vm.Run(context.Background(), engine.Request{Code: []byte("while True: print('left')"), MaxOutput: 10})
		if !errors.Is(err, engine.ErrOutputLimit) || !usable(err) {
			t.Fatal(err)
		}
		reset(t, vm)
		output(t, vm, "print(6*7)", "42\n")
	})
	t.Run("threads", func(t *testing.T) {
		vm := machine(t, tm)
		output(t, vm, `
import threading, time
def work():
    while True:
        time.sleep(0.001)
        seen.append(1)
seen = []
for _ in range(3): threading.Thread(target=work, daemon=True).start()
print(threading.active_count(), end='')`, "4")
		reset(t, vm)
		if err := vm.Verify(); err != nil {
			t.Error(err)
		}
		output(t, vm, "import threading, time; time.sleep(0.01); print(threading.active_count(), 'seen' in globals())", "1 False\n")
	})
}

// D3: random state differs in every clone and generation from the first
// instruction on.
func TestRandomStateDiffersInEveryGeneration(t *testing.T) {
	tm := template(t, nil)
	for name, code := range map[string]string{
		"random":          "import random; print(random.random(), random.getrandbits(64), random.gauss(0, 1))",
		"new generators":  "import random; print(random.Random().random(), random.SystemRandom().random())",
		"os.urandom":      "import os; print(os.urandom(8))",
		"dev urandom":     "print(open('/dev/urandom', 'rb').read(8))",
		"uuid":            "import uuid; print(uuid.uuid4())",
		"uuid by time":    "import uuid; print(uuid.uuid1().node, uuid.uuid1().clock_seq)",
		"secrets":         "import secrets; print(secrets.token_hex(8))",
		"tempfile names":  "import tempfile; print(tempfile.mktemp())",
		"tempfile folder": "import tempfile; print(tempfile.mkdtemp())",
	} {
		t.Run(name, func(t *testing.T) {
			a, b := machine(t, tm), machine(t, tm)
			seen := map[string]bool{}
			for _, vm := range []*engine.VM{a, b, a, b} {
				res := run(t, vm, code)
				if res.ExitCode != 0 || seen[string(res.Stdout)] {
					t.Errorf("%q came twice; %s", res.Stdout, res.Stderr)
				}
				seen[string(res.Stdout)] = true
				reset(t, vm)
			}
		})
	}
	t.Run("a seed of the program's own", func(t *testing.T) {
		output(t, machine(t, tm), "import random; random.seed(1); print(random.random())", "0.13436424411240122\n")
	})
}

// Strings hash the same in all machines of a template, and differently in
// another template.
func TestTheHashSeedIsTheTemplates(t *testing.T) {
	const code = "print(hash('maf'), {'a', 'b', 'c'})"
	first := template(t, func(c *engine.Config) { c.Cache = "" })
	vm := machine(t, first)
	want := string(run(t, vm, code).Stdout)
	reset(t, vm)
	output(t, vm, code, want)
	output(t, machine(t, first), code, want)
	other := template(t, func(c *engine.Config) { c.Cache = "" })
	if got := string(run(t, machine(t, other), code).Stdout); got == want {
		t.Errorf("two templates have the hash seed of %q", got)
	}
}

// D5: the wall clock is the host's, the monotonic one never goes back.
func TestClocks(t *testing.T) {
	vm := machine(t, template(t, nil))
	read := func(t *testing.T) (wall, mono float64) {
		t.Helper()
		f := strings.Fields(string(run(t, vm, "import time; print(time.time(), time.monotonic())").Stdout))
		if len(f) != 2 {
			t.Fatal(f)
		}
		wall, err1 := strconv.ParseFloat(f[0], 64)
		mono, err2 := strconv.ParseFloat(f[1], 64)
		if err := errors.Join(err1, err2); err != nil {
			t.Fatal(err)
		}
		return wall, mono
	}
	t.Run("wall clock", func(t *testing.T) {
		for i := range 6 {
			before := float64(time.Now().UnixNano()) / 1e9
			wall, _ := read(t)
			after := float64(time.Now().UnixNano()) / 1e9
			if wall < before-0.5 || wall > after+0.5 {
				t.Errorf("guest's clock %f, host's %f to %f", wall, before, after)
			}
			if i%2 == 1 {
				reset(t, vm)
			}
		}
		output(t, vm, "import datetime, time; print(abs(datetime.datetime.now(datetime.timezone.utc).timestamp() - time.time()) < 0.5)", "True\n")
	})
	t.Run("monotonic clock", func(t *testing.T) {
		for range 3 {
			last := 0.0
			for range 5 {
				_, mono := read(t)
				if mono < last {
					t.Errorf("monotonic went back from %f to %f", last, mono)
				}
				last = mono
			}
			output(t, vm, "import time\nl = [f() for _ in range(10_000) for f in (time.monotonic, time.perf_counter)]\nprint(l == sorted(l))", "True\n")
			reset(t, vm)
		}
	})
	t.Run("sleep", func(t *testing.T) {
		output(t, vm, "import time; a = time.monotonic(); time.sleep(0.05); b = time.monotonic(); print(b - a >= 0.05)", "True\n")
		output(t, vm, "import time; a = time.process_time(); time.sleep(0.05); print(time.process_time() - a < 0.05)", "True\n")
	})
}

func TestEveryResetMakesANewGeneration(t *testing.T) {
	tm := template(t, nil)
	seen := map[string]bool{}
	for range 3 {
		vm := machine(t, tm)
		for range 3 {
			g := vm.Generation()
			if len(g) != 32 || seen[g] {
				t.Errorf("generation %q", g)
			}
			seen[g] = true
			output(t, vm, "print(6*7)", "42\n")
			if vm.Generation() != g {
				t.Error("a run changed the generation")
			}
			reset(t, vm)
		}
	}
}

// A reset gives back what a program has used up, and takes nothing from the
// limits and refusals.
func TestLimitsAndPolicyAreTheSameAfterAReset(t *testing.T) {
	vm := machine(t, template(t, nil))
	const look = `
import errno, os, resource, socket
print([resource.getrlimit(r) for r in (resource.RLIMIT_NOFILE, resource.RLIMIT_AS, resource.RLIMIT_STACK, resource.RLIMIT_NPROC)])
s = os.statvfs('/tmp')
print(s.f_blocks * s.f_frsize, s.f_bavail, s.f_files, s.f_ffree)
for f in (lambda: socket.socket(), lambda: os.fork(), lambda: os.setuid(0), lambda: os.chroot('/'), lambda: open('/usr/x', 'w')):
    try:
        print(f())
    except OSError as e:
        print(errno.errorcode[e.errno], e)
n = 0
try:
    while True:
        os.open('/dev/null', 0)
        n += 1
except OSError as e:
    print(n, e)
try:
    bytearray(256 << 20)
except MemoryError:
    print('memory')`
	want := string(run(t, vm, look).Stdout)
	if !strings.Contains(want, "1021 ") || !strings.HasSuffix(want, "memory\n") {
		t.Fatalf("%s", want)
	}
	reset(t, vm)
	run(t, vm, `
import os, resource
for r in (resource.RLIMIT_NOFILE, resource.RLIMIT_AS):
    try: resource.setrlimit(r, (10, 10))
    except (OSError, ValueError): pass
open('/tmp/big', 'wb').write(bytes(20 << 20))
for i in range(100): os.mkdir('/tmp/%d' % i)`)
	reset(t, vm)
	output(t, vm, look, want)
	for _, limit := range []int{10, 1000} {
		_, err := vm.Run(context.Background(), engine.Request{Code: []byte("print('y' * 100_000)"), MaxOutput: limit})
		if !errors.Is(err, engine.ErrOutputLimit) || !strings.Contains(err.Error(), fmt.Sprint(limit)) {
			t.Error(err)
		}
		reset(t, vm)
	}
}
