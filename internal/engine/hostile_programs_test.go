//go:build linux && amd64

package engine_test

import (
	"time"

	"github.com/maf-sandbox/maf-sandbox-go/internal/engine"
)

// prelude gives the programs the C library without Python's checks in between.
const prelude = `
import ctypes, errno, mmap, os, resource, signal, sys, time
libc = ctypes.CDLL(None, use_errno=True)
libc.syscall.restype = ctypes.c_long
def call(nr, *args):
    r = libc.syscall(ctypes.c_long(nr), *[ctypes.c_ulong(a % 2**64) for a in args])
    return -ctypes.get_errno() if r == -1 else r
def refused(nr, *args, also=()):
    r = call(nr, *args)
    assert -r in (errno.ENOSYS, errno.EPERM, errno.EAGAIN, errno.EINVAL, errno.EFAULT) + also, (nr, r)
page = 4096
libc.mmap.restype = ctypes.c_long
def pages(n, prot=3):
    return libc.mmap(None, ctypes.c_ulong(n), prot, 0x22, -1, 0)
`

// threads keeps the threads' stacks small.
const threads = "import threading\nthreading.stack_size(64 << 10)\n"

// sigaction gives programs the kernel's own rt_sigaction.
const sigaction = `
def act(n, handler, restorer, flags=0x04000000, mask=0):
    a = (ctypes.c_ulong * 4)(handler % 2**64, flags, restorer % 2**64, mask)
    return call(13, n, ctypes.addressof(a), 0, 8)
old = (ctypes.c_ulong * 4)()
call(13, signal.SIGINT, 0, ctypes.addressof(old), 8)
restorer = old[2]
`

