//go:build linux

package engine

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/maf-sandbox/maf-sandbox-go/internal/linux"
	"github.com/maf-sandbox/maf-sandbox-go/internal/linux/vfs"
	"github.com/maf-sandbox/maf-sandbox-go/internal/platform"
)

// The driver's protocol (guest/driver.py).
const (
	headerSize  = 4*4 + entropySize // struct "<IIII32s"
	entropySize = 32
	flagEcho    = 1
	flagLive    = 2
	flagSeed    = 4
	statusReady = 1 << 40
	maxName     = 255
)

// VM is one sandbox: a machine with an interpreter in it. Its methods may be
// called from any goroutine; runs queue in order.
type VM struct {
	template *Template
	machine  platform.Machine
	process  *linux.Process
	// turn holds one token: who has it may use the machine.
	turn       chan struct{}
	generation atomic.Pointer[string]
	slots      hostSlots

	seeded  bool   // the generation's random state is its own
	retired string // why the machine cannot be used any more
	current *run   // the run under way
}

// New makes a machine that stands where the interpreter has just started.
func (t *Template) New(ctx context.Context) (*VM, error) {
	if err := ctx.Err(); err != nil {
		return nil, &Error{Kind: KindCanceled, Message: "no machine was made", Cause: err}
	}
	m, err := t.config.Platform.Clone(t.t.Backing, t.t.Layout.Size(t.memory), t.t.Spans, &t.t.Context)
	if err != nil {
		return nil, &Error{Kind: KindUnavailable, Message: "no virtual machine", Cause: err}
	}
	vm := &VM{template: t, machine: m, turn: make(chan struct{}, 1)}
	vm.process = linux.New(linux.Config{
		Machine: m, Layout: t.t.Layout, Memory: t.memory, FS: t.newFS(m), Random: rand.Reader,
		Output: func(fd int, b []byte) {
			if vm.current != nil {
				vm.current.output(fd, b)
			}
		},
		Deadlocked: func() {
			if vm.current != nil {
				vm.current.watch.trip(deadlock)
			}
		},
		Obeyed: func() {
			if vm.current != nil {
				vm.current.watch.obeyed()
			}
		},
		Roams: roams(m),
		Host: func(c *linux.HostCall) (func(), syscall.Errno) {
			if vm.current == nil {
				return nil, syscall.ENOSYS
			}
			return vm.current.host(c)
		},
	})
	if err := guard(vm.start); err != nil {
		_ = m.Close()
		return nil, err
	}
	vm.turn <- struct{}{}
	return vm, nil
}

// roams reports whether a machine can be run on any thread. One that belongs to a
// thread of its own has OnThread.
func roams(m platform.Machine) bool {
	_, bound := m.(interface{ OnThread(f func()) })
	return !bound
}

// start puts the process where the template has it: a new generation.
func (vm *VM) start() error {
	t := vm.template.t
	vm.machine.StartClock(t.State.Monotonic)
	fs, err := vfs.Import(vm.template.base, fsLimits, fsClock(vm.machine), t.State.Files)
	if err == nil {
		err = vm.process.Restore(t.State, fs, vm.template.memory)
	}
	if err != nil {
		return &Error{Kind: KindInternal, Message: "the template cannot be restored", Cause: err}
	}
	var id [16]byte
	_, _ = rand.Read(id[:])
	s := hex.EncodeToString(id[:])
	vm.generation.Store(&s)
	vm.seeded = false
	return nil
}

// Generation names what the machine holds now: it changes with every Reset.
func (vm *VM) Generation() string { return *vm.generation.Load() }

// take waits for the machine's turn.
func (vm *VM) take(ctx context.Context) error {
	select {
	case <-vm.turn:
	default:
		select {
		case <-vm.turn:
		case <-ctx.Done():
			return notSubmitted(ctx)
		}
	}
	// What nobody waits for any more is not begun.
	if ctx.Err() != nil {
		vm.turn <- struct{}{}
		return notSubmitted(ctx)
	}
	if vm.retired != "" {
		vm.turn <- struct{}{}
		return &Error{Kind: KindRefused, Message: "the sandbox is retired (" + vm.retired + "); make a new one"}
	}
	return nil
}

// notSubmitted is the error of a call whose context ended before its turn.
func notSubmitted(ctx context.Context) error {
	kind, what := KindCanceled, "cancelled"
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		kind, what = KindTimeout, "the time limit was reached"
	}
	return &Error{Kind: kind, Message: what + " while waiting for the sandbox; nothing was submitted", Usable: true, Cause: ctx.Err()}
}

