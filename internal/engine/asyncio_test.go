//go:build linux && amd64

package engine_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/maf-sandbox/maf-sandbox-go/internal/engine"
)

func TestAsyncioWorks(t *testing.T) {
	tm := template(t, nil)
	for name, c := range map[string]struct{ code, want string }{
		"gather of a hundred sleeps, five threads and a temporary folder": {`
import asyncio, os, tempfile, threading
async def nap(i):
    await asyncio.sleep(0.01); return i
async def main(): return sum(await asyncio.gather(*(nap(i) for i in range(100))))
print(asyncio.run(main()))
out, ts = [], [threading.Thread(target=lambda i=i: out.append(i)) for i in range(5)]
for t in ts: t.start()
for t in ts: t.join()
with tempfile.TemporaryDirectory() as d:
    open(os.path.join(d, 'f'), 'w').write('x'); print(sorted(out), os.listdir(d))`, "4950\n[0, 1, 2, 3, 4] ['f']\n"},
		"wait_for and timeouts": {`
import asyncio
async def main():
    try: await asyncio.wait_for(asyncio.sleep(30), 0.01)
    except asyncio.TimeoutError: print('late')
    print(await asyncio.wait_for(asyncio.sleep(0.001, 'in time'), 30))
asyncio.run(main())`, "late\nin time\n"},
		"to_thread": {`
import asyncio, time
async def main():
    t = asyncio.create_task(asyncio.to_thread(lambda: (time.sleep(0.01), 'thread')[1]))
    n = 0
    while not t.done(): n += 1; await asyncio.sleep(0)
    print(await t, n > 0)
asyncio.run(main())`, "thread True\n"},
		"queues, locks and events": {`
import asyncio
async def main():
    q, out = asyncio.Queue(2), []
    async def make():
        for i in range(20): await q.put(i)
        for _ in range(3): await q.put(None)
    async def use():
        while (x := await q.get()) is not None: out.append(x)
    await asyncio.gather(make(), use(), use(), use())
    lock, e = asyncio.Lock(), asyncio.Event()
    async def wait():
        async with lock: await e.wait(); return 'set'
    t = asyncio.create_task(wait()); asyncio.get_running_loop().call_later(0.005, e.set)
    print(sum(out), await t)
asyncio.run(main())`, "190 set\n"},
		"calls from other threads": {`
import asyncio, threading
async def main():
    loop, f = asyncio.get_running_loop(), asyncio.get_running_loop().create_future()
    threading.Thread(target=loop.call_soon_threadsafe, args=(f.set_result, 'from a thread')).start()
    print(await f)
asyncio.run(main())`, "from a thread\n"},
		"streams over a socket pair": {`
import asyncio, socket
async def main():
    a, b = socket.socketpair()
    r, w = await asyncio.open_connection(sock=a); r2, w2 = await asyncio.open_connection(sock=b)
    w.write(b'x' * 300000 + b'\n'); w.write_eof()
    got = await r2.readexactly(300001); print(len(got), await r2.read())
    w.close(); w2.close()
asyncio.run(main())`, "300001 b''\n"},
		"pipes with select, poll and epoll": {`
import os, select, threading
for wait in 'select', 'poll', 'epoll':
    r, w = os.pipe()
    threading.Timer(0.005, os.write, (w, b'data')).start()
    if wait == 'select': got = select.select([r], [], [], 30)[0]
    else:
        p = getattr(select, wait)(); p.register(r, 1); got = [fd for fd, _ in p.poll(30)] if wait == 'epoll' else [fd for fd, _ in p.poll(30000)]
    print(got == [r], os.read(r, 99)); os.close(w); print(os.read(r, 1)); os.close(r)`, strings.Repeat("True b'data'\nb''\n", 3)},
		"a task left pending": {`
import asyncio
async def forever(): await asyncio.sleep(3600)
async def main(): asyncio.create_task(forever()); await asyncio.sleep(0); print('done')
asyncio.run(main())`, "done\n"},
	} {
		t.Run(name, func(t *testing.T) {
			vm := machine(t, tm)
			output(t, vm, c.code, c.want)
			output(t, vm, c.code, c.want)
			reset(t, vm)
			output(t, vm, c.code, c.want)
		})
	}
}

func TestAnInterruptCancelsAnAsyncioProgram(t *testing.T) {
	tm := template(t, nil)
	vm := machine(t, tm)
	res, err := runUntilBegun(vm, `
import asyncio
async def main():
    print('begun', flush=True)
    try: await asyncio.sleep(3600)
    finally: print('cleaned up')
asyncio.run(main())`)
	var e *engine.Error
	if !errors.Is(err, engine.ErrCanceled) || !errors.As(err, &e) || !e.Usable || string(res.Stdout) != "begun\ncleaned up\n" {
		t.Fatalf("%v; stdout %q, stderr %q", err, res.Stdout, res.Stderr)
	}
	output(t, vm, "print(6*7)", "42\n")
}

// runUntilBegun runs a program and cancels it when it prints for the first time.
func runUntilBegun(vm *engine.VM, code string) (engine.Result, error) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	return vm.Run(ctx, engine.Request{Code: []byte(code), Timeout: time.Minute, Stdout: writerFunc(cancel)})
}
