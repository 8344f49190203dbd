//go:build linux

package engine

import (
	"context"
	"errors"
	"strings"
	"sync"
	"syscall"

	"github.com/maf-sandbox/maf-sandbox-go/internal/linux"
)

// maxRequestBytes bounds the requests that are under way at once, in bytes.
const maxRequestBytes = 2 * MaxHostBytes

// hostSlots bound what a machine has running in the host. A function of the host
// that goes on after its run has ended still counts.
type hostSlots struct {
	mu           sync.Mutex
	calls, bytes int
}

// take makes room for a call with a request of n bytes.
func (s *hostSlots) take(n int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.calls >= MaxHostCalls || s.bytes+n > maxRequestBytes {
		return false
	}
	s.calls, s.bytes = s.calls+1, s.bytes+n
	return true
}

func (s *hostSlots) release(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls, s.bytes = s.calls-1, s.bytes-n
}

// host begins a guest's call to the host.
func (r *run) host(c *linux.HostCall) (cancel func(), e syscall.Errno) {
	vm, ask := r.vm, r.req.Ask
	if ask == nil && r.req.Host != nil {
		ask = r.req.Host.ask
	}
	switch {
	case !r.confirmed():
		r.early = true
		vm.process.Stop()
		return nil, syscall.ECANCELED
	case ask == nil:
		return nil, syscall.ENOSYS
	case r.ctx.Err() != nil || r.watch.tripped():
		// The program is being interrupted.
		return nil, syscall.ECANCELED
	case !vm.slots.take(c.Size()):
		return nil, syscall.EAGAIN
	}
	name, request, ok := c.Take()
	if !ok {
		vm.slots.release(c.Size())
		return nil, syscall.EFAULT
	}
	ctx, cancel := context.WithCancel(r.ctx)
	ask(ctx, name, request, func(reply []byte, err error) {
		switch {
		case ctx.Err() != nil:
			// The guest has dropped the call, or is being interrupted in it: this
			// answer would only race with the KeyboardInterrupt.
		case errors.Is(err, ErrNotOffered):
			c.Refuse(syscall.ENOSYS)
		case errors.Is(err, ErrNoRoom):
			c.Refuse(syscall.ENOBUFS)
		case err != nil:
			c.Answer([]byte(strings.ToValidUTF8(err.Error(), "\uFFFD")), true)
		default:
			c.Answer(reply, false)
		}
		cancel()
		vm.slots.release(len(request))
		vm.process.Look()
	})
	return cancel, 0
}

// ask has the function work on a goroutine of its own.
func (f HostFunc) ask(ctx context.Context, name string, request []byte, answer func([]byte, error)) {
	go func() { answer(callHost(ctx, f, name, request)) }()
}

// errHostPanic is what the guest hears of a mistake in the host.
var errHostPanic = errors.New("the function failed in the host")

// callHost calls the host's function. A panic there must not end the process.
func callHost(ctx context.Context, f HostFunc, name string, request []byte) (reply []byte, err error) {
	defer func() {
		if recover() != nil {
			reply, err = nil, errHostPanic
		}
	}()
	return f(ctx, name, request)
}
