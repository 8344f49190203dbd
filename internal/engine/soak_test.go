//go:build linux && amd64

package engine_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/maf-sandbox/maf-sandbox-go/internal/engine"
)

// soakTime is how long TestSoak runs: MAF_SANDBOX_SOAK, such as 2m, or a few
// seconds.
func soakTime(t *testing.T) time.Duration {
	t.Helper()
	d := 3 * time.Second
	if testing.Short() {
		d = time.Second
	}
	if s := os.Getenv("MAF_SANDBOX_SOAK"); s != "" {
		var err error
		if d, err = time.ParseDuration(s); err != nil {
			t.Fatal(err)
		}
	}
	return d
}

// soakPrograms are what the soak mixes.
var soakPrograms = []struct {
	code, want string
	exit       int
}{
	{"print(6*7)", "42\n", 0},
	{"import json, re\nprint(re.sub('a', 'b', json.dumps(['a'] * 1000))[:9])", "[\"b\", \"b\"\n", 0},
	{"b = bytearray(5 << 20)\nfor i in range(0, len(b), 4096): b[i] = 1\nprint(sum(b))", "1280\n", 0},
	// More than what is worth copying back.
	{"b = bytearray(24 << 20)\nfor i in range(0, len(b), 4096): b[i] = 1\nprint(sum(b[::4096]))", "6144\n", 0},
	{"import os, pathlib\nfor i in range(50): pathlib.Path('/tmp/%d' % i).write_bytes(os.urandom(5000))\nprint(len(os.listdir('/tmp')))", "50\n", 0},
	{"import os, builtins, signal, sys\nbuiltins.len = None\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\nos.chdir('/')\nsys.setrecursionlimit(5000)\nkept = open('/tmp/x', 'w')\nprint('changed')", "changed\n", 0},
	{"import math\nprint(sum(math.sqrt(i) for i in range(100_000)) > 0)", "True\n", 0},
	{"print('half', flush=True); 1/0", "half\n", 1},
	{"def f(n): return f(n + 1)\nf(0)", "", 1},
	{"import sqlite3\nd = sqlite3.connect('/work/d')\nd.execute('create table t (a)')\nd.executemany('insert into t values (?)', [(i,) for i in range(500)])\nd.commit()\nprint(d.execute('select sum(a) from t').fetchone())", "(124750,)\n", 0},
	{"import threading\nl = []\nts = [threading.Thread(target=lambda: l.append(1)) for _ in range(5)]\nfor t in ts: t.start()\nfor t in ts: t.join()\nprint(l)", "[1, 1, 1, 1, 1]\n", 0},
	{"import threading, time\ndef f():\n  while True: time.sleep(0.0001)\nfor _ in range(3): threading.Thread(target=f, daemon=True).start()\nprint('left')", "left\n", 0},
	// A thread that still waits for the host when the run ends.
	{"import threading\nfrom _maf_host import call\nthreading.Thread(target=call, args=['hang'], daemon=True).start()\nprint(call('echo', b'x'))", "b'x'\n", 0},
	{"import ctypes\ntry: ctypes.CDLL(None).uname(1)\nexcept OSError: pass\nprint('alive')", "alive\n", 0},
}

// soakHost hangs or echoes.
func soakHost(ctx context.Context, name string, request []byte) ([]byte, error) {
	if name == "hang" {
		<-ctx.Done()
	}
	return request, ctx.Err()
}

// endless are programs that somebody has to stop; the second obeys nobody.
var endless = []string{
	"while True: pass", "sum(range(10**13))", "import os\nwhile True: os.getppid()", "import time\ntime.sleep(100)", "while True: print('x' * 100)",
	"import threading\ndef f():\n  while True: pass\nfor _ in range(3): threading.Thread(target=f, daemon=True).start()\nf()",
	"import threading\nl = threading.Lock()\nl.acquire()\nl.acquire()",
	"import _maf_host\n_maf_host.call('hang')",
}

