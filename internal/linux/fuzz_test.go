package linux

import (
	"bytes"
	"encoding/binary"
	"slices"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/maf-sandbox/maf-sandbox-go/internal/platform"
)

// fuzzer turns bytes into system calls.
type fuzzer struct {
	g    *guest
	data []byte
	// addresses are interesting places and test data, numbers the calls there are.
	addresses []uint64
	numbers   []uint64
	// pending are calls to the host without an answer; asked, taken and cancelled
	// count those that came, were taken and were cancelled.
	pending                 []*HostCall
	asked, taken, cancelled int
}

func (f *fuzzer) next() byte {
	if len(f.data) == 0 {
		return 0
	}
	b := f.data[0]
	f.data = f.data[1:]
	return b
}

// sizes and small values that arguments are made of.
var fuzzValues = []uint64{
	0, 1, 2, 3, 4, 7, 8, 16, 63, 64, 100, 0x22, 0x32, 0x802, 0x1000, 0x1001, 0x2000, 0x10000, 0x100000, 0x100032, 0x400000,
	0x241, 0x402, 0x80000, 0x200000, 0x410002, 1 << 20, 1<<20 + 1, 1<<20 + 2, 1<<20 + 3, 1<<20 + 4, 8 << 20, 1 << 31, 1<<31 - 1, 1 << 32,
	cloneShared, cloneShared | cloneChildClear | cloneSetTLS, futexWait | 128, futexWakeOp, futexCmpRequeue,
	1 << 40, 1<<46 + 1, 1 << 62, 1<<63 - 1, 1 << 63, ^uint64(0), ^uint64(0) - 7, ^uint64(0) &^ 0xfff, cwdFD, 1<<30 - 1, 1e9, callFD,
}

// arg decodes one argument: an address, a value, or a small number.
func (f *fuzzer) arg() uint64 {
	switch k, v := f.next(), f.next(); k % 4 {
	case 0:
		return uint64(v)
	case 1:
		return fuzzValues[int(v)%len(fuzzValues)]
	case 2:
		return f.addresses[int(v)%len(f.addresses)]
	default:
		return f.addresses[int(v)%len(f.addresses)] + uint64(int8(f.next()))*uint64(k/4)
	}
}

// newFuzzer puts test data into guest memory.
func newFuzzer(g *guest, data []byte) *fuzzer {
	f := &fuzzer{g: g, data: data}
	l := g.l
	f.addresses = []uint64{
		l.Exe.Lo, l.Exe.Lo + page, l.Exe.Hi, l.Interp.Lo, l.VDSO, l.Stack.Lo, l.Stack.Hi, l.Stack.Hi - 1, l.Stack.Hi - 8,
		l.Brk.Lo, l.Brk.Lo + page, l.Brk.Hi, l.Heap.Lo, l.Heap.Lo + page, l.Heap.Lo + 1<<20, g.p.mem.end - page, g.p.mem.end, l.Heap.Hi,
		l.Objects[0].Lo, l.Objects[0].Lo + page, l.Objects[0].Hi, l.Objects[1].Lo, l.Objects[1].Hi - l.Objects[1].Lo + l.Objects[1].Align,
		l.Objects[0].Hi - l.Objects[0].Lo, platform.UserLo, platform.ClockPage, 0,
	}
	for _, s := range []string{"/work/a", "/work/b", "a", "b", "..", ".", "", "/", "/tmp/x/y", "/work", "/tmp", "/dev/zero", "/dev/null", libPath, widePath, dataPath, "/usr"} {
		f.addresses = append(f.addresses, g.str(s))
	}
	buf := g.alloc(4096)
	f.addresses = append(f.addresses, buf, g.iov(buf, 16, buf+64, 64), g.iov(buf, 4096, g.l.Exe.Lo, 8), g.iov(l.Heap.Lo, 1<<20, l.Heap.Lo, 1<<20),
		g.ring(64, 9, "ring"), g.bytes(words(testHandler, saRestorer, testRestorer, 0)), g.bytes(words(l.Heap.Lo, 0, 4*page)),
		g.bytes(words(5, 6)), g.bytes(words(1, 0)), g.bytes(words(^uint64(0), ^uint64(0))))
	for _, name := range []string{"@x", "/tmp/s", "127.0.0.1:8000"} {
		at, _ := g.sockaddr(name)
		f.addresses = append(f.addresses, at)
	}
	f.addresses = append(f.addresses, g.message(0, 0, g.iov(buf, 16, buf+64, 64), 2, 0, 0), g.event(pollIn|pollOut|epollEdge, 7),
		g.bytes(words(0, 1, 0, 1)), g.bytes(words(0)), g.bytes(words(testHandler, saRestorer|saRestart, testRestorer, 0)),
		g.bytes(words(3|pollIn<<32, 4|pollOut<<32)))
	for n := range uint64(4) { // which the host answers in four ways
		f.addresses = append(f.addresses, g.iov(buf, 4, buf+8, n, buf+64, 64))
	}
	for nr, h := range handlers {
		if h != nil {
			f.numbers = append(f.numbers, uint64(nr))
		}
	}
	return f
}

