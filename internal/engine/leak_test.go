//go:build linux && amd64

package engine_test

import (
	"context"
	"errors"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/maf-sandbox/maf-sandbox-go/internal/engine"
)

// usage counts what a machine could leave behind.
type usage struct{ descriptors, goroutines, mappings int }

func count(t *testing.T) usage {
	t.Helper()
	fds, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	maps, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		t.Fatal(err)
	}
	return usage{len(fds), runtime.NumGoroutine(), strings.Count(string(maps), "\n")}
}

// settles waits until nothing more than before is left.
func settles(t *testing.T, before usage) {
	t.Helper()
	// The Go runtime maps a little more now and then.
	const slack = 16
	var now usage
	for range 2000 {
		now = count(t)
		if now.descriptors <= before.descriptors && now.goroutines <= before.goroutines && now.mappings <= before.mappings+slack {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Errorf("before %+v, after %+v", before, now)
}

// C6, B3: machines come and go in any state and leave nothing.
func TestMachinesLeaveNothingBehind(t *testing.T) {
	tm := template(t, func(c *engine.Config) { c.Grace = 5 * time.Millisecond })
	ends := []func(vm *engine.VM) error{
		func(*engine.VM) error { return nil },
		func(vm *engine.VM) error {
			_, err := vm.Run(context.Background(), engine.Request{Code: []byte("print(6*7)")})
			return err
		},
		func(vm *engine.VM) error {
			_, err := vm.Run(context.Background(), engine.Request{Code: []byte("while True: pass"), Timeout: 10 * time.Millisecond})
			return ignore(err, engine.ErrTimeout)
		},
		func(vm *engine.VM) error {
			_, err := vm.Run(context.Background(), engine.Request{Code: []byte("sum(range(10**13))"), Timeout: 10 * time.Millisecond})
			return ignore(err, engine.ErrTimeout)
		},
		func(vm *engine.VM) error {
			_, err := vm.Run(context.Background(), engine.Request{
				Code: []byte("from _maf_host import call; call('hang')"), Timeout: 10 * time.Millisecond, Host: soakHost,
			})
			return ignore(err, engine.ErrTimeout)
		},
		func(vm *engine.VM) error {
			_, err := vm.Run(context.Background(), engine.Request{Code: []byte("import os; os.abort()")})
			return ignore(err, engine.ErrGuestCrash)
		},
		func(vm *engine.VM) error {
			_, err := vm.Run(context.Background(), engine.Request{Code: []byte("x = bytearray(100 << 20)")})
			return errors.Join(err, vm.Reset(context.Background()))
		},
	}
	rounds := 50
	if testing.Short() {
		rounds = 5
	}
	round := func(n int) {
		for range n {
			for i, end := range ends {
				vm, err := tm.New(context.Background())
				if err == nil {
					err = errors.Join(end(vm), vm.Close())
				}
				if err != nil {
					t.Fatalf("end %d: %v", i, err)
				}
			}
		}
	}
	round(2)
	before := count(t)
	round(rounds)
	settles(t, before)
}

func ignore(err, allowed error) error {
	if errors.Is(err, allowed) {
		return nil
	}
	return err
}

// A boot soak: the interpreter starts every time.
func TestTheInterpreterBootsEveryTime(t *testing.T) {
	n := 15
	if testing.Short() {
		n = 2
	}
	for i := range n {
		tm := template(t, func(c *engine.Config) { c.Cache = "" })
		vm, err := tm.New(context.Background())
		if err != nil {
			t.Fatalf("boot %d: %v", i, err)
		}
		output(t, vm, "print(6*7)", "42\n")
		if err := vm.Close(); err != nil {
			t.Fatal(err)
		}
	}
}
