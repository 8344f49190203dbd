//go:build linux

package engine

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/maf-sandbox/maf-sandbox-go/internal/linux"
	"github.com/maf-sandbox/maf-sandbox-go/internal/platform"
)

// cause is why a run was cut short.
type cause int

const (
	none cause = iota
	deadline
	canceled
	outputFull
	deadlock
)

// run is one run under way.
type run struct {
	vm     *VM
	ctx    context.Context // ends with the run
	req    Request
	result Result
	watch  watch
	nonce  uint32
	early  bool // output came before the confirmation
}

// watch cuts a run short: an interrupt that the program can obey first, a hard
// stop after the grace.
type watch struct {
	process *linux.Process
	grace   time.Duration

	mu    sync.Mutex // guards what follows
	why   cause
	hard  *time.Timer
	ended bool
	// extended says that the hard stop was put off.
	extended bool
}

// tracebackGrace is how long a traceback may take to print once a program has
// given way to an interrupt: in a fresh machine the first one touches some
// hundred pages, 15 ms where that is slow.
const tracebackGrace = 150 * time.Millisecond

// threadGrace is added for each thread of a program with several: CPython handles
// signals in the main one, which has to wait for its turn at the interpreter
// lock, two switch intervals of 5 ms for every other thread that computes.
const (
	threadGrace    = 10 * time.Millisecond
	maxThreadGrace = 100 * time.Millisecond
)

// trip cuts the run short. Only the first cause counts.
func (w *watch) trip(c cause) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.ended || w.why != none {
		return
	}
	w.why = c
	grace := w.grace
	if n := w.process.Threads(); n > 1 {
		grace += min(time.Duration(n)*threadGrace, maxThreadGrace)
	}
	w.process.Interrupt()
	w.hard = time.AfterFunc(grace, func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		if !w.ended {
			w.process.Stop()
		}
	})
}

// tripped reports whether the run has been cut short.
func (w *watch) tripped() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.why != none
}

// obeyed gives a program that gave way to the interrupt the time to print its
// traceback, once. That it did is the guest's own claim; it gains no more than
// this.
func (w *watch) obeyed() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.ended || w.hard == nil || w.extended || !w.hard.Stop() {
		return
	}
	w.extended = true
	w.hard.Reset(max(w.grace, tracebackGrace))
}

// end makes sure that nothing acts on the process any more and gives the cause.
func (w *watch) end() cause {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.ended = true
	if w.hard != nil {
		w.hard.Stop()
	}
	return w.why
}

// do runs the request and fills in the result. Everything that touches guest
// memory is guarded.
func (r *run) do(ctx context.Context) error {
	vm := r.vm
	vm.process.Clear()
	r.watch = watch{process: vm.process, grace: vm.template.config.Grace}
	stop := context.AfterFunc(ctx, func() {
		if errors.Is(ctx.Err(), context.DeadlineExceeded) {
			r.watch.trip(deadline)
		} else {
			r.watch.trip(canceled)
		}
	})
	defer stop()
	var over context.CancelFunc
	r.ctx, over = context.WithCancel(ctx)
	var out linux.Outcome
	confirmed := false
	var err error
	platform.OnThread(vm.machine, func() {
		err = guard(func() (err error) {
			vm.machine.SyncClock()
			out, err = r.exchange()
			vm.process.Drain()
			confirmed = r.confirmed()
			return err
		})
	})
	why := r.watch.end()
	over()
	vm.process.DropHostCalls()
	vm.process.Clear()
	if err != nil {
		return err
	}
	if r.early || !confirmed && out.Kind != linux.Stopped {
		return &Error{Kind: KindInternal, Message: "the sandbox did not confirm new random state after its restore; it is retired"}
	}
	return r.judge(ctx, out, why)
}

// legible rounds a limit that is what was left of a longer one when it came here.
func legible(d time.Duration) time.Duration {
	if d < 10*time.Millisecond {
		return d
	}
	return d.Round(time.Millisecond)
}