// step decodes one thing for the processor to do.
func (f *fuzzer) step() step {
	n := f.next()
	switch n {
	case 255:
		return faultStep(f.next(), f.arg())
	case 254: // return from a handler
		return func(m *fakeMachine) platform.Exit {
			m.regs.RSP += 8
			return call(unix.SYS_RT_SIGRETURN)(m)
		}
	case 252: // threads, up to three at once
		for range f.next() % 4 {
			f.spawn()
		}
		return pass
	case 251: // time passes, and the others' turn has come
		f.g.m.mono += uint64(f.next()) << (f.next() % 40)
		f.g.p.ctl.tick.Store(true)
		return pass
	case 253: // write to memory, as the guest itself may
		addr, b := f.arg(), bytes.Repeat([]byte{f.next()}, int(f.next()))
		return func(m *fakeMachine) platform.Exit {
			m.CopyOut(addr, b)
			return platform.Exit{Kind: platform.Interrupted}
		}
	}
	nr := uint64(n) * 2
	if int(n) < len(f.numbers) {
		nr = f.numbers[n]
	}
	var a [6]uint64
	for i := range a {
		a[i] = f.arg()
	}
	return func(m *fakeMachine) platform.Exit {
		e := call(nr, a[:]...)(m)
		// No sleep may last: an interrupt comes at once.
		f.g.p.ctl.interrupt.Store(true)
		return e
	}
}

// spawn makes a thread as clone does: it waits for its turn.
func (f *fuzzer) spawn() {
	if f.g.p.current.waiting || f.g.p.current.exited {
		return
	}
	f.g.p.clone(cloneShared, f.g.stack(), 0, 0, 0)
}

// host answers the guest's calls by the size of their request: at once, with a
// failure, later, or when asked again.
func (f *fuzzer) host(c *HostCall) (func(), syscall.Errno) {
	if c.Size() > MaxHostBytes {
		panic("a request that is too large")
	}
	if f.asked++; c.Size()%4 == 3 && f.asked%2 == 1 {
		return nil, syscall.EAGAIN
	}
	name, request, ok := c.Take()
	if !ok {
		return nil, syscall.EFAULT
	}
	f.taken++
	switch c.Size() % 4 {
	case 0:
		c.Answer([]byte(name), false)
	case 1:
		c.Answer(request, true)
	default:
		f.pending = append(f.pending, c)
	}
	return func() { f.cancelled++ }, 0
}

// answerAll ends what the host has put off.
func (f *fuzzer) answerAll() {
	for _, c := range f.pending {
		c.Answer([]byte("late"), false)
	}
	f.pending = nil
}

// encodeCalls makes seeds: handlers are given by system call number.
func encodeCalls(calls ...[]byte) []byte { return bytes.Join(calls, nil) }

func fuzzCall(nr int, a ...byte) []byte {
	n := byte(0)
	for _, h := range handlers[:nr] {
		if h != nil {
			n++
		}
	}
	return append(append([]byte{n}, a...), make([]byte, max(12-len(a), 0))...)
}

