//go:build linux && amd64

package engine_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/maf-sandbox/maf-sandbox-go/internal/engine"
)

// cutShort runs a program that is cancelled, or reaches its time limit, after a
// moment, and wants what must come of it whenever that is: the program's own end,
// or an interrupt that was obeyed.
func cutShort(t *testing.T, vm *engine.VM, code string, after time.Duration, cancelled bool) error {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	req := engine.Request{Code: []byte(code), Timeout: patience(engine.DefaultTimeout)}
	switch {
	case !cancelled:
		req.Timeout = after
	case after == 0:
		cancel()
	default:
		defer time.AfterFunc(after, cancel).Stop()
	}
	res, err := vm.Run(ctx, req)
	want := engine.ErrTimeout
	if cancelled {
		want = engine.ErrCanceled
	}
	if err != nil && (!errors.Is(err, want) || !usable(err)) || err == nil && res.ExitCode != 0 {
		t.Fatalf("%q cut short after %v: exit %d, %v\nstderr %s", code, after, res.ExitCode, err, res.Stderr)
	}
	return err
}

// An interrupt that comes before the program does is the first thing it meets.
func TestAnInterruptAtAnyMomentIsObeyed(t *testing.T) {
	// What counts is that programs obey, not how soon.
	tm := template(t, func(c *engine.Config) { c.Grace = patience(5 * time.Second) })
	random := rand.New(rand.NewPCG(1, 2)) //nolint:gosec // repeatable on purpose
	step := 100 * time.Microsecond
	if testing.Short() {
		step *= 5
	}
	for _, shape := range []struct {
		name    string
		prepare func(t *testing.T, vm *engine.VM)
	}{
		{"fresh", func(*testing.T, *engine.VM) {}},
		{"after a failure", func(t *testing.T, vm *engine.VM) { run(t, vm, "1/0") }},
		{"after an interrupt", func(t *testing.T, vm *engine.VM) {
			_ = cutShort(t, vm, "while True: pass", time.Millisecond, true)
		}},
		{"after a reset", func(t *testing.T, vm *engine.VM) {
			run(t, vm, "left = 1")
			if err := vm.Reset(context.Background()); err != nil {
				t.Fatal(err)
			}
		}},
	} {
		t.Run(shape.name, func(t *testing.T) {
			vm := machine(t, tm)
			for after := time.Duration(0); after <= 5*time.Millisecond; after += step {
				for _, code := range []string{"x = 1", "while True: pass"} {
					if shape.name == "fresh" {
						if err := vm.Close(); err != nil {
							t.Fatal(err)
						}
						vm = machine(t, tm)
					}
					shape.prepare(t, vm)
					// A time limit of zero is the default one.
					cancelled := after == 0 || random.IntN(2) == 0
					if err := cutShort(t, vm, code, after, cancelled); err == nil && code != "x = 1" {
						t.Fatalf("an endless program came to its end after %v", after)
					}
					clean(t, vm, after)
				}
			}
		})
	}
}

// clean wants an ordinary run, which nothing of the one before disturbs.
func clean(t *testing.T, vm *engine.VM, after time.Duration) {
	t.Helper()
	if res := run(t, vm, "print(6*7)"); string(res.Stdout) != "42\n" || res.ExitCode != 0 || len(res.Stderr) > 0 {
		t.Fatalf("after a run that was cut short after %v: exit %d, %q, stderr %s", after, res.ExitCode, res.Stdout, res.Stderr)
	}
}

// Around the end of a run an interrupt is that run's or nobody's.
func TestAnInterruptIsNeverTheNextRuns(t *testing.T) {
	vm := machine(t, template(t, func(c *engine.Config) { c.Grace = patience(5 * time.Second) }))
	rounds := 3000
	if testing.Short() {
		rounds = 200
	}
	random := rand.New(rand.NewPCG(7, 7)) //nolint:gosec // repeatable on purpose
	obeyed := 0
	for range rounds {
		after := time.Duration(random.IntN(400)) * time.Microsecond
		if cutShort(t, vm, "pass", after, true) != nil {
			obeyed++
		}
		clean(t, vm, after)
	}
	t.Logf("%d of %d were cut short", obeyed, rounds)
}

// A program's own handler is its own affair: the sandbox stays usable where the
// handler raises, whenever it is called.
func TestAHandlerOfTheProgramsOwnMeetsInterruptsAtAnyMoment(t *testing.T) {
	vm := machine(t, template(t, func(c *engine.Config) { c.Grace = patience(5 * time.Second) }))
	run(t, vm, `import signal
def stop(*_): raise KeyboardInterrupt('stop')
signal.signal(signal.SIGINT, stop)`)
	for after := time.Duration(0); after <= 2*time.Millisecond; after += 50 * time.Microsecond {
		ctx, cancel := context.WithCancel(context.Background())
		timer := time.AfterFunc(after, cancel)
		_, err := vm.Run(ctx, engine.Request{Code: []byte("while True: pass"), Timeout: patience(engine.DefaultTimeout)})
		timer.Stop()
		cancel()
		if !errors.Is(err, engine.ErrCanceled) || !usable(err) {
			t.Fatalf("after %v: %v", after, err)
		}
		clean(t, vm, after)
	}
}
