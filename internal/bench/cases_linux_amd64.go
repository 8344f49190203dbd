package bench

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime/debug"
	"strconv"
	"strings"
	"time"

	"github.com/maf-sandbox/maf-sandbox-go/internal/engine"
)

// warmUp is how many runs come before those that count.
const warmUp = 20

func (s *suite) warm(ctx context.Context, n int) (Samples, error) {
	return s.with(ctx, func(vm *engine.VM) (Samples, error) {
		run := func() error { return ask(ctx, vm) }
		if _, err := each(warmUp, nil, run); err != nil {
			return Samples{}, err
		}
		return each(n, nil, run)
	})
}

func (s *suite) reset(ctx context.Context, n int) (Samples, error) {
	return s.with(ctx, func(vm *engine.VM) (Samples, error) {
		return each(n, func() error { return ask(ctx, vm) }, func() error { return vm.Reset(ctx) })
	})
}

func (s *suite) resetRun(ctx context.Context, n int) (Samples, error) {
	return s.with(ctx, func(vm *engine.VM) (Samples, error) {
		return each(n, nil, func() error {
			return errors.Join(vm.Reset(ctx), ask(ctx, vm))
		})
	})
}

// spare takes sandboxes as a pool would keep them.
func (s *suite) spare(ctx context.Context, n int) (Samples, error) {
	var vm *engine.VM
	out, err := each(n, func() (err error) {
		if vm != nil {
			if err := vm.Close(); err != nil {
				return err
			}
		}
		if vm, err = s.template.New(ctx); err != nil {
			return err
		}
		return errors.Join(ask(ctx, vm), vm.Reset(ctx))
	}, func() error { return ask(ctx, vm) })
	if vm != nil {
		err = errors.Join(err, vm.Close())
	}
	return out, err
}

func (s *suite) fresh(ctx context.Context, n int) (Samples, error) {
	return answers(ctx, n, func() (*engine.Template, func() error, error) {
		return s.template, func() error { return nil }, nil
	})
}

// first opens everything anew, as the first run in a process does.
func (s *suite) first(ctx context.Context, n int) (Samples, error) {
	s.template.Sync() // the boot may still be writing it
	return answers(ctx, n, func() (*engine.Template, func() error, error) {
		return s.anew(ctx, s.config.Templates)
	})
}

func (s *suite) boot(ctx context.Context, n int) (Samples, error) {
	return answers(ctx, n, func() (*engine.Template, func() error, error) { return s.anew(ctx, "") })
}

func (s *suite) anew(ctx context.Context, templates string) (*engine.Template, func() error, error) {
	p, err := openPlatform(s.config.Engine)
	if err != nil {
		return nil, nil, err
	}
	t, err := s.open(ctx, p, templates)
	if err != nil {
		return nil, nil, errors.Join(err, p.Close())
	}
	return t, func() error { return errors.Join(t.Close(), p.Close()) }, nil
}

// answers takes n samples of how long it is from open to the first answer of a
// sandbox. Closing does not count.
func answers(ctx context.Context, n int, open func() (*engine.Template, func() error, error)) (Samples, error) {
	var out Samples
	for range n {
		start := time.Now()
		t, stop, err := open()
		if err != nil {
			return out, err
		}
		vm, err := t.New(ctx)
		if err != nil {
			return out, errors.Join(err, stop())
		}
		err = ask(ctx, vm)
		out.Values = append(out.Values, MS(time.Since(start)))
		if err := errors.Join(err, vm.Close(), stop()); err != nil {
			return out, err
		}
	}
	return out, nil
}

// process starts the whole program, and the native interpreter in turn.
func (s *suite) process(ctx context.Context, n int) (Samples, error) {
	s.template.Sync()
	out := Samples{NativeName: "python3 -c", NativeShare: 0.5} // at most twice as long
	for range n {
		start := time.Now()
		cmd := exec.CommandContext(ctx, s.config.Run[0])
		cmd.Args = s.config.Run[1:]
		text, err := cmd.Output()
		out.Values = append(out.Values, MS(time.Since(start)))
		if err != nil || string(text) != "42\n" {
			return out, fmt.Errorf("the program printed %.100q: %w", text, err)
		}
		if s.noNative != nil {
			continue
		}
		start = time.Now()
		if _, err := s.native.run(ctx, answer); err != nil {
			return out, err
		}
		out.Native = append(out.Native, MS(time.Since(start)))
	}
	return out, nil
}

// memory makes sandboxes, warms them up and resets them, and looks at what each
// adds to the memory of this process.
func (s *suite) memory(ctx context.Context, n int) (out Samples, err error) {
	var vms []*engine.VM
	defer func() {
		for _, vm := range vms {
			err = errors.Join(err, vm.Close())
		}
	}()
	before, err := s.proportional()
	if err != nil {
		return out, err
	}
	for range n {
		vm, err := s.template.New(ctx)
		if err != nil {
			return out, err
		}
		vms = append(vms, vm)
		if err := errors.Join(ask(ctx, vm), vm.Reset(ctx)); err != nil {
			return out, err
		}
		after, err := s.proportional()
		if err != nil {
			return out, err
		}
		out.Values = append(out.Values, max(0, after-before))
		before = after
	}
	return out, nil
}