func FuzzSyscall(f *testing.F) {
	const v, w = 1, 2 // kinds of arguments: a value, an address
	f.Add([]byte{})
	f.Add(encodeCalls(
		fuzzCall(unix.SYS_MMAP, 0, 0, v, 14, 0, 3, v, 11, v, 40, 0, 0),
		fuzzCall(unix.SYS_MREMAP, w, 12, v, 14, v, 16, 0, 1),
		fuzzCall(unix.SYS_MUNMAP, w, 12, v, 16)))
	f.Add(encodeCalls(
		fuzzCall(unix.SYS_OPEN, w, 27, v, 21, v, 10),
		fuzzCall(unix.SYS_WRITE, 0, 3, w, 44, v, 14),
		fuzzCall(unix.SYS_LSEEK, 0, 3), fuzzCall(unix.SYS_SENDFILE, 0, 3, 0, 3, 0, 0, v, 26),
		fuzzCall(unix.SYS_CLOSE_RANGE, 0, 3, v, 40)))
	f.Add(encodeCalls(
		fuzzCall(unix.SYS_RT_SIGACTION, 0, 2, w, 49, 0, 0, 0, 8),
		fuzzCall(unix.SYS_NANOSLEEP, w, 52), []byte{254},
		fuzzCall(unix.SYS_KILL, 0, 100, 0, 2)))
	f.Add(encodeCalls(
		fuzzCall(unix.SYS_OPEN, w, 40),
		fuzzCall(unix.SYS_MMAP, 0, 0, w, 23, 0, 1, v, 13, 0, 3, 0, 0),
		fuzzCall(unix.SYS_MUNMAP, w, 18, w, 23),
		fuzzCall(unix.SYS_MMAP, 0, 0, w, 23, 0, 1, v, 13, 0, 3, 0, 0)))
	f.Add(encodeCalls(
		fuzzCall(unix.SYS_PREADV, v, 27, w, 45, 0, 2), fuzzCall(unix.SYS_WRITE, 0, 1, w, 44, 0, 0),
		fuzzCall(unix.SYS_OPEN, w, 36), fuzzCall(unix.SYS_GETDENTS64, 0, 3, w, 44, v, 14),
		fuzzCall(unix.SYS_PREADV, v, 26, w, 45, 0, 2)))
	cloning := byte(slices.Index(fuzzValues, cloneShared))
	f.Add(encodeCalls(
		fuzzCall(unix.SYS_CLONE, v, cloning, w, 6), fuzzCall(unix.SYS_FUTEX, w, 44, 0, 0, 0, 0),
		fuzzCall(unix.SYS_SCHED_YIELD), fuzzCall(unix.SYS_FUTEX, w, 44, 0, 1, 0, 9), fuzzCall(unix.SYS_EXIT)))
	// Descriptors are 3 and 4, the buffer of 4096 bytes is address 44.
	f.Add(encodeCalls(
		fuzzCall(unix.SYS_PIPE2, w, 44, 0, 0), fuzzCall(unix.SYS_WRITE, 0, 4, w, 44, v, 14), fuzzCall(unix.SYS_EPOLL_CREATE1),
		fuzzCall(unix.SYS_EPOLL_CTL, 0, 5, 0, 1, 0, 3, w, 58), fuzzCall(unix.SYS_EPOLL_WAIT, 0, 5, w, 44, 0, 9),
		fuzzCall(unix.SYS_READ, 0, 3, w, 44, v, 13), fuzzCall(unix.SYS_CLOSE, 0, 3), fuzzCall(unix.SYS_EPOLL_WAIT, 0, 5, w, 44, 0, 9)))
	f.Add(encodeCalls(
		fuzzCall(unix.SYS_SOCKETPAIR, 0, 1, 0, 5, 0, 0, w, 44), fuzzCall(unix.SYS_SENDTO, 0, 3, w, 44, v, 14, 0, 64),
		fuzzCall(unix.SYS_RECVFROM, 0, 4, w, 44, 0, 99, 0, 2), fuzzCall(unix.SYS_SHUTDOWN, 0, 3, 0, 1), fuzzCall(unix.SYS_CLOSE, 0, 4)))
	f.Add(encodeCalls(
		fuzzCall(unix.SYS_SOCKET, 0, 1, 0, 1), fuzzCall(unix.SYS_BIND, 0, 3, w, 54, 0, 4), fuzzCall(unix.SYS_LISTEN, 0, 3, 0, 4),
		fuzzCall(unix.SYS_SOCKET, 0, 1, 0, 1), fuzzCall(unix.SYS_CONNECT, 0, 4, w, 54, 0, 4), fuzzCall(unix.SYS_ACCEPT, 0, 3),
		fuzzCall(unix.SYS_EVENTFD2, 0, 1), fuzzCall(unix.SYS_TIMERFD_CREATE, 0, 1), fuzzCall(unix.SYS_MEMFD_CREATE, w, 28)))
	// Three threads wait for a pipe in three ways; a fourth writes, and signals.
	f.Add(encodeCalls(
		fuzzCall(unix.SYS_RT_SIGACTION, 0, 10, w, 61, 0, 0, 0, 8), fuzzCall(unix.SYS_PIPE2, w, 44, 0, 0), []byte{252, 3},
		fuzzCall(unix.SYS_READ, 0, 3, w, 44, 0, 9), fuzzCall(unix.SYS_POLL, w, 62, 0, 1, v, 45), fuzzCall(unix.SYS_READV, 0, 3, w, 45, 0, 2),
		fuzzCall(unix.SYS_WRITE, 0, 4, w, 44, 0, 5), []byte{251, 1, 30}, fuzzCall(unix.SYS_KILL, 0, 100, 0, 10), []byte{254},
		fuzzCall(unix.SYS_CLOSE, 0, 3), fuzzCall(unix.SYS_WRITE, 0, 4, w, 44, 0, 5)))
	f.Add(encodeCalls(
		fuzzCall(unix.SYS_RT_SIGACTION, 0, 14, w, 49, 0, 0, 0, 8), []byte{252, 1}, fuzzCall(unix.SYS_SETITIMER, 0, 0, w, 59),
		fuzzCall(unix.SYS_RT_SIGSUSPEND, w, 60, 0, 8), []byte{251, 255, 30}, fuzzCall(unix.SYS_EXIT), []byte{251, 255, 30}, []byte{254}))
	f.Add(encodeCalls(
		fuzzCall(unix.SYS_OPEN, w, 27, 0, 0x42, v, 10), fuzzCall(unix.SYS_FTRUNCATE, 0, 3, v, 17),
		fuzzCall(unix.SYS_MMAP, 0, 0, v, 17, 0, 3, 0, mapShared, 0, 3), fuzzCall(unix.SYS_MUNMAP, w, 13, v, 14),
		fuzzCall(unix.SYS_MREMAP, w, 12, v, 14, v, 16, 0, 1), fuzzCall(unix.SYS_UNLINK, w, 27), fuzzCall(unix.SYS_CLOSE, 0, 3),
		fuzzCall(unix.SYS_MMAP, w, 13, v, 16, 0, 3, v, 12, v, 40)))
	// A file is sent into a pipe that is full, and closed meanwhile.
	f.Add(encodeCalls(
		fuzzCall(unix.SYS_PIPE2, w, 44, 0, 0), fuzzCall(unix.SYS_WRITE, 0, 4, w, 44, v, 17), fuzzCall(unix.SYS_OPEN, w, 42), []byte{252, 1},
		fuzzCall(unix.SYS_SENDFILE, 0, 4, 0, 5, 0, 0, v, 14), fuzzCall(unix.SYS_CLOSE, 0, 5), fuzzCall(unix.SYS_READ, 0, 3, w, 44, v, 17)))
	// Datagram sockets that hold each other.
	f.Add(encodeCalls(
		fuzzCall(unix.SYS_SOCKET, 0, 1, 0, 2), fuzzCall(unix.SYS_BIND, 0, 3, w, 54, 0, 4), fuzzCall(unix.SYS_SOCKET, 0, 1, 0, 2),
		fuzzCall(unix.SYS_CONNECT, 0, 4, w, 54, 0, 4), fuzzCall(unix.SYS_CLOSE, 0, 3), fuzzCall(unix.SYS_WRITE, 0, 4, w, 44, 0, 5)))
	// A timer of a nanosecond that an epoll watches for edges.
	f.Add(encodeCalls(
		fuzzCall(unix.SYS_TIMERFD_CREATE, 0, 1), fuzzCall(unix.SYS_TIMERFD_SETTIME, 0, 3, 0, 0, w, 59), fuzzCall(unix.SYS_EPOLL_CREATE1),
		fuzzCall(unix.SYS_EPOLL_CTL, 0, 4, 0, 1, 0, 3, w, 58), fuzzCall(unix.SYS_EPOLL_WAIT, 0, 4, w, 44, 0, 9, v, 45),
		[]byte{252, 2}, fuzzCall(unix.SYS_EPOLL_WAIT, 0, 4, w, 44, 0, 9, v, 45), fuzzCall(unix.SYS_CLOSE, 0, 3)))
	// Calls to the host, answered in all its ways, and what becomes of one that is
	// made by two threads and dropped.
	calling, called := byte(len(fuzzValues)-1), byte(63)
	f.Add(encodeCalls(
		fuzzCall(unix.SYS_PREADV, v, calling, w, called, 0, 3, 0, 1), fuzzCall(unix.SYS_PREADV, v, calling, w, called+1, 0, 3, 0, 2),
		fuzzCall(unix.SYS_PREADV, v, calling, w, called+2, 0, 3, 0, 3), fuzzCall(unix.SYS_PREADV, v, calling, w, called+3, 0, 3, 0, 4),
		[]byte{252, 2}, fuzzCall(unix.SYS_PREADV, v, calling, w, called+2, 0, 3, 0, 5), fuzzCall(unix.SYS_PREADV, v, calling, w, called+2, 0, 3, 0, 5),
		fuzzCall(unix.SYS_WRITE, v, calling, w, 51, 0, 8)))
	l, base := testLayout(f)
	m := newFakeMachine(l.Size(testMemory), l.Spans())
	f.Fuzz(func(t *testing.T, data []byte) {
		if len(data) > 2048 {
			return
		}
		m.clear()
		m.regs, m.fs, m.tick, m.script, m.failure = platform.Regs{}, 0, 1000, nil, nil
		m.interrupted.Store(false)
		g := newGuestOn(t, m, l, base)
		written, calls := 0, 0
		g.p.output = func(_ int, b []byte) {
			if len(b) > maxRing {
				t.Fatalf("output of %d bytes at once", len(b))
			}
			// As the engine does when there is too much.
			if written += len(b); written > 1<<20 {
				g.p.Stop()
			}
		}
		g.p.mailbox.maxValue = 1000
		var fz *fuzzer
		g.p.host.begin = func(c *HostCall) (func(), syscall.Errno) { return fz.host(c) }
		dozes := 0
		g.p.doze = func(at, _ uint64) bool {
			if len(fz.pending) > 0 {
				fz.answerAll()
				return false
			}
			// A timer that comes again and again may be all that ever happens.
			if dozes++; at == never || dozes%100 == 0 {
				g.p.Stop()
				return false
			}
			g.m.mono = max(g.m.mono, at)
			return true
		}
		// Interrupts that end sleeps are ignored unless the guest has a handler.
		g.p.sig.actions[syscall.SIGINT].Handler = sigIgn
		fz = newFuzzer(g, data)
		for ; len(fz.data) > 0; calls++ {
			m.script = []step{fz.step()}
			out, err := g.p.Run()
			if err != nil {
				t.Fatal(err)
			}
			g.p.Clear()
			m.interrupted.Store(false)
			if out.Kind == Parked { // as the engine does at the end of a run
				g.p.DropHostCalls()
			}
			if out.Kind == Parked && !g.p.Resume(binary.LittleEndian.AppendUint32(nil, 1), []byte("source text of the request"), 1000) ||
				out.Kind == Exited || out.Kind == Killed {
				break
			}
		}
		if written > 1<<20+(calls+1)*(2<<20) {
			t.Fatalf("%d bytes of output came after a stop", written)
		}
		g.p.Drain()
		g.checkInvariants(t)
		if kept := len(g.p.host.calls); kept > maxHostCalls || fz.taken != fz.cancelled+kept {
			t.Fatalf("%d calls to the host, %d cancelled, %d kept", fz.taken, fz.cancelled, kept)
		}
		// A tree that is in use must survive being closed.
		for fd := range g.p.fds.table {
			g.p.closeFD(uint64(fd))
		}
		for _, th := range g.p.threads {
			if th.waiting {
				g.p.endWait(th)
			}
		}
		if c := &g.p.fds.channels; c.chunks != 0 || c.watches != 0 || c.pending != 0 || len(c.bound) != 0 || len(c.timers) != 0 {
			t.Fatalf("something is left of what was closed: %+v", *c)
		}
		if g.p.fds.used != 0 || g.p.fds.listed != 0 {
			t.Fatalf("%d descriptors are left", g.p.fds.used)
		}
		g.p.Clear()
		g.p.unshare(g.l.Heap.Lo, g.p.mem.end)
		g.p.setCwd(g.p.fs.Root())
		if _, err := g.p.fs.Export(); err != nil {
			t.Fatalf("files are held by nobody: %v", err)
		}
	})
}
