//go:build linux && amd64

package ptrace

import (
	"runtime"
	"runtime/debug"

	"golang.org/x/sys/unix"
)

// thread is a goroutine that stays on one thread of the kernel for all its
// life: the tracer of one child, which dies when the thread ends.
type thread struct {
	id   int
	work chan func()
	// back is the panic of the last call, nil if there was none.
	back  chan any
	ended chan struct{}
}

func startThread() *thread {
	t := &thread{work: make(chan func()), back: make(chan any), ended: make(chan struct{})}
	started := make(chan int)
	go t.loop(started)
	t.id = <-started
	return t
}

func (t *thread) loop(started chan<- int) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	// Also when a call ends the goroutine (runtime.Goexit).
	defer close(t.ended)
	// A template's file that was cut off raises SIGBUS where it is read: that
	// is a panic for the caller to deal with, and not the end of the process.
	debug.SetPanicOnFault(true)
	started <- unix.Gettid()
	for f := range t.work {
		t.back <- caught(f)
	}
}

// caught calls f and gives what it panicked with.
func caught(f func()) (v any) {
	defer func() { v = recover() }()
	f()
	return nil
}

// here reports whether the caller is on the thread: nobody else can be, since
// it belongs to one goroutine.
func (t *thread) here() bool { return unix.Gettid() == t.id }

// do calls f on the thread. Calls come one at a time.
func (t *thread) do(f func()) {
	if t.here() {
		f()
		return
	}
	select {
	case t.work <- f:
	case <-t.ended:
		runtime.Goexit()
	}
	select {
	case v := <-t.back:
		if v != nil {
			panic(v)
		}
	case <-t.ended:
		// f ended the goroutine, as a test does that fails: so does its caller.
		runtime.Goexit()
	}
}

// stop ends the goroutine. Nothing may be called any more.
func (t *thread) stop() {
	close(t.work)
	if !t.here() { // else it ends with the call it is in
		<-t.ended
	}
}
