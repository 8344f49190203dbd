//go:build linux && amd64

package engine_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/maf-sandbox/maf-sandbox-go/internal/engine"
)

// watching has the host called "ready" once the main thread is in a function: an
// interrupt that meets it while it starts threads or takes locks may hang any
// CPython.
const watching = `
import sys, threading, time
from _maf_host import call
def ready(name):
    main, found = threading.main_thread().ident, False
    while not found:
        time.sleep(0.001)
        frame = sys._current_frames()[main]
        while frame is not None:
            found = found or frame.f_code.co_name == name
            frame = frame.f_back
    call('ready')
def watch(name): threading.Thread(target=ready, args=[name]).start()
`

// Only the main thread hears of an interrupt; it may wait for others, which wait
// for the host.
func TestThreadsThatWaitForTheHostEndWithAnInterrupt(t *testing.T) {
	tm := template(t, nil)
	for name, c := range map[string]struct {
		code, waitsIn string
		want          []error
	}{
		"a pool of threads": {`
from concurrent.futures import ThreadPoolExecutor
with ThreadPoolExecutor(2) as ex: list(ex.map(call, ['x'] * 5))`, "result", []error{engine.ErrTimeout, engine.ErrCanceled}},
		"a pool with work that is not withdrawn": {`
from concurrent.futures import ThreadPoolExecutor
with ThreadPoolExecutor(2) as ex:
    for f in [ex.submit(call, 'x') for _ in range(30)]: f.result()`, "result", []error{engine.ErrTimeout, engine.ErrCanceled}},
		"threads of asyncio": {`
import asyncio
async def main(): await asyncio.gather(*[asyncio.to_thread(call, 'x') for _ in range(3)])
asyncio.run(main())`, "select", []error{engine.ErrTimeout, engine.ErrCanceled}},
		// The call that says it is ready would wait for its turn.
		"more threads than there are calls at once": {`
from concurrent.futures import ThreadPoolExecutor
with ThreadPoolExecutor(24) as ex: list(ex.map(call, ['x'] * 24))`, "", []error{engine.ErrTimeout}},
		"too much output": {`
from concurrent.futures import ThreadPoolExecutor
with ThreadPoolExecutor(2) as ex:
    held = [ex.submit(call, 'x') for _ in range(5)]
    while True: print('x' * 1000)`, "", []error{engine.ErrOutputLimit}},
	} {
		for _, want := range c.want {
			t.Run(fmt.Sprintf("%s, %v", name, want), func(t *testing.T) {
				vm := machine(t, tm)
				before := count(t)
				outputWith(t, vm, "kept = 1", "", nil)
				ctx, cancel := context.WithCancel(context.Background())
				defer cancel()
				host := func(ctx context.Context, name string, _ []byte) ([]byte, error) {
					if name != "ready" {
						<-ctx.Done()
						return nil, ctx.Err()
					}
					cancel()
					return nil, nil
				}
				code, timeout := watching+c.code, time.Minute
				switch want { //nolint:errorlint // these very values
				case engine.ErrCanceled:
					code = watching + "watch('" + c.waitsIn + "')" + c.code
				case engine.ErrTimeout:
					timeout = 500 * time.Millisecond
				}
				res, err := vm.Run(ctx, engine.Request{Code: []byte(code), Timeout: patience(timeout), MaxOutput: 1 << 16, Host: host})
				var e *engine.Error
				if !errors.Is(err, want) || !errors.As(err, &e) || !e.Usable {
					t.Fatalf("%v; stderr %q", err, res.Stderr)
				}
				output(t, vm, "print(kept)", "1\n")
				settles(t, before)
			})
		}
	}
}
