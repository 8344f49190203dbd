package microvm

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/maf-sandbox/maf-sandbox-go/sandbox"
)

// The rows of the collected cases that are about state, restore, time and
// random numbers, through the backend. The engine has the others.

func TestStatePersistsUntilAResetAndNotBeyond(t *testing.T) { // D1
	b := open(t, nil)
	s := get(t, b, key())
	dirty := `import builtins, sys, os
builtins.len = lambda o: 0
sys.modules['json'] = None
open('left.txt', 'w').write('s')
globals()['g'] = 1
os.environ['LEFT'] = '1'
sys.setrecursionlimit(5000)
f = open('/tmp/open', 'w')
`
	look := `import builtins, sys, os
seen = [len([1]) == 1, sys.modules.get('json', 1) is not None, not os.path.exists('left.txt'), 'g' not in globals(),
        'LEFT' not in os.environ, sys.getrecursionlimit() == 1000, not os.path.exists('/tmp/open')]
print(*[int(x) for x in seen])
`
	for range 2 { // in a new sandbox, and after a reset
		prints(t, s, dirty)
		if got := prints(t, s, look); got != "0 0 0 0 0 0 0\n" {
			t.Errorf("without a reset: %s", got)
		}
		if err := s.Reset(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got := prints(t, s, look); got != "1 1 1 1 1 1 1\n" {
			t.Errorf("after a reset: %s", got)
		}
		if err := s.Reset(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
}

func TestAResetAfterAFailureIsGoodOrHonest(t *testing.T) { // D2
	b := open(t, nil)
	for name, code := range map[string]string{
		"exit": "import os; os._exit(7)", "abort": "import os; os.abort()", "null": "import ctypes; ctypes.string_at(0)",
		"memory":    "b = []\nwhile True: b.append(bytearray(8 << 20))",
		"huge":      "bytearray(1 << 50)",
		"recursion": "import sys\nsys.setrecursionlimit(10**9)\ndef f(n): return f(n + 1)\nf(0)",
		"nesting":   "eval('(' * 5000 + ')' * 5000)",
	} {
		t.Run(name, func(t *testing.T) {
			s := get(t, b, key())
			_, err := s.RunCode(t.Context(), code, patience(10*time.Second))
			if !sandbox.Usable(err) {
				if err := s.Reset(t.Context()); !errors.Is(err, sandbox.ErrWorkerLost) {
					t.Errorf("reset of a lost sandbox: %v", err)
				}
				s = get(t, b, key())
			} else if err := s.Reset(t.Context()); err != nil {
				t.Errorf("reset: %v", err)
			}
			ask(t, s)
		})
	}
}

func TestRandomNumbersDifferInEverySandboxAndGeneration(t *testing.T) { // D3
	b := open(t, func(c *Config) { c.Pool = 1 })
	const code = "import random, os, uuid, secrets; print(random.random(), os.urandom(4), uuid.uuid4(), secrets.token_hex(4))"
	seen := map[string]string{}
	note := func(where, line string) {
		for _, part := range strings.Fields(line) {
			if other, again := seen[part]; again {
				t.Errorf("%s has %s as %s has", where, part, other)
			}
			seen[part] = where
		}
	}
	for i := range 3 {
		s := get(t, b, numbered(i))
		for j := range 3 {
			note(fmt.Sprint("sandbox ", i, " generation ", j), prints(t, s, code))
			if got := prints(t, s, "import random; random.seed(1); print(random.random())"); got != "0.13436424411240122\n" {
				t.Errorf("the known sequence: %s", got)
			}
			if err := s.Reset(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
	}
}

func TestClocksAreTheHostsAfterAReset(t *testing.T) { // D5
	pause := 2 * time.Second
	if d, err := time.ParseDuration(os.Getenv("MAF_SANDBOX_STALE")); err == nil {
		pause = d
	}
	b := open(t, func(c *Config) { c.Pool = 1 })
	s := get(t, b, key())
	ask(t, s)
	time.Sleep(pause) // the snapshot, and a spare worker, grow old
	if err := s.Reset(t.Context()); err != nil {
		t.Fatal(err)
	}
	for what, s := range map[string]*Sandbox{"after a reset": s, "a spare worker": get(t, b, numbered(1))} {
		before := time.Now()
		var wall, utc float64
		got := prints(t, s, "import time, datetime; print(time.time(), datetime.datetime.now(datetime.timezone.utc).timestamp())")
		if _, err := fmt.Sscan(got, &wall, &utc); err != nil {
			t.Fatal(err)
		}
		low, high := before.Add(-500*time.Millisecond), time.Now().Add(500*time.Millisecond)
		for _, v := range []float64{wall, utc} {
			if at := time.UnixMicro(int64(v * 1e6)); at.Before(low) || at.After(high) {
				t.Errorf("%s the clock says %v, the host's is between %v and %v", what, at, low, high)
			}
		}
		if got := prints(t, s, "import time\nx = [time.monotonic() for _ in range(1000)]\nprint(x == sorted(x))"); got != "True\n" {
			t.Errorf("%s: monotonic time goes back", what)
		}
	}
	if r, err := s.RunCode(t.Context(), "import time; time.sleep(-1)", 0); err != nil || !strings.Contains(string(r.Stderr), "ValueError") {
		t.Errorf("%q, %v", r.Stderr, err)
	}
	if _, err := s.RunCode(t.Context(), "import time; time.sleep(60)", 50*time.Millisecond); !errors.Is(err, sandbox.ErrTimeout) {
		t.Errorf("a sleep beyond the deadline: %v", err)
	}
}