// exchange gives the driver the request. The first one of a generation brings
// fresh entropy for the interpreter's generators and a nonce to confirm it with.
func (r *run) exchange() (linux.Outcome, error) {
	flags := uint32(0)
	if r.req.Echo {
		flags |= flagEcho
	}
	if r.req.Live {
		flags |= flagLive
	}
	var entropy [entropySize]byte
	if !r.vm.seeded {
		flags |= flagSeed
		var nonce [4]byte
		_, _ = rand.Read(entropy[:]) // never fails (crypto/rand)
		_, _ = rand.Read(nonce[:])
		// Zero is what the template holds.
		r.nonce = binary.LittleEndian.Uint32(nonce[:]) | 1
	}
	name, argv := r.req.Filename, r.req.Argv
	payload := make([]byte, 0, len(name)+len(argv)+len(r.req.Code))
	payload = append(append(append(payload, name...), argv...), r.req.Code...)
	head := header(flags, uint32(len(name)+len(argv)), uint32(len(r.req.Code)), r.nonce, entropy)
	return r.vm.exchange(head, payload, MaxValueBytes)
}

// confirmed reports whether the generation has random state of its own. Until
// it has, nothing that comes out of the guest is used.
func (r *run) confirmed() bool {
	if !r.vm.seeded {
		r.vm.seeded = r.vm.process.Confirmed(r.nonce)
	}
	return r.vm.seeded
}

// output takes what the program writes, within the limit.
func (r *run) output(fd int, b []byte) {
	if !r.confirmed() {
		r.early = true
		r.vm.process.Stop()
		return
	}
	room := r.req.MaxOutput - len(r.result.Stdout) - len(r.result.Stderr)
	full := len(b) > room
	if full {
		b = b[:max(room, 0)]
	}
	to, tee := &r.result.Stdout, r.req.Stdout
	if fd == 2 {
		to, tee = &r.result.Stderr, r.req.Stderr
	}
	*to = append(*to, b...)
	if tee != nil && len(b) > 0 {
		_, _ = tee.Write(b)
	}
	if full {
		r.watch.trip(outputFull)
	}
}

// judge turns the way a run ended into the result and the error.
func (r *run) judge(ctx context.Context, out linux.Outcome, why cause) error {
	usable := false
	var crash *Error
	switch out.Kind {
	case linux.Parked:
		if out.Status < 0 || out.Status > 0xFF {
			crash = &Error{Kind: KindGuestCrash, Message: "the program broke the driver's protocol"}
			break
		}
		usable = true
		r.result.ExitCode = int(out.Status)
		if r.req.Echo {
			r.result.Value = string(r.vm.process.Value())
		}
	case linux.Exited:
		r.result.ExitCode, r.result.Exited = int(out.Status), true
	case linux.Killed:
		r.result.ExitCode = 128 + int(out.Signal)
		crash = r.crash(out)
	case linux.Stopped:
		// As a shell reports a process that was killed.
		r.result.ExitCode = 128 + 9
		if why == none {
			return &Error{Kind: KindCanceled, Message: "the sandbox was closed", Cause: context.Canceled}
		}
	}
	how := "the program was interrupted and the sandbox can be used again"
	if !usable {
		how = "the program did not stop by itself and the sandbox is retired"
	}
	switch why {
	case deadline:
		return &Error{
			Kind: KindTimeout, Usable: usable, Cause: context.DeadlineExceeded,
			Message: fmt.Sprintf("time limit of %v reached: %s", legible(r.req.Timeout), how),
		}
	case canceled:
		return &Error{Kind: KindCanceled, Usable: usable, Cause: context.Cause(ctx), Message: "cancelled: " + how}
	case deadlock:
		return &Error{
			Kind: KindDeadlock, Usable: usable,
			Message: "deadlock: every thread of the program waited for another one, without a time limit: " + how,
		}
	case outputFull:
		return &Error{
			Kind: KindOutputLimit, Usable: usable,
			Message: fmt.Sprintf("output limit of %d bytes reached: %s", r.req.MaxOutput, how),
		}
	}
	if crash != nil {
		return crash
	}
	return nil
}

// crash describes the signal that ended the interpreter.
func (r *run) crash(out linux.Outcome) *Error {
	what := "the interpreter was ended by " + signalName(out.Signal)
	if out.Fault {
		what = fmt.Sprintf("the interpreter crashed with %s at address %#x", signalName(out.Signal), out.Addr)
	}
	if r.vm.process.MemoryDenied() {
		return &Error{Kind: KindMemory, Message: what + " after it ran out of memory; the sandbox is retired"}
	}
	return &Error{Kind: KindGuestCrash, Message: what + "; the sandbox is retired"}
}