// Retired says why the machine can no longer be used; empty when it can.
func (vm *VM) Retired() string {
	<-vm.turn
	defer func() { vm.turn <- struct{}{} }()
	return vm.retired
}

// check validates a request and fills in defaults.
func (r *Request) check() error {
	if r.Timeout == 0 {
		r.Timeout = DefaultTimeout
	}
	if r.MaxOutput == 0 {
		r.MaxOutput = DefaultOutputBytes
	}
	if r.MaxCode == 0 {
		r.MaxCode = DefaultCodeBytes
	}
	if r.Filename == "" {
		r.Filename = "<sandbox>"
	}
	switch {
	case r.Timeout < 0:
		return refused("a time limit of %v was asked for; it must be positive", r.Timeout)
	case r.MaxOutput < 0 || r.MaxOutput > MaxOutputBytes:
		return refused("an output limit of %d bytes was asked for; at most %d bytes are allowed", r.MaxOutput, MaxOutputBytes)
	case r.MaxCode < 0 || r.MaxCode > MaxCodeBytes:
		return refused("a code limit of %d bytes was asked for; at most %d bytes are allowed", r.MaxCode, MaxCodeBytes)
	case len(r.Code) > r.MaxCode:
		return refused("the code has %d bytes; at most %d bytes are allowed", len(r.Code), r.MaxCode)
	case len(r.Filename) > maxName || strings.ContainsAny(r.Filename, "\x00\n"):
		return refused("the file name is longer than %d bytes or has a line break", maxName)
	case len(r.Argv) > MaxArgvBytes || len(r.Argv) > 0 && r.Argv[0] != 0:
		return refused("the arguments have more than %d bytes or do not begin with a zero byte", MaxArgvBytes)
	}
	return nil
}

// Run runs source text in the interpreter. What earlier runs of the same
// generation defined is still there. The Result holds what was captured, beside
// an error too. The time limit counts from the call.
func (vm *VM) Run(ctx context.Context, req Request) (Result, error) {
	start := time.Now()
	if err := req.check(); err != nil {
		return Result{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, req.Timeout)
	defer cancel()
	if err := vm.take(ctx); err != nil {
		return Result{Duration: time.Since(start)}, err
	}
	defer func() { vm.turn <- struct{}{} }()
	r := &run{vm: vm, req: req}
	vm.current = r
	defer func() { vm.current = nil }()
	err := r.do(ctx)
	r.result.Duration = time.Since(start)
	if err != nil {
		var e *Error
		if !errors.As(err, &e) {
			e = &Error{Kind: KindInternal, Message: "the sandbox failed", Cause: err}
			err = e
		}
		if !e.Usable {
			vm.retired = e.Message
		}
	} else if r.result.Exited {
		vm.retired = fmt.Sprintf("the program ended the interpreter with status %d", r.result.ExitCode)
	}
	return r.result, err
}

// Reset puts the machine back to its template: a new generation.
func (vm *VM) Reset(ctx context.Context) error {
	if err := vm.take(ctx); err != nil {
		return err
	}
	defer func() { vm.turn <- struct{}{} }()
	err := guard(func() error {
		if _, err := vm.machine.Revert(&vm.template.t.Context); err != nil {
			return err
		}
		return vm.start()
	})
	if err != nil {
		vm.retired = "a reset failed"
		return &Error{Kind: KindInternal, Message: vm.retired, Cause: err}
	}
	return nil
}

// Close stops a run under way and releases the machine.
func (vm *VM) Close() error {
	for {
		select {
		case <-vm.turn:
			vm.retired = "closed"
			err := vm.machine.Close()
			vm.turn <- struct{}{}
			return err
		case <-time.After(time.Millisecond):
			vm.process.Stop()
		}
	}
}

// header encodes a request to the driver.
func header(flags, name, source, nonce uint32, entropy [entropySize]byte) []byte {
	b := make([]byte, 0, headerSize)
	for _, v := range []uint32{flags, name, source, nonce} {
		b = binary.LittleEndian.AppendUint32(b, v)
	}
	return append(b, entropy[:]...)
}

// exchange gives the parked driver a request and waits for its answer, on the
// machine's thread.
func (vm *VM) exchange(head, payload []byte, maxValue int) (linux.Outcome, error) {
	if !vm.process.Resume(head, payload, maxValue) {
		return linux.Outcome{}, &Error{Kind: KindGuestCrash, Message: "the program damaged the driver's buffers"}
	}
	return vm.process.Run()
}

func signalName(s syscall.Signal) string {
	if n := unix.SignalName(s); n != "" {
		return n
	}
	return fmt.Sprintf("signal %d", int(s))
}