var hostiles = []hostile{
	{name: "bad pointers to every system call", alive: true, says: "alive\n", code: `
# What ends the process, sends it signals or waits for them is left out.
never = {15, 34, 37, 60, 62, 129, 200, 231, 234, 297}
blocks = {7, 23, 128, 130, 270, 271}
bad = [0, 1, page - 1, 0x1000, 0x4000, 0x10000, 0x3ff000, 2**40, 2**47 - 1, 2**47, 2**63, 2**64 - 2**31, -1, -4096]
count = 0
for nr in range(601):
    if nr in never: continue
    for p in bad:
        if p == 0 and nr in blocks: continue
        call(nr, p, p, p, p, p, p)
        if nr not in blocks:
            call(nr, 3, p, 2**63 - 1, 0, p, p)
            call(nr, 0, p, p, 8, 8, 8)
        count += 1
print('alive')`},
	{name: "pointers into what is read-only", alive: true, says: "alive\n", code: `
fd = os.open('/work/f', os.O_RDWR | os.O_CREAT)
os.write(fd, b'x' * 10000)
text = ctypes.cast(libc.syscall, ctypes.c_void_p).value & -page
for target in (text, text - page, 0x4000, 0x3ff000, 0x400000 - 8):
    os.lseek(fd, 0, 0)
    for r in (call(0, fd, target, 64), call(17, fd, target, 64, 0), call(318, target, 64, 0), call(96, target, 0), call(228, 0, target),
              call(79, target, 64), call(63, target), call(5, fd, target), call(131, 0, target), call(99, target), call(98, 0, target)):
        assert r == -errno.EFAULT, (hex(target), r)
print('alive')`},
	{name: "iovecs", alive: true, says: "alive\n", code: `
zero = os.open('/dev/zero', os.O_RDWR)
f = os.open('/work/f', os.O_RDWR | os.O_CREAT)
size = 1 << 16
buf = pages(size)
def vec(*pairs):
    v = (ctypes.c_ulong * (2 * len(pairs)))()
    for i, (a, n) in enumerate(pairs): v[2 * i], v[2 * i + 1] = a % 2**64, n % 2**64
    return ctypes.addressof(v), v
READV, WRITEV, PREADV, PWRITEV = 19, 20, 295, 296
for nr in READV, WRITEV, PREADV, PWRITEV:
    for fd in zero, f, 0, 3000, -1:
        for v in ([(buf, 2**63)], [(buf, 2**64 - 1)] * 3, [(buf, 2**62)] * 4, [(0, 8)], [(buf, 8), (-8, 8)], [(0, 0)] * 1024, [(2**47, 0)],
                  [(buf, size), (buf + size - 4, 8)], [(2**63, 1), (buf, 1)], [(buf + size - 4, 2**31)]):
            a, keep = vec(*v)
            for n in 0, 1, len(v), 1024, 1025, 2**31, 2**63, -1:
                call(nr, fd, a, n, 0, 0)
    call(nr, f, buf + size - 8, 2, 0, 0)
    call(nr, f, 2**47 - 16, 1024, 0, 0)
# The array of iovecs is inside its own buffers.
a, keep = vec(*[(buf, size)] * 1024)
ctypes.memmove(buf, a, 1024 * 16)
call(READV, zero, buf, 1024)
call(READV, zero, buf, 1024)
# The same buffer a thousand times over is 64 MiB, as much as files may hold.
a, keep = vec(*[(buf, size)] * 1024)
assert call(READV, zero, a, 1024) == size * 1024
n = call(WRITEV, f, a, 1024)
assert n == -errno.ENOSPC or 0 < n <= size * 1024, n
print('alive')`},
	{name: "a gigabyte of output by one call", ends: []engine.Kind{engine.KindOutputLimit}, says: "\x00", code: `
buf = pages(1 << 20)
v = (ctypes.c_ulong * 2048)(*[buf, 1 << 20] * 1024)
while True: call(20, 1, ctypes.addressof(v), 1024)`},
	{name: "path names without an end", alive: true, says: "alive\n", code: `
top, n = 0, 128 << 20
while n >= page: # all of memory up to its end
    a = pages(n)
    if a == -1: n //= 2
    else: top = max(top, a + n)
ctypes.memset(top - page, 0x61, page)
AT = -100 % 2**64
for start in (1, 2, 255, 4000, 4095):
    p = top - start
    for r in (call(2, p, 0), call(4, p, top - page), call(257, AT, p, 0), call(83, p, 0o777), call(82, p, p), call(88, p, p), call(89, p, p, 1), call(80, p), call(332, AT, p, 0, 0, p)):
        assert r in (-errno.EFAULT, -errno.ENAMETOOLONG), r
long = ctypes.create_string_buffer(b'a/' * 4096)
assert call(2, ctypes.addressof(long), 0) == -errno.ENAMETOOLONG
name = ctypes.create_string_buffer(b'/work/' + b'a' * 300)
assert call(2, ctypes.addressof(name), os.O_CREAT) == -errno.ENAMETOOLONG
call(11, top - (1 << 20), 1 << 20)
print('alive')`},
	{name: "storm of cheap calls", ends: stopped, cut: true, says: "begun\n", code: `
print('begun', flush=True)
signal.signal(signal.SIGINT, signal.SIG_IGN)
while True: libc.getppid()`},
	{name: "storm of calls that move much", ends: stopped, cut: true, says: "begun\n", code: `
print('begun', flush=True)
signal.signal(signal.SIGINT, signal.SIG_IGN)
buf = pages(64 << 20)
zero = os.open('/dev/zero', os.O_RDWR)
while True: call(0, zero, buf, 64 << 20); call(318, buf, 64 << 20, 0); call(28, buf, 64 << 20, 4)`},
	{name: "executable memory", alive: true, says: "alive\n", code: `
for prot in 4, 5, 6, 7:
    for flags in 0x22, 0x21, 0x32, 0x100022:
        r = call(9, pages(page), page, prot, flags, -1, 0)
        assert r in (-errno.EACCES, -errno.EEXIST), r
    assert call(10, pages(page), page, prot) == -errno.EACCES
    refused(329, pages(page), page, prot, 0, also=(errno.EACCES,))
    f = open('/work/code', 'w+b'); f.write(b'\xc3' * page); f.flush()
    assert call(9, 0, page, prot, 2, f.fileno(), 0) == -errno.EACCES
text = ctypes.cast(libc.syscall, ctypes.c_void_p).value & -page
assert call(10, text, page, 7) == -errno.EACCES
assert call(10, text, page, 3) == -errno.EACCES
print('alive')`},
	{name: "data as code", ends: crash, code: `
a = pages(page)
ctypes.memset(a, 0xc3, page)
ctypes.CFUNCTYPE(None)(a)()`},
	{name: "stack as code", ends: crash, code: `
b = ctypes.create_string_buffer(b'\xc3' * 100)
ctypes.CFUNCTYPE(None)(ctypes.addressof(b))()`},
	{name: "write to own text", ends: crash, code: `
ctypes.memset(ctypes.cast(libc.syscall, ctypes.c_void_p).value, 0x90, 16)`},
	{name: "jump to the system call stub", ends: either, timeout: time.Second, code: `ctypes.CFUNCTYPE(None)(0x4000)()`},
	{name: "jump behind the system call stub", ends: either, timeout: time.Second, code: `ctypes.CFUNCTYPE(None)(0x4002)()`},
	{name: "jump to an exception stub", ends: either, timeout: time.Second, code: `ctypes.CFUNCTYPE(None)(0x4100 + 14 * 8)()`},
	{name: "jump to the kernel's half", ends: crash, code: `ctypes.CFUNCTYPE(None)(0xffffffff81000000)()`},
	{name: "stack overflow in C", ends: crash, code: `
# qsort of nested calls: no Python frame counts them.
cmp = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)
sys.setrecursionlimit(10**9)
def deep(a, b):
    arr = (ctypes.c_int * 2)(2, 1)
    libc.qsort(arr, 2, 4, c)
    return 0
try: c = cmp(deep)
except MemoryError: ctypes.string_at(0) # where callbacks cannot be made
deep(0, 0)`},
	{name: "stack pointer moved far down", ends: crash, code: `
# alloca of a format string's width
ctypes.memset(ctypes.addressof(ctypes.c_int()) - (1 << 30), 0, 8)
b = ctypes.create_string_buffer(10)
for n in range(8, 40): ctypes.memset(0x400000 - page, 1, 1 << n)`},
	{name: "handler that never returns", ends: stopped, cut: true, says: "begun\n", code: `
def handler(*a):
    while True: pass
signal.signal(signal.SIGINT, handler)
print('begun', flush=True)
while True: pass`},
	{name: "SIGSEGV handler that returns to the fault", ends: either, cut: true, says: "begun\n", code: `
signal.signal(signal.SIGSEGV, lambda *a: None)
print('begun', flush=True)
ctypes.string_at(0)`},
	{name: "all signals blocked", ends: stopped, cut: true, says: "begun\n", code: `
signal.pthread_sigmask(signal.SIG_BLOCK, range(1, 65))
print('begun', flush=True)
while True: pass`},
	{name: "all signals blocked in a sleep", ends: stopped, cut: true, says: "begun\n", code: `
signal.pthread_sigmask(signal.SIG_BLOCK, range(1, 65))
print('begun', flush=True)
while True: time.sleep(1000)`},
	{name: "handlers at bad addresses", ends: crash, code: sigaction + `
act(signal.SIGUSR1, 2**63, restorer)
os.kill(os.getpid(), signal.SIGUSR1)`},
	{name: "handler without a way back", ends: crash, code: sigaction + `
act(signal.SIGUSR1, ctypes.cast(libc.getppid, ctypes.c_void_p).value, 2**47 - 1)
os.kill(os.getpid(), signal.SIGUSR1)`},
	{name: "handler that raises its own signal", ends: either, timeout: time.Second, code: sigaction + `
act(signal.SIGUSR1, ctypes.cast(libc.raise_ if hasattr(libc, 'raise_') else libc['raise'], ctypes.c_void_p).value, restorer, 0x44000000)
os.kill(os.getpid(), signal.SIGUSR1)
while True: os.kill(os.getpid(), signal.SIGUSR1)`},
	{name: "fault in the handler of the fault", ends: crash, code: sigaction + `
act(signal.SIGSEGV, 0x1234, restorer, 0x44000000)
ctypes.string_at(0)`},
	{name: "return from a handler that was never called", ends: crash, code: `call(15)`},
	{name: "alternate stack that is everywhere", alive: true, says: "alive\n", code: sigaction + `
a = (ctypes.c_ulong * 3)(0, 0, 2**64 - 1)
call(131, ctypes.addressof(a), 0)
act(signal.SIGUSR1, ctypes.cast(libc.getppid, ctypes.c_void_p).value, restorer, 0x0c000000)
os.kill(os.getpid(), signal.SIGUSR1)
print('alive')`},
	{name: "alternate stacks", ends: crash, says: "begun\n", code: sigaction + `
print('begun', flush=True)
def alt(sp, n, flags=0):
    a = (ctypes.c_ulong * 3)(sp % 2**64, flags, n % 2**64)
    return call(131, ctypes.addressof(a), 0)
for sp, n in (0, 8), (2**63, 2**63), (-4096, 8192), (2**47, 1 << 16), (0x4000, 4096), (ctypes.cast(libc.syscall, ctypes.c_void_p).value, 1 << 16):
    alt(sp, n)
    call(131, 0, 0)
alt(2**64 - 2**20, 2**19)
act(signal.SIGUSR1, ctypes.cast(libc.getppid, ctypes.c_void_p).value, restorer, 0x0c000000)
os.kill(os.getpid(), signal.SIGUSR1)
raise SystemExit('survived')`},
	{name: "what a sandbox does not offer", alive: true, says: "alive\n", code: `
for nr in (
    56, 57, 58, 59, 101, 103, 105, 106, 153, 154, 155, 156, 161, 163, 164, 165, 166, 167, 168, 169, 170, 171, 172, 173, 174, 175, 176, 177, 179,
    203, 205, 206, 211, 212, 216, 237, 238, 239, 246, 248, 249, 250, 253, 256, 272, 278, 279, 298, 300, 303, 304, 308, 310, 311, 312, 313, 317, 319, 320, 321,
    322, 323, 324, 329, 330, 333, 424, 425, 426, 427, 428, 429, 430, 431, 432, 433, 434, 435, 438, 440, 442, 443, 444, 445, 446, 447, 448, 449, 450, 451, 462):
    for args in (0, 0, 0, 0, 0, 0), (1, 1, 1, 1, 1, 1), (-1, 0, 0, 0, 0, 0):
        refused(nr, *args, also=(errno.EBADF, errno.ESRCH, errno.ENODEV, errno.EACCES, errno.EAFNOSUPPORT, errno.ECHILD))
import _socket as sk
def dial(family, kind, address): sk.socket(family, kind).connect(address)
for f in os.fork, lambda: dial(2, 1, ('192.0.2.1', 80)), lambda: dial(10, 1, ('2001:db8::1', 80)), lambda: dial(2, 2, ('127.0.0.1', 53)), lambda: dial(2, 3, ('127.0.0.1', 1)), lambda: dial(16, 3, (0, 0)), lambda: dial(17, 3, ('lo', 3)), lambda: os.execv('/usr/bin/python3', ['x']), lambda: os.system('x'), lambda: os.kill(1, 9), lambda: os.kill(99, 9), lambda: os.setuid(0), lambda: os.chroot('/'):
    try: f()
    except OSError: continue
    raise SystemExit('not refused')
print('alive')`},
	{name: "descriptors", alive: true, says: "alive\n", code: `
fds = []
try:
    while True: fds.append(os.open('/work/f%d' % (len(fds) % 7), os.O_RDWR | os.O_CREAT))
except OSError as e: assert e.errno == errno.EMFILE
assert len(fds) == 1021
for n in 1024, 1 << 20, (1 << 20) + 3, 2**31 - 1, 2**32, 2**63:
    assert call(33, 1, n) < 0 and call(292, 1, n, 0) < 0 and call(72, 1, 0, n) < 0 and call(3, n) < 0
for fd in fds: os.close(fd)
call(436, 0, 2**32 - 1, 0)
print('alive')`},
	{name: "folder entries", alive: true, says: "alive\n", code: `
n = 0
try:
    while True:
        os.mkdir('/tmp/%d' % n)
        n += 1
except OSError as e: assert e.errno == errno.ENOSPC, e
assert 1000 < n < 100_000
assert len(os.listdir('/tmp')) == n
try: os.symlink('x', '/work/l'); raise SystemExit('no limit')
except OSError as e: assert e.errno == errno.ENOSPC, e
print('alive')`},
	{name: "bytes of files", alive: true, says: "alive\n", code: `
total = 0
try:
    for i in range(1000):
        fd = os.open('/tmp/%d' % i, os.O_RDWR | os.O_CREAT)
        total += os.write(fd, b'x' * (1 << 20))
        os.close(fd)
except OSError as e: assert e.errno == errno.ENOSPC, e
assert 1 << 20 < total <= 64 << 20, total
fd = os.open('/tmp/0', os.O_RDWR)
for n in 1 << 62, 2**63 - 1, 1 << 46, 1 << 40:
    for f in (lambda: os.ftruncate(fd, n), lambda: os.pwrite(fd, b'x', n), lambda: os.posix_fallocate(fd, 0, n)):
        try: f()
        except OSError as e: assert e.errno in (errno.ENOSPC, errno.EFBIG, errno.EINVAL, errno.EOVERFLOW), e
print('alive')`},
	{name: "deep and looping folders", alive: true, says: "alive\n", code: `
os.chdir('/tmp')
try:
    for i in range(20_000):
        os.mkdir('d'); os.chdir('d')
except OSError as e: assert e.errno in (errno.ENOSPC, errno.ENAMETOOLONG), e
try: os.getcwd()
except OSError as e: assert e.errno in (errno.ENAMETOOLONG, errno.ERANGE), e
os.chdir('/work')
os.symlink('b', 'a'); os.symlink('a', 'b')
try: open('a')
except OSError as e: assert e.errno == errno.ELOOP, e
for old, new in ('/tmp', '/tmp/d/x'), ('/tmp/d', '/tmp/d/d/x'):
    try: os.rename(old, new); raise SystemExit('a loop')
    except OSError: pass
print('alive')`},
	{name: "all of memory", alive: true, says: "alive\n", code: `
a, n = [], 64 << 20
while n >= page:
    p = pages(n)
    if p == -1: n //= 2
    else: a.append((p, n)); ctypes.memset(p, 1, n)
for p, n in a: call(11, p, n)
print('alive')`},
	{name: "memory in pieces", ends: append(stopped, engine.KindMemory), timeout: 2 * time.Second, code: `
base = pages(150 << 20)
while True:
    for p in range(base, base + (150 << 20), 2 * page): call(11, p, page)
    for p in range(base, base + (150 << 20), 2 * page): call(9, p, page, 3, 0x32, -1, 0)`},
	{name: "memory the interpreter uses given back", ends: either, timeout: time.Second, code: `
# Whatever it takes to be free is zeroed when it is handed out again.
call(11, 0, 1 << 46)
call(12, 0)
while True: x = [bytearray(1 << 20) for _ in range(50)]`},
	{name: "interpreter's objects destroyed", ends: either, timeout: time.Second, code: `ctypes.memset(id(print), 0xff, 64); print(1)`},
	{name: "driver's rings destroyed", ends: append(either, engine.KindOutputLimit), timeout: time.Second, code: `
import gc
for o in gc.get_objects():
    if type(o).__name__ == 'Ring':
        m = o.memory
        m[:4] = b'\xff' * 4
        b = (ctypes.c_char * len(m)).from_buffer(m)
        os.write(1, b'x')
        m[:4] = b'\xff' * 4
call(15)`},
	{name: "threads without end", alive: true, says: "alive\n", code: threads + `
event, started = threading.Event(), []
try:
    while True:
        t = threading.Thread(target=event.wait)
        t.start()
        started.append(t)
except RuntimeError: pass
assert 50 < len(started) < 1000, len(started)
event.set()
for t in started: t.join()
print('alive')`},
	{name: "threads that spin", ends: stopped, cut: true, says: "begun\n", code: threads + `
signal.pthread_sigmask(signal.SIG_BLOCK, range(1, 65))
def spin():
    while True: libc.getppid()
for _ in range(50): threading.Thread(target=spin, daemon=True).start()
print('begun', flush=True)
spin()`},
	{name: "threads that wait for each other", ends: []engine.Kind{engine.KindDeadlock}, code: threads + `
signal.pthread_sigmask(signal.SIG_BLOCK, range(1, 65))
a, b = threading.Lock(), threading.Lock()
def take(x, y):
    with x:
        time.sleep(0.05)
        with y: pass
t = threading.Thread(target=take, args=(b, a))
t.start()
take(a, b)`},
	{name: "thread with a wild stack", ends: either, timeout: 2 * time.Second, code: `
assert call(56, 0x50f00, 2**63, 0, 0, 0) > 0
while True: call(24)`},
	{name: "thread with wild pointers", alive: true, says: "alive\n", code: `
flags = 0x50f00
for tls in 2**47, 2**63, -1, -page:
    assert call(56, flags | 0x80000, pages(page) + page, 0, 0, tls) == -errno.EPERM
for extra in 0x100000, 0x1000000:
    for p in 0, 0x4000, 2**47, -8:
        assert call(56, flags | extra, pages(page) + page, p, p, 0) == -errno.EFAULT
for extra in 0x2000, 0x4000, 0x1000, 0x20000, 0x2000000, 0x10000000, 0x8000000, 0x40000000, 2**40:
    assert call(56, flags | extra, pages(page) + page, 0, 0, 0) < 0
for n in 0, 63, 4097, 2**63, -1: assert call(435, pages(page), n) < 0
for p in 0, 0x4000, 2**47, -64: assert call(435, p, 64) == -errno.EFAULT
for op in range(14):
    for p in 0, 4, 0x4000, 2**47, -4, 2**63: call(202, p, op, 1, 2**63, p, -1)
print('alive')`},
	{name: "a thread that parks the driver", claims: true, ends: append(either, engine.KindDeadlock), timeout: 2 * time.Second, code: threads + `
def park():
    h, b = bytearray(100), bytearray(100)
    os.preadv(1 << 20, [h, b], 0)
    while True: os.preadv(1 << 20, [h, b], 7)
t = threading.Thread(target=park)
t.start()
t.join()`},
	{name: "the main thread leaves", ends: append(either, engine.KindDeadlock), timeout: 2 * time.Second, code: threads + `
threading.Thread(target=time.sleep, args=(1000,), daemon=True).start()
call(60, 0)`},
	{name: "arithmetic traps", ends: crash, code: `
libm = ctypes.CDLL('libm.so.6')
libm.feenableexcept(0x3f)
libm.feraiseexcept(4)
x = 1e308
while True: x = x * 10 / 0.1`},
}
