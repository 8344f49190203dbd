package linux

import (
	"encoding/binary"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// park parks the process with buffers for a header and source text.
func (g *guest) park(header, source uint64, status int64) Outcome {
	g.t.Helper()
	return g.run(call(unix.SYS_PREADV, parkFD, g.iov(g.alloc(int(header)), header, g.alloc(int(source)), source), 2, uint64(status)))
}

// ring makes an output ring with bytes waiting in it.
func (g *guest) ring(size int, count uint32, content string) uint64 {
	b := make([]byte, size)
	binary.LittleEndian.PutUint32(b, count)
	copy(b[ringHeader:], content)
	return g.bytes(b)
}

func TestParkingEndsTheRunAndResumeGivesTheRequest(t *testing.T) {
	g := newGuest(t)
	head, src := g.alloc(16), g.alloc(8)
	out := g.run(call(unix.SYS_PREADV, parkFD, g.iov(head, 16, src, 8), 2, 1<<40))
	if out.Kind != Parked || out.Status != 1<<40 {
		t.Fatalf("outcome %+v", out)
	}
	if !g.p.Resume([]byte("header"), []byte("source text"), 10) {
		t.Fatal("the request was not taken")
	}
	if g.m.regs.RAX != 6+8 || string(g.get(head, 6)) != "header" || string(g.get(src, 8)) != "source t" {
		t.Errorf("the driver has %q %q, answer %d", g.get(head, 6), g.get(src, 8), g.m.regs.RAX)
	}
	g.want(3, unix.SYS_PREADV, sourceFD, g.iov(head, 16), 1, 8)
	if string(g.get(head, 3)) != "ext" {
		t.Errorf("the rest is %q", g.get(head, 3))
	}
	g.want(2, unix.SYS_PREADV2, sourceFD, g.iov(head, 2), 1, 3)
	g.want(0, unix.SYS_PREADV, sourceFD, g.iov(head, 16), 1, 11)
	g.refused(syscall.EINVAL, unix.SYS_PREADV, sourceFD, g.iov(head, 16), 1, 12)
	g.refused(syscall.EINVAL, unix.SYS_PREADV, sourceFD, g.iov(head, 16), 1, 1<<63)
	g.refused(syscall.EINVAL, unix.SYS_PREADV, sourceFD, g.iov(head, 8, head, 8), 2, 0)
	g.refused(syscall.EFAULT, unix.SYS_PREADV, sourceFD, g.iov(g.l.Exe.Lo, 8), 1, 0)
	if g.p.Resume(nil, nil, 0) {
		t.Error("a running process took a request")
	}
}

// An interrupt belongs to one run: what is on its way of it when the driver
// parks is taken, or withdrawn, before the next run can begin.
func TestAnInterruptDoesNotOutliveItsRun(t *testing.T) {
	parks := func(g *guest, status int64) Outcome { return g.park(64, 64, status) }
	resumes := func(g *guest) {
		if !g.p.Resume([]byte("header"), nil, 0) {
			t.Fatal("the request was not taken")
		}
	}
	for name, during := range map[string]func(g *guest){
		"met by the program": func(g *guest) {
			g.during(g.p.Interrupt, unix.SYS_GETPID)
			g.sigreturn()
		},
		"blocked": func(g *guest) {
			g.must(unix.SYS_RT_SIGPROCMASK, 0, g.bytes(words(bit(syscall.SIGINT))), 0, 8)
			g.during(g.p.Interrupt, unix.SYS_GETPID)
		},
		"blocked in one thread alone": func(g *guest) {
			g.must(unix.SYS_RT_SIGPROCMASK, 0, g.bytes(words(bit(syscall.SIGINT))), 0, 8)
			g.p.current.queue.add(sigInfo{signo: syscall.SIGINT, host: true})
			g.p.mailbox.interrupted = true
		},
	} {
		t.Run(name, func(t *testing.T) {
			g := newGuest(t)
			g.handle(syscall.SIGINT, 0, 0)
			during(g)
			if out := parks(g, 3); out.Kind == Parked || g.m.regs.RAX != 0 {
				t.Fatalf("the driver was not asked to take it: %+v, answer %d", out, g.m.regs.RAX)
			}
			// Too late for this run.
			g.m.regs.RIP = 0
			g.during(g.p.Interrupt, unix.SYS_GETPID)
			if out := parks(g, 3); out.Kind != Parked || out.Status != 3 {
				t.Fatalf("outcome %+v", out)
			}
			resumes(g)
			g.must(unix.SYS_RT_SIGPROCMASK, 1, g.bytes(words(bit(syscall.SIGINT))), 0, 8)
			if g.m.regs.RIP == testHandler {
				t.Fatal("the next run met it")
			}
			// The next run has its own.
			g.during(g.p.Interrupt, unix.SYS_GETPID)
			if g.m.regs.RIP != testHandler {
				t.Error("the next run got no interrupt of its own")
			}
		})
	}
	// A program's own signal is not the host's to take back.
	g := newGuest(t)
	g.handle(syscall.SIGINT, 0, 0)
	g.must(unix.SYS_RT_SIGPROCMASK, 0, g.bytes(words(bit(syscall.SIGINT))), 0, 8)
	g.kill(syscall.SIGINT)
	g.during(g.p.Interrupt, unix.SYS_GETPID)
	parks(g, 0)
	if out := parks(g, 0); out.Kind != Parked {
		t.Fatalf("outcome %+v", out)
	}
	resumes(g)
	g.must(unix.SYS_RT_SIGPROCMASK, 1, g.bytes(words(bit(syscall.SIGINT))), 0, 8)
	if g.m.regs.RIP != testHandler {
		t.Error("a signal that the program sent to itself was lost")
	}
}

func TestResumeRefusesBuffersThatAreNotThere(t *testing.T) {
	for name, iov := range map[string][4]uint64{
		"small header":    {0, 4, 0, 64},
		"header in text":  {1, 64, 0, 64},
		"source in text":  {0, 64, 1, 64},
		"wrapping source": {0, 64, 2, 64},
	} {
		g := newGuest(t)
		where := [3]uint64{g.alloc(64), g.l.Exe.Lo, ^uint64(0) - 3}
		g.run(call(unix.SYS_PREADV, parkFD, g.iov(where[iov[0]], iov[1], where[iov[2]], iov[3]), 2, 0))
		if g.p.Resume([]byte("header"), []byte("source"), 0) {
			t.Errorf("%s: the request was taken", name)
		}
	}
}

func TestTheMailboxRefusesWhatCannotBe(t *testing.T) {
	g := newGuest(t)
	buf := g.alloc(64)
	for name, c := range map[string]struct {
		want      syscall.Errno
		fd, iov   uint64
		n, offset uint64
	}{
		"parking without buffers": {syscall.EINVAL, parkFD, g.iov(buf, 8), 1, 0},
		"a negative status":       {syscall.EINVAL, parkFD, g.iov(buf, 8, buf, 8), 2, 1 << 63},
		"one ring":                {syscall.EINVAL, ringFD, g.iov(buf, 64), 1, 0},
		"rings without room":      {syscall.EINVAL, ringFD, g.iov(buf, ringHeader, buf, 64), 2, 0},
		"rings without anything":  {syscall.EINVAL, ringFD, g.iov(buf, 0, buf, 0), 2, 0},
		"a huge ring":             {syscall.EINVAL, ringFD, g.iov(buf, 64, buf, maxRing+1), 2, 0},
		"reading the value":       {syscall.EBADF, valueFD, g.iov(buf, 8), 1, 0},
		"no such mailbox":         {syscall.EBADF, reservedFD + reservedFDs, g.iov(buf, 8), 1, 0},
	} {
		if got := g.call(unix.SYS_PREADV, c.fd, c.iov, c.n, c.offset); got != fail(c.want) {
			t.Errorf("%s = %s, want %v", name, answerText(got), c.want)
		}
	}
	for _, fd := range []uint64{parkFD, ringFD, sourceFD, reservedFD + reservedFDs} {
		g.refused(syscall.EBADF, unix.SYS_WRITE, fd, buf, 1)
	}
	g.refused(syscall.EBADF, unix.SYS_READ, parkFD, buf, 1)
	g.refused(syscall.EBADF, unix.SYS_DUP, parkFD)
	g.refused(syscall.EBADF, unix.SYS_DUP2, 1, parkFD)
}

func TestRingsAreDrainedBeforeOtherOutputOfTheirStream(t *testing.T) {
	g := newGuest(t)
	out, errs := g.ring(64, 5, "ring "), g.ring(64, 3, "err")
	g.want(0, unix.SYS_PREADV, ringFD, g.iov(out, 64, errs, 64), 2, 0)
	g.want(6, unix.SYS_WRITE, 1, g.str("direct"), 6)
	if g.out[1] != "ring direct" || g.out[2] != "" {
		t.Errorf("output %v", g.out)
	}
	g.p.Drain()
	g.p.Drain()
	if g.out[1] != "ring direct" || g.out[2] != "err" {
		t.Errorf("output %v", g.out)
	}
	g.m.CopyOut(out, []byte{2})
	g.want(0, unix.SYS_WRITE, 1, 0, 0)
	if g.out[1] != "ring directri" {
		t.Errorf("an empty write does not drain: %v", g.out)
	}
}

func TestARingCannotMakeTheHostReadMoreThanItHas(t *testing.T) {
	g := newGuest(t)
	out := g.ring(16, ^uint32(0), strings.Repeat("x", 8))
	g.want(0, unix.SYS_PREADV, ringFD, g.iov(out, 16, g.l.Exe.Lo, 64), 2, 0)
	g.p.Drain()
	if g.out[1] != "xxxxxxxx" {
		t.Errorf("output of %d bytes", len(g.out[1]))
	}
	if g.out[2] != "" {
		t.Error("a ring that cannot be emptied gives output for ever")
	}
}

func TestARingThatEndsOutsideMemoryGivesNothing(t *testing.T) {
	g := newGuest(t)
	g.want(0, unix.SYS_PREADV, ringFD, g.iov(g.l.Stack.Hi-8, 64, ^uint64(0)-7, 64), 2, 0)
	g.m.CopyOut(g.l.Stack.Hi-8, []byte{4})
	g.p.Drain()
	if g.out[1] != "" {
		t.Errorf("output %q", g.out[1])
	}
}

func TestRingsStayWhereTheDriverPutThem(t *testing.T) {
	g := newGuest(t)
	iov := g.iov(g.ring(64, 0, ""), 64, g.ring(64, 0, ""), 64)
	g.want(0, unix.SYS_PREADV, ringFD, iov, 2, 0)
	g.want(fail(syscall.EPERM), unix.SYS_PREADV, ringFD, iov, 2, 0)
}

func TestTheValueIsBoundedAndTheProgramCanObey(t *testing.T) {
	g := newGuest(t)
	g.park(16, 16, 0)
	g.p.Resume(nil, nil, 4)
	g.want(4, unix.SYS_WRITE, valueFD, g.str("123456"), 6)
	if string(g.p.Value()) != "1234" {
		t.Errorf("value %q", g.p.Value())
	}
	g.want(4, unix.SYS_WRITE, valueFD, g.str("abcd"), ^uint64(0))
	g.want(0, unix.SYS_WRITE, obeyFD, 0, 0)
	if g.obeyed != 1 {
		t.Errorf("obeyed %d times", g.obeyed)
	}
	g.p.obeyed = nil
	g.refused(syscall.EBADF, unix.SYS_WRITE, obeyFD, 0, 0)
}

func TestRingsAreRegisteredOnceAndBothOrNone(t *testing.T) {
	g := newGuest(t)
	out, errs := g.ring(64, 3, "out"), g.ring(64, 3, "err")
	g.refused(syscall.EINVAL, unix.SYS_PREADV, ringFD, g.iov(out, 64, errs, 0), 2, 0)
	g.p.Drain()
	if len(g.out) != 0 {
		t.Errorf("a refused pair gave output: %v", g.out)
	}
	g.want(0, unix.SYS_PREADV, ringFD, g.iov(out, 64, errs, 64), 2, 0)
	g.refused(syscall.EPERM, unix.SYS_PREADV, ringFD, g.iov(errs, 64, out, 64), 2, 0)
	g.p.Drain()
	if g.out[1] != "out" || g.out[2] != "err" {
		t.Errorf("output %v", g.out)
	}
}