// TestSoak lets several machines run, be interrupted, stopped, reset and
// replaced in a random order, and compares every reset machine with the
// template: every page, the registers and the state of the personality.
func TestSoak(t *testing.T) {
	// A small machine, because every reset reads all of its memory.
	tm := template(t, func(c *engine.Config) { c.Grace, c.Memory = 15*time.Millisecond, engine.MinMemory })
	tm.Sync()
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	before := count(t)
	var runs, cut, stopped, resets, machines atomic.Int64
	end := time.Now().Add(soakTime(t))
	var wg sync.WaitGroup
	for worker := range 3 {
		s := &soaker{tm: tm, rng: rand.New(rand.NewPCG(seed, uint64(worker)))}
		wg.Go(func() {
			for time.Now().Before(end) && !t.Failed() {
				if err := s.step(); err != nil {
					t.Errorf("worker %d: %v", worker, err)
				}
			}
			if s.vm != nil {
				if err := s.vm.Close(); err != nil {
					t.Error(err)
				}
			}
			runs.Add(s.runs)
			cut.Add(s.cut)
			stopped.Add(s.stopped)
			resets.Add(s.resets)
			machines.Add(s.machines)
		})
	}
	wg.Wait()
	t.Logf("%d machines, %d runs, %d cut short of which %d stopped hard, %d resets compared with the template",
		machines.Load(), runs.Load(), cut.Load(), stopped.Load(), resets.Load())
	settles(t, before)
}

// A soaker drives one machine after the other.
type soaker struct {
	tm  *engine.Template
	rng *rand.Rand
	vm  *engine.VM

	runs, cut, stopped, resets, machines int64
}

func (s *soaker) step() error {
	if s.vm == nil {
		vm, err := s.tm.New(context.Background())
		if err != nil {
			return err
		}
		s.vm = vm
		s.machines++
		return vm.Verify()
	}
	var err error
	switch n := s.rng.IntN(20); {
	case n < 9:
		err = s.program()
	case n < 13:
		err = s.endless()
	case n < 14:
		err = s.end()
	default:
		err = s.reset()
	}
	return err
}

// program runs a program that ends by itself, on a machine in whatever state.
func (s *soaker) program() error {
	// What an earlier program changed may show, and break this one; after a reset
	// it must not.
	fresh := s.rng.IntN(2) == 0
	if fresh {
		if err := s.reset(); err != nil || s.vm == nil {
			return err
		}
	}
	p := soakPrograms[s.rng.IntN(len(soakPrograms))]
	res, err := s.vm.Run(context.Background(), engine.Request{Code: []byte(p.code), Host: soakHost})
	s.runs++
	switch {
	case err == nil:
	case fresh || errors.Is(err, engine.ErrInternal) || errors.Is(err, engine.ErrGuestCrash):
		return fmt.Errorf("%q: %w", p.code, err)
	case !usable(err):
		return s.end()
	}
	if fresh && (string(res.Stdout) != p.want || res.ExitCode != p.exit) {
		return fmt.Errorf("%q: exit %d, output %.100q, errors %.300q", p.code, res.ExitCode, res.Stdout, res.Stderr)
	}
	return nil
}

// endless runs a program that is cut short by a deadline, a cancellation, its
// output, or the machine's being closed.
func (s *soaker) endless() error {
	code := endless[s.rng.IntN(len(endless))]
	after := time.Duration(s.rng.IntN(20_000)) * time.Microsecond
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	req := engine.Request{Code: []byte(code), Timeout: time.Minute, Host: soakHost}
	closing := make(chan error, 1)
	closes := false
	switch s.rng.IntN(4) {
	case 0, 1:
		req.Timeout = after + 1
	case 2:
		time.AfterFunc(after, cancel)
	default:
		vm := s.vm
		closes = true
		time.AfterFunc(after, func() { closing <- vm.Close() })
	}
	_, err := s.vm.Run(ctx, req)
	s.runs++
	var e *engine.Error
	if err == nil { // what an earlier program patched made it fail at once
		e = &engine.Error{Usable: true}
	} else if s.cut++; !errors.As(err, &e) || e.Kind == engine.KindInternal || e.Kind == engine.KindGuestCrash {
		return fmt.Errorf("%q was to be cut short: %w", code, err)
	}
	if closes {
		s.vm = nil
		return <-closing
	}
	if !e.Usable {
		s.stopped++
		return s.end()
	}
	return nil
}

func (s *soaker) end() error {
	err := s.vm.Close()
	s.vm = nil
	return err
}

// reset puts the machine back and compares it with the template.
func (s *soaker) reset() error {
	if err := s.vm.Reset(context.Background()); err != nil {
		return err
	}
	s.resets++
	return s.vm.Verify()
}

func TestVerifyFindsWhatAProgramChanged(t *testing.T) {
	vm := machine(t, template(t, nil))
	if err := vm.Verify(); err != nil {
		t.Fatal(err)
	}
	output(t, vm, "print(6*7)", "42\n")
	if err := vm.Verify(); err == nil || !strings.Contains(err.Error(), "differs") {
		t.Errorf("after a run: %v", err)
	}
	reset(t, vm)
	if err := vm.Verify(); err != nil {
		t.Error(err)
	}
}
