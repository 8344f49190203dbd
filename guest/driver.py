"""Run source text on request: the program that the guest's interpreter starts.

It talks to the host through reserved descriptors (internal/linux/mailbox.go):

  PARK    preadv([header, source], status) ends a run and returns the next one, or
          nothing: the run had an interrupt, take it and park again
  RINGS   preadv([out, err]) says where output waits
  SOURCE  preadv([buffer], offset) reads source text that did not fit
  VALUE   write(repr) gives the value of a trailing expression
  OBEY    write() says that an interrupt was obeyed

A sixth one, for calls of the host, is _maf_host's.

A user's program can patch or delete whatever it likes in the modules it sees,
and the driver must still report the next run. So everything the driver needs
is bound here before the first run, and its own builtins are a copy.
"""

import faulthandler
import gc
import io
import linecache
import os
import signal
import struct
import sys
import time
import traceback
import types
from _signal import SIG_BLOCK, pthread_sigmask
from _thread import RLock, stack_size

PARK, RINGS, SOURCE, VALUE, OBEY = range(1 << 20, (1 << 20) + 5)
# flags, length of the name, length of the source, nonce, 32 random bytes. Behind
# the name, and counted with it, are the elements of sys.argv, each after a zero.
HEADER = struct.Struct("<IIII32s")
FLAG_ECHO, FLAG_LIVE, FLAG_SEED = 1, 2, 4
READY = 1 << 40

RING_HEADER, RING_SIZE = 8, 64 << 10
BUFFER_SIZE = 64 << 10
# What is set free when memory runs out, so that the traceback can be made. It is
# bytes, which CPython takes from fresh zero pages without touching them.
RESERVE = 2 << 20
# Tracebacks longer than this show their first TRACE_SHOWN entries only.
TRACE_MAX, TRACE_SHOWN = 3000, 100
SOURCES_KEPT = 64
# A thread's stack takes that much of the guest's memory, touched or not; the C
# library's 8 MiB would let a guest of 256 MiB have 27 threads.
THREAD_STACK = 2 << 20

PRELOAD = (
    "json math re datetime statistics collections itertools functools decimal "
    "random string textwrap"
).split()


class Ring(io.BufferedIOBase):
    """A binary stream into memory that the host empties.

    Writing costs no system call; what is in it survives whatever ends the run.
    """

    def __init__(self, fd, name):
        self.memory = bytearray(RING_HEADER + RING_SIZE)
        view = memoryview(self.memory)
        head = view[:RING_HEADER].cast("I")  # bytes that wait, confirmed nonce
        data = view[RING_HEADER:]
        lock = RLock()
        write_fd = os.write
        self.name, self.mode, self._fd = name, "wb", fd

        def write(b, bytes=bytes, type=type, len=len, memoryview=memoryview):
            if type(b) is not bytes:
                b = memoryview(b).tobytes()
            n = len(b)
            with lock:
                at = head[0]
                end = at + n
                if end > RING_SIZE:
                    if n > RING_SIZE:
                        return write_fd(fd, b)  # which empties the ring first
                    write_fd(fd, b"")
                    at, end = 0, n
                data[at:end] = b
                head[0] = end
            return n

        def flush():
            if head[0]:
                write_fd(fd, b"")

        def discard():
            head[0] = 0

        def confirm(nonce):
            head[1] = nonce

        self.write, self.flush, self.discard, self.confirm = write, flush, discard, confirm

    def close(self):
        self.flush()

    closed = property(lambda self: False)

    def fileno(self):
        return self._fd

    def readable(self):
        return False

    def writable(self):
        return True

    def seekable(self):
        return False

    def isatty(self):
        return False


class Quitter:
    """exit and quit: leave the program, not the sandbox."""

    def __init__(self, name):
        self.name = name

    def __repr__(self):
        return "Use %s() or Ctrl-D (i.e. EOF) to exit" % self.name

    def __call__(self, code=None):
        raise SystemExit(code)


class Helper:
    """help, made when it is first used."""

    def __repr__(self):
        return "Type help() for interactive help, or help(object) for help about object."

    def __call__(self, *args, **kwds):
        import pydoc

        return pydoc.help(*args, **kwds)


