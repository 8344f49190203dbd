package linux

import (
	"bytes"
	"encoding/binary"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// fds decodes two descriptors.
func (g *guest) fds(addr uint64) (a, b uint64) {
	g.t.Helper()
	v := g.get(addr, 8)
	return uint64(binary.LittleEndian.Uint32(v)), uint64(binary.LittleEndian.Uint32(v[4:]))
}

// pipe makes a pipe.
func (g *guest) pipe(flags uint64) (r, w uint64) {
	g.t.Helper()
	out := g.alloc(8)
	g.want(0, unix.SYS_PIPE2, out, flags)
	return g.fds(out)
}

// send writes a text to a descriptor.
func (g *guest) send(fd uint64, text string) {
	g.t.Helper()
	g.want(uint64(len(text)), unix.SYS_WRITE, fd, g.str(text), uint64(len(text)))
}

// recv reads at most n bytes.
func (g *guest) recv(fd uint64, n int) string {
	g.t.Helper()
	buf := g.alloc(n)
	return string(g.get(buf, int(g.must(unix.SYS_READ, fd, buf, uint64(n)))))
}

// events gives what poll says of a descriptor.
func (g *guest) events(fd uint64) uint16 {
	g.t.Helper()
	b := binary.LittleEndian.AppendUint32(nil, uint32(fd))
	at := g.bytes(append(b, 0xff, 0x3f, 0, 0))
	g.must(unix.SYS_POLL, at, 1, 0)
	return binary.LittleEndian.Uint16(g.get(at+6, 2))
}

func (g *guest) wantEvents(fd uint64, want uint16) {
	g.t.Helper()
	if got := g.events(fd); got != want {
		g.t.Errorf("descriptor %d has the events %#x, want %#x", fd, got, want)
	}
}

// wantEmpty sees to it that the queues hold nothing when all is closed.
func (g *guest) wantEmpty() {
	g.t.Helper()
	for fd := range g.p.fds.table {
		g.p.closeFD(uint64(fd))
	}
	c := &g.p.fds.channels
	if c.chunks != 0 || c.watches != 0 || c.pending != 0 || len(c.bound) != 0 || len(c.timers) != 0 {
		g.t.Errorf("something is left: %+v", *c)
	}
}

func TestAPipeCarriesBytesInOrder(t *testing.T) {
	g := newGuest(t)
	r, w := g.pipe(syscall.O_CLOEXEC)
	g.want(1, unix.SYS_FCNTL, r, fGetFD)
	g.want(syscall.O_RDONLY, unix.SYS_FCNTL, r, fGetFL)
	g.want(syscall.O_WRONLY, unix.SYS_FCNTL, w, fGetFL)
	g.send(w, "hello ")
	g.send(w, "world")
	n := g.alloc(4)
	g.want(0, unix.SYS_IOCTL, r, ioUnread, n)
	if got := g.get(n, 1)[0]; got != 11 {
		t.Errorf("%d bytes to read", got)
	}
	if got := g.recv(r, 8) + g.recv(r, 100); got != "hello world" {
		t.Errorf("got %q", got)
	}
	g.refused(syscall.EBADF, unix.SYS_READ, w, n, 1)
	g.refused(syscall.EBADF, unix.SYS_WRITE, r, n, 1)
	g.refused(syscall.ESPIPE, unix.SYS_LSEEK, r, 0, 0)
	g.refused(syscall.ESPIPE, unix.SYS_PREAD64, r, n, 1, 0)
	g.want(0, unix.SYS_CLOSE, w)
	g.want(0, unix.SYS_READ, r, n, 4)
	g.wantEmpty()
}

func TestAPipeIsToldApartByStat(t *testing.T) {
	g := newGuest(t)
	r, w := g.pipe(0)
	a, b := g.alloc(144), g.alloc(144)
	g.want(0, unix.SYS_FSTAT, r, a)
	g.want(0, unix.SYS_NEWFSTATAT, w, g.str(""), b, atEmptyPath)
	if binary.LittleEndian.Uint32(g.get(a+24, 4))&syscall.S_IFMT != syscall.S_IFIFO || g.word(a+8) != g.word(b+8) {
		t.Error("the two ends are no pipe, or not the same")
	}
	r2, _ := g.pipe(0)
	g.want(0, unix.SYS_FSTAT, r2, b)
	if g.word(a+8) == g.word(b+8) {
		t.Error("two pipes look like one")
	}
}

func TestPipesThatCannotBeMade(t *testing.T) {
	g := newGuest(t)
	out := g.alloc(8)
	g.refused(syscall.EINVAL, unix.SYS_PIPE2, out, syscall.O_DIRECT)
	g.refused(syscall.EFAULT, unix.SYS_PIPE, 8)
	if g.p.fds.used != 3 {
		t.Errorf("%d descriptors are open", g.p.fds.used)
	}
	for g.p.fds.used < maxDescriptors-1 {
		g.must(unix.SYS_DUP, 1)
	}
	g.refused(syscall.EMFILE, unix.SYS_PIPE, out)
	if g.p.fds.used != maxDescriptors-1 {
		t.Errorf("%d descriptors are open", g.p.fds.used)
	}
}

func TestPipesTellTheirStateToPoll(t *testing.T) {
	g := newGuest(t)
	r, w := g.pipe(syscall.O_NONBLOCK)
	buf := g.alloc(80 << 10)
	g.wantEvents(r, 0)
	g.wantEvents(w, pollWritable)
	g.refused(syscall.EAGAIN, unix.SYS_READ, r, buf, 1)
	g.want(pipeSize-10, unix.SYS_WRITE, w, buf, pipeSize-10)
	g.wantEvents(r, pollReadable)
	g.wantEvents(w, 0)
	// All or nothing up to PIPE_BUF, what there is room for beyond.
	g.refused(syscall.EAGAIN, unix.SYS_WRITE, w, buf, 11)
	g.refused(syscall.EAGAIN, unix.SYS_WRITEV, w, g.iov(buf, 8, buf, 8), 2)
	g.want(10, unix.SYS_WRITE, w, buf, pipeBuf+1)
	g.want(pipeSize, unix.SYS_READ, r, buf, 80<<10)
	g.send(w, "x")
	g.want(0, unix.SYS_CLOSE, w)
	g.wantEvents(r, pollReadable|pollHup)
	g.recv(r, 1)
	g.wantEvents(r, pollHup)
	r, w = g.pipe(0)
	g.want(0, unix.SYS_CLOSE, r)
	g.wantEvents(w, pollWritable|pollErr)
}

func TestAWriteWithoutAReaderRaisesSIGPIPE(t *testing.T) {
	g := newGuest(t)
	r, w := g.pipe(0)
	g.want(0, unix.SYS_CLOSE, r)
	g.handle(syscall.SIGPIPE, 0, 0)
	g.run(call(unix.SYS_WRITE, w, g.str("x"), 1))
	if g.m.regs.RIP != testHandler {
		t.Fatalf("no handler runs: %s", answerText(g.m.regs.RAX))
	}
	g.sigreturn()
	if g.m.regs.RAX != fail(syscall.EPIPE) {
		t.Errorf("the write returned %s", answerText(g.m.regs.RAX))
	}
	g.p.sig.actions[syscall.SIGPIPE] = Action{}
	if out := g.run(call(unix.SYS_WRITE, w, g.str("x"), 1)); out.Kind != Killed || out.Signal != syscall.SIGPIPE {
		t.Errorf("the run ended with %+v", out)
	}
}

func TestABlockedWriterGetsTheSignalItself(t *testing.T) {
	g := newGuest(t)
	r, w := g.pipe(0)
	buf := g.alloc(80 << 10)
	g.handle(syscall.SIGPIPE, 0, 0)
	writer := g.spawn()
	g.want(pipeSize, unix.SYS_WRITE, w, buf, pipeSize)
	g.on(writer)
	g.block(unix.SYS_WRITE, w, buf, 10)
	g.want(0, unix.SYS_CLOSE, r)
	g.run(call(unix.SYS_SCHED_YIELD))
	if g.p.current.id != writer || g.m.regs.RIP != testHandler {
		t.Errorf("thread %d is at %#x", g.p.current.id, g.m.regs.RIP)
	}
}

func TestAReaderWaitsForAWriter(t *testing.T) {
	g := newGuest(t)
	r, w := g.pipe(0)
	buf := g.alloc(16)
	reader := g.spawn()
	g.on(reader)
	g.block(unix.SYS_READ, r, buf, 16)
	g.send(w, "late")
	if got := g.returned(reader); got != 4 || string(g.get(buf, 4)) != "late" {
		t.Errorf("the reader got %s", answerText(got))
	}
	g.block(unix.SYS_READ, r, buf, 16)
	g.want(0, unix.SYS_CLOSE, w)
	if got := g.returned(reader); got != 0 {
		t.Errorf("at the end the reader got %s", answerText(got))
	}
}

func TestALongWriteWaitsUntilAllIsTaken(t *testing.T) {
	g := newGuest(t)
	r, w := g.pipe(0)
	text := strings.Repeat("0123456789abcdef", 12<<10) // 192 KiB in the heap
	src := g.must(unix.SYS_MMAP, 0, uint64(len(text)), 3, 0x22, ^uint64(0), 0)
	g.m.CopyOut(src, []byte(text))
	writer := g.spawn()
	g.on(writer)
	g.block(unix.SYS_WRITE, w, src, uint64(len(text)))
	var got bytes.Buffer
	buf := g.alloc(50_000)
	for got.Len() < len(text) {
		if g.p.current.id == writer {
			g.on(processID)
		}
		got.Write(g.get(buf, int(g.must(unix.SYS_READ, r, buf, 50_000))))
		g.run(call(unix.SYS_SCHED_YIELD))
	}
	if got.String() != text {
		t.Error("the bytes are not the ones that were written")
	}
	if ret := g.returned(writer); ret != 0 && ret != uint64(len(text)) {
		t.Errorf("the write returned %s", answerText(ret))
	}
}

func TestThePipeSizeCanBeChanged(t *testing.T) {
	g := newGuest(t)
	r, w := g.pipe(syscall.O_NONBLOCK)
	g.want(pipeSize, unix.SYS_FCNTL, r, fGetPipeSize)
	g.want(8192, unix.SYS_FCNTL, w, fSetPipeSize, 4097)
	buf := g.alloc(9000)
	g.want(8192, unix.SYS_WRITE, w, buf, 9000)
	g.refused(syscall.EBUSY, unix.SYS_FCNTL, w, fSetPipeSize, 4096)
	g.refused(syscall.EPERM, unix.SYS_FCNTL, w, fSetPipeSize, maxPipeSize+1)
	g.refused(syscall.EINVAL, unix.SYS_FCNTL, w, fSetPipeSize, 0)
	g.refused(syscall.EBADF, unix.SYS_FCNTL, 1, fGetPipeSize)
	g.wantEmpty()
}

func TestNonblockIsSharedByDuplicates(t *testing.T) {
	g := newGuest(t)
	r, _ := g.pipe(0)
	dup := g.must(unix.SYS_DUP, r)
	g.want(0, unix.SYS_IOCTL, dup, ioNonblock, g.bytes([]byte{1, 0, 0, 0}))
	g.refused(syscall.EAGAIN, unix.SYS_READ, r, g.alloc(1), 1)
	g.want(0, unix.SYS_IOCTL, r, ioNonblock, g.bytes([]byte{0, 0, 0, 0}))
	g.want(0, unix.SYS_FCNTL, dup, fGetFL)
	g.refused(syscall.ENOTTY, unix.SYS_IOCTL, 1, ioUnread, g.alloc(4))
}

func TestAllPipesTogetherAreBounded(t *testing.T) {
	g := newGuest(t)
	buf := g.alloc(64 << 10)
	total, full := 0, false
	for range 400 {
		_, w := g.pipe(syscall.O_NONBLOCK)
		n := g.call(unix.SYS_WRITE, w, buf, 64<<10)
		if n == fail(syscall.ENOMEM) {
			full = true
			continue
		}
		total += int(n)
	}
	if !full || total != maxChunks*chunkSize {
		t.Errorf("the pipes took %d bytes", total)
	}
	g.wantEmpty()
}

func TestAQueueGivesBackItsMemory(t *testing.T) {
	var c channels
	var q queue
	var want []byte
	for i := range 200 {
		b := bytes.Repeat([]byte{byte(i)}, i*37%5000)
		if q.put(&c, b) != len(b) {
			t.Fatal("no room")
		}
		want = append(want, b...)
		got := make([]byte, i*29%5000)
		n := 0
		for b := q.front(0, len(got)); len(b) > 0; b = q.front(0, len(got)-n) {
			n += copy(got[n:], b)
			q.drop(&c, len(b))
		}
		if !bytes.Equal(got[:n], want[:n]) {
			t.Fatalf("step %d: other bytes", i)
		}
		want = want[n:]
		if q.n != len(want) || c.chunks != len(q.chunks) || c.chunks > (q.n+2*chunkSize)/chunkSize {
			t.Fatalf("step %d: %d bytes in %d chunks, counted %d", i, q.n, len(q.chunks), c.chunks)
		}
	}
	if q.drop(&c, q.n); c.chunks != 0 {
		t.Errorf("%d chunks are left", c.chunks)
	}
}