// proportional gives the proportional set size, in MiB, of this process and of
// those that are part of its sandboxes, after giving back what the Go heap does
// not need.
func (s *suite) proportional() (float64, error) {
	debug.FreeOSMemory()
	sum, err := proportionalOf("self")
	for _, c := range s.platform.Needs().Children {
		size, e := proportionalOf(strconv.Itoa(c.PID))
		sum, err = sum+size, errors.Join(err, e)
	}
	return sum, err
}

func proportionalOf(process string) (float64, error) {
	b, err := os.ReadFile("/proc/" + process + "/smaps_rollup")
	if errors.Is(err, os.ErrPermission) {
		return 0, fmt.Errorf("only root may look at a sandbox's process: %w", err)
	}
	if err != nil {
		return 0, err
	}
	for line := range bytes.Lines(b) {
		if f := strings.Fields(string(line)); len(f) == 3 && f[0] == "Pss:" {
			kib, err := strconv.ParseFloat(f[1], 64)
			return kib / 1024, err
		}
	}
	return 0, errors.New("no proportional set size in smaps_rollup")
}

// cpu runs a workload in a sandbox and natively, in turn.
func (s *suite) cpu(name string) func(context.Context, int) (Samples, error) {
	return func(ctx context.Context, n int) (Samples, error) {
		if s.noNative != nil {
			return Samples{}, s.noNative
		}
		code, err := workload(name)
		if err != nil {
			return Samples{}, err
		}
		return s.with(ctx, func(vm *engine.VM) (Samples, error) {
			out := Samples{NativeName: "native python", NativeShare: nativeShare}
			for range n {
				guest, err := timed(vm.Run(ctx, engine.Request{Code: []byte(code)}))
				if err != nil {
					return out, err
				}
				text, err := s.native.run(ctx, code)
				if err != nil {
					return out, err
				}
				host, err := parseNumber(text)
				if err != nil {
					return out, err
				}
				out.Values, out.Native = append(out.Values, guest), append(out.Native, host)
			}
			return out, nil
		})
	}
}

func timed(res engine.Result, err error) (float64, error) {
	if err != nil {
		return 0, err
	}
	if res.ExitCode != 0 {
		return 0, fmt.Errorf("status %d: %s", res.ExitCode, lastLine(res.Stderr))
	}
	return parseNumber(string(res.Stdout))
}

// Programs that outlive their deadline. The second one's inner loop has a
// condition because CPython 3.11 lets an interrupt of "while True: pass" out of
// the try statement round it.
const (
	obedient = "while True: pass"
	stubborn = "x = 1\nwhile True:\n    try:\n        while x: x = 2\n    except BaseException: pass"
)

// overrunLimit is the time limit of a run that is to overrun. The first run of
// a fresh sandbox needs several milliseconds before the program begins.
const overrunLimit = 50 * time.Millisecond

func (s *suite) overrun(code string, obeys bool) func(context.Context, int) (Samples, error) {
	return func(ctx context.Context, n int) (Samples, error) {
		var out Samples
		var vm *engine.VM
		defer func() {
			if vm != nil {
				_ = vm.Close() // the error of the samples counts
			}
		}()
		for range n {
			if vm == nil {
				var err error
				if vm, err = s.template.New(ctx); err != nil {
					return out, err
				}
				if err := ask(ctx, vm); err != nil {
					return out, err
				}
			}
			start := time.Now()
			_, err := vm.Run(ctx, engine.Request{Code: []byte(code), Timeout: overrunLimit})
			passed := time.Since(start)
			var known *engine.Error
			if !errors.As(err, &known) || known.Kind != engine.KindTimeout {
				return out, fmt.Errorf("no overrun: %w", err)
			}
			if known.Usable != obeys {
				return out, fmt.Errorf("unexpected end of an overrun: %w", err)
			}
			out.Values = append(out.Values, MS(max(0, passed-overrunLimit)))
			if !known.Usable {
				err := vm.Close()
				vm = nil
				if err != nil {
					return out, err
				}
			}
		}
		return out, nil
	}
}

func (s *suite) output(ctx context.Context, n int) (Samples, error) {
	const size = 1 << 20
	return s.with(ctx, func(vm *engine.VM) (Samples, error) {
		return each(n, nil, func() error {
			res, err := vm.Run(ctx, engine.Request{
				Code: []byte("import sys; _ = sys.stdout.write('x' * (1 << 20))"), MaxOutput: 2 * size,
			})
			if err == nil && len(res.Stdout) != size {
				err = fmt.Errorf("%d bytes came of %d", len(res.Stdout), size)
			}
			return err
		})
	})
}