def make_driver():
    # Locals and default arguments: user code has no name for any of them.
    KeyboardInterrupt_ = KeyboardInterrupt
    exec_, compile_, isinstance_, str_, repr_, len_ = exec, compile, isinstance, str, repr, len
    preadv, os_write = os.preadv, os.write
    print_exception = traceback.print_exception
    cache = linecache.cache
    unpack, header = HEADER.unpack, bytearray(HEADER.size)
    body = bytearray(BUFFER_SIZE)
    request, body_view = [header, body], memoryview(body)
    running, interrupted, pending = [False], [False], [False]
    reserve = [bytes(RESERVE)]
    sources = {}
    # random's own generator and the C function behind its seed: the Python one
    # touches three times as many pages, each of which costs a fresh machine.
    generator = sys.modules["random"]._inst
    set_state, from_bytes = sys.modules["_random"].Random.seed, int.from_bytes

    out, err = Ring(1, "<stdout>"), Ring(2, "<stderr>")
    stdout = io.TextIOWrapper(out, "utf-8", "surrogateescape", "\n", write_through=True)
    stderr = io.TextIOWrapper(err, "utf-8", "backslashreplace", "\n", write_through=True)
    sys.stdout = sys.__stdout__ = stdout
    sys.stderr = sys.__stderr__ = stderr
    preadv(RINGS, [out.memory, err.memory], 0)

    class Interrupt:
        """The handler of SIGINT. It stands in for the interpreter's own one and,
        like a function in C, does not turn into a method."""

        __module__, __name__ = "signal", "default_int_handler"

        def __repr__(self):
            return "<built-in function default_int_handler>"

        def __call__(self, signum, frame):
            # Outside the user's program nobody could handle it.
            if running[0]:
                interrupted[0] = True
                raise KeyboardInterrupt
            pending[0] = True

    # asyncio handles SIGINT its own way, by cancelling the main task, only where
    # it finds the default handler.
    interrupt = signal.default_int_handler = Interrupt()
    signal.signal(signal.SIGINT, interrupt)
    faulthandler.enable(file=2, all_threads=False)

    interrupt_code = Interrupt.__call__.__code__

    def report(e, skip):
        """Print an exception as the interpreter would, without our own frames."""
        tb = e.__traceback__
        while skip and tb is not None:
            tb, skip = tb.tb_next, skip - 1
        last, t = None, tb
        while t is not None and t.tb_next is not None:
            last, t = t, t.tb_next
        if last is not None and t.tb_frame.f_code is interrupt_code:
            last.tb_next = None
        if isinstance_(e, MemoryError):
            reserve.clear()
        try:
            for name, text in sources.items():
                if name not in cache:
                    lines = text.decode("utf-8", "replace").splitlines(True)
                    cache[name] = (len_(text), None, lines, name)
            depth, t = 0, tb
            while t is not None and depth <= TRACE_MAX:
                depth, t = depth + 1, t.tb_next
            if depth > TRACE_MAX:
                print_exception(None, e, tb, TRACE_SHOWN, stderr, False)
                stderr.write("(traceback cut after %d entries)\n" % TRACE_SHOWN)
            else:
                print_exception(None, e, tb, None, stderr, True)
        except BaseException as again:
            try:
                stderr.write("%s (its traceback could not be printed: %s)\n"
                             % (type(e).__name__, type(again).__name__))
            except BaseException:
                os_write(2, b"exception without a printable traceback\n")
        finally:
            for name in sources:
                cache.pop(name, None)

    def exit_code(e):
        code = e.code
        if code is None:
            return 0
        if isinstance_(code, int):
            return code & 0xFF
        try:
            stderr.write(str_(code) + "\n")
        except BaseException:
            stderr.write("exit code could not be printed\n")
        return 1

    def split(source, name):
        """Compile all statements, and a trailing expression apart."""
        import ast

        tree = compile_(source, name, "exec", 0x400, True)  # ast.PyCF_ONLY_AST
        last = None
        if tree.body and isinstance_(tree.body[-1], ast.Expr):
            last = compile_(ast.Expression(tree.body.pop().value), name, "eval", 0, True)
        return compile_(tree, name, "exec", 0, True), last

    def run(source, name, echo, ns, argv=None):
        """Run a program; the result is its exit code."""
        try:
            if argv:
                sys.argv = argv
            sources.pop(name, None)
            while len_(sources) >= SOURCES_KEPT:
                del sources[next(iter(sources))]
            sources[name] = source
            last = None
            # An interrupt that an earlier program swallowed is not this one's.
            interrupted[0] = False
            running[0] = True
            if pending[0]:  # it came before the program did
                pending[0], interrupted[0] = False, True
                raise KeyboardInterrupt_
            if echo:
                code, last = split(source, name)
            else:
                code = compile_(source, name, "exec", 0, True)
            exec_(code, ns)
            if last is not None:
                value = eval(last, ns)
                if value is not None:
                    ns["_"] = value
                    os_write(VALUE, repr_(value).encode("utf-8", "backslashreplace"))
            running[0] = False
            return 0
        except SystemExit as e:
            running[0] = False
            return exit_code(e)
        except BaseException as e:
            running[0] = False
            # Whoever handled the signal, asyncio for instance, raises this.
            if interrupted[0] or isinstance_(e, KeyboardInterrupt_):
                interrupted[0] = False
                os_write(OBEY, b"")
            report(e, 1)
            return 1
        finally:
            running[0] = False
            if argv:
                sys.argv = [""]
            if not reserve:
                try:
                    reserve.append(bytes(RESERVE))
                except MemoryError:
                    pass

    def seed(entropy):
        """Give every generator whose state the template froze a new state."""
        set_state(generator, from_bytes(entropy, "little"))
        generator.gauss_next = None
        modules = sys.modules
        m = modules.get("numpy.random")
        if m is not None:
            m.seed(list(struct.unpack("<8I", entropy)))
        m = modules.get("tempfile")
        if m is not None:
            m._name_sequence = None
        m = modules.get("uuid")
        if m is not None:
            m._node = m._last_timestamp = None

    main = types.ModuleType("__main__")
    # The builtins module itself, which is what a program is to see and patch.
    main.__dict__["__builtins__"] = sys.modules["builtins"]
    sys.modules["__main__"] = main
    ns = main.__dict__

    def warm_up():
        """Touch what every program needs, so that the template has it done."""
        scratch = {"__name__": "__main__", "__builtins__": sys.modules["builtins"]}
        for text in (
            b"def f(x):\n    return x\nfor i in range(3):\n    print(f(i), [i], {i: str(i)}, f'{i:.2f}')\n",
            b"import sys; sys.exit(3)",
            b"1/0",
            b"def f(:",
        ):
            run(text, "<warm-up>", False, scratch)
        run(b"6*7", "<warm-up>", True, scratch)
        sources.clear()
        out.discard()
        err.discard()
        gc.collect()
        if hasattr(gc, "freeze"):
            gc.freeze()

    def serve():
        status, live, confirm = READY, 0, out.confirm
        while True:
            try:
                while not preadv(PARK, request, status):
                    # An interrupt is under way: this runs its handler for sure.
                    pthread_sigmask(SIG_BLOCK, ())
                    pending[0] = False
                flags, name_len, source_len, nonce, entropy = unpack(header)
                if flags & FLAG_SEED:
                    seed(entropy)
                    confirm(nonce)
                total = name_len + source_len
                if total <= BUFFER_SIZE:
                    text = body_view[:total].tobytes()
                else:
                    text = bytearray(total)
                    view = memoryview(text)
                    view[:BUFFER_SIZE] = body_view
                    at = BUFFER_SIZE
                    while at < total:
                        n = preadv(SOURCE, [view[at:]], at)
                        if not n:
                            break
                        at += n
                    view.release()
                    text = bytes(text)
                if live != flags & FLAG_LIVE:
                    live = flags & FLAG_LIVE
                    for stream in stdout, stderr:
                        stream.reconfigure(line_buffering=bool(live))
                # As the interpreter reads its command line, which can be any bytes.
                name, argv = text[:name_len].decode("utf-8", "surrogateescape"), None
                if "\0" in name:
                    name, *argv = name.split("\0")
                status = run(text[name_len:], name, flags & FLAG_ECHO, ns, argv)
                text = view = argv = None
            except BaseException as e:
                # Nothing above lets a program's exception through; this is
                # memory running out, or an interrupt, between two runs.
                status = 1
                try:
                    report(e, 0)
                except BaseException:
                    pass

    return warm_up, serve


def main():
    sys.argv = [""]
    site = os.environ.pop("MAF_SITE", "")
    sys.path += [p for p in site.split(":") if p] + ["/work"]
    import builtins

    builtins.exit = Quitter("exit")
    builtins.quit = Quitter("quit")
    builtins.help = Helper()
    stack_size(THREAD_STACK)
    # The C library has read them; a program has no use for them.
    for name in "LD_LIBRARY_PATH", "MALLOC_ARENA_MAX":
        os.environ.pop(name, None)
    for name in PRELOAD:
        __import__(name)
    sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
    import _maf_host
    import _maf_http  # noqa: F401, compiled here and not in every fresh sandbox
    import _maf_tools
    import refusals

    del sys.path[0]
    refusals.install()
    builtins.http_get = _maf_host.http_get
    builtins.http_post = _maf_host.http_post
    builtins.call_tool = _maf_tools.call_tool
    for name in ("refusals", "faulthandler"):
        sys.modules.pop(name, None)
    # From here on the driver's names resolve in a private copy of builtins.
    own = globals()
    own["__builtins__"] = dict(vars(builtins))
    warm_up, serve = make_driver()
    warm_up()
    serve()


if __name__ == "__main__":
    main()
