package linux

import (
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/maf-sandbox/maf-sandbox-go/internal/platform"
)

// pass lets the guest go on for a moment.
func pass(*fakeMachine) platform.Exit { return platform.Exit{Kind: platform.Interrupted} }

func TestClosedSocketsDoNotHoldEachOther(t *testing.T) {
	g := newGuest(t)
	datagram := func(name string) uint64 {
		fd := g.socket(syscall.AF_UNIX, syscall.SOCK_DGRAM)
		g.withName(unix.SYS_BIND, fd, name)
		return fd
	}
	first, last := datagram("@0"), datagram("@a")
	g.withName(unix.SYS_CONNECT, first, "@a")
	for i := range 5 {
		name := "@" + strings.Repeat("b", i+2)
		next := datagram(name)
		g.withName(unix.SYS_CONNECT, last, name)
		g.must(unix.SYS_CLOSE, last)
		last = next
	}
	held := 0
	for s := g.p.fds.get(first).file.(*socket).peer; s != nil; s = s.peer {
		held++
	}
	if held > 1 {
		t.Errorf("%d sockets are held by one that is open", held)
	}
}

func TestAnAcceptedConnectionIsTheListenersNoMore(t *testing.T) {
	g := newGuest(t)
	l := g.listen(syscall.AF_UNIX, syscall.SOCK_STREAM, "@l")
	c := g.socket(syscall.AF_UNIX, syscall.SOCK_STREAM)
	g.withName(unix.SYS_CONNECT, c, "@l")
	backlog := g.p.fds.get(l).file.(*socket).backlog
	g.must(unix.SYS_ACCEPT, l, 0, 0)
	if backlog[0] != nil {
		t.Error("the listener holds it")
	}
}

// countingFile is never ready and counts how often it is asked.
type countingFile struct {
	emptyStream
	asked *int
}

func (f countingFile) poll(*Process) uint16 {
	*f.asked++
	return 0
}

func TestAStopEndsALookAtManyFiles(t *testing.T) {
	for name, c := range map[string]func(g *guest) uint64{
		"poll": func(g *guest) uint64 {
			fds := make([]byte, 1000*pollFDSize)
			for i := range 1000 {
				fds[i*pollFDSize], fds[i*pollFDSize+4] = 3, pollIn
			}
			return g.during(g.p.Stop, unix.SYS_POLL, g.bytes(fds), 1000, 0)
		},
		"select": func(g *guest) uint64 {
			set := g.alloc(128)
			g.fill(set, 128, 0xff)
			return g.during(g.p.Stop, unix.SYS_SELECT, 1024, set, 0, 0, g.bytes(words(0, 0)))
		},
	} {
		g, asked := newGuest(t), 0
		for range maxDescriptors - 3 {
			if _, e := g.p.fds.add(&description{file: countingFile{asked: &asked}}, 3, false); e != 0 {
				t.Fatal(e)
			}
		}
		if got := c(g); got != interruptedCall || asked > 3 {
			t.Errorf("%s returned %s and asked %d files", name, answerText(got), asked)
		}
	}
}

func TestACallThatDidAPartDoesNotBeginAnew(t *testing.T) {
	g := newGuest(t)
	g.handle(syscall.SIGUSR1, saRestart, 0)
	signal := func(id, want uint64) {
		t.Helper()
		g.run(call(unix.SYS_TGKILL, processID, id, uint64(syscall.SIGUSR1)))
		g.sigreturn()
		if got := g.returned(id); got != want {
			t.Errorf("returned %s, want %d", answerText(got), want)
		}
	}
	r, w := g.pipe(0)
	buf := g.alloc(2 * pipeBuf)
	g.must(unix.SYS_FCNTL, w, fSetPipeSize, pipeBuf)
	g.must(unix.SYS_WRITE, w, buf, pipeBuf)
	a := g.spawn()
	g.on(a)
	g.block(unix.SYS_WRITE, w, buf, 2*pipeBuf)
	g.on(processID)
	g.must(unix.SYS_READ, r, buf, 100)
	g.run(call(unix.SYS_SCHED_YIELD), pass)
	g.on(processID)
	signal(a, 100)

	x, y := g.socketpair(syscall.SOCK_STREAM)
	g.on(a)
	g.block(unix.SYS_RECVFROM, x, buf, 100, syscall.MSG_WAITALL, 0, 0)
	g.on(processID)
	g.send(y, "part")
	g.run(call(unix.SYS_SCHED_YIELD), pass)
	g.on(processID)
	signal(a, 4)
}

func TestAReadIntoABadBufferLeavesAPipeAsItIs(t *testing.T) {
	g := newGuest(t)
	r, w := g.pipe(0)
	g.send(w, "kept")
	g.refused(syscall.EFAULT, unix.SYS_READ, r, g.l.Exe.Lo, 4)
	good := g.alloc(8)
	g.want(2, unix.SYS_READV, r, g.iov(good, 2, g.l.Exe.Lo, 2), 2)
	if got := string(g.get(good, 2)) + g.recv(r, 8); got != "kept" {
		t.Errorf("the pipe held %q", got)
	}
}

func TestSendfileKeepsBothFilesOpen(t *testing.T) {
	g := newGuest(t)
	g.file("/work/f", "content")
	in := g.open("/work/f", syscall.O_RDONLY)
	g.must(unix.SYS_UNLINK, g.str("/work/f"))
	r, w := g.pipe(0)
	buf := g.alloc(pipeBuf)
	g.must(unix.SYS_FCNTL, w, fSetPipeSize, pipeBuf)
	g.must(unix.SYS_WRITE, w, buf, pipeBuf)
	a := g.spawn()
	g.on(a)
	g.block(unix.SYS_SENDFILE, w, in, 0, 7)
	g.on(processID)
	g.must(unix.SYS_CLOSE, in)
	g.must(unix.SYS_READ, r, buf, pipeBuf)
	if got := g.returned(a); got != 7 {
		t.Errorf("sendfile returned %s", answerText(got))
	}
	if _, e := g.p.fs.Export(); e != nil {
		t.Errorf("the file is still in use: %v", e)
	}
}

func TestNothingOfAnEarlierGenerationIsKept(t *testing.T) {
	g, s := parked(t)
	g.p.Resume(nil, nil, 0)
	for range 3 {
		g.open("/work/d/f", syscall.O_RDONLY)
		g.spawn()
	}
	if err := g.restore(s, testMemory); err != nil {
		t.Fatal(err)
	}
	for i, th := range g.p.threads[:cap(g.p.threads)] {
		if i > 0 && th != nil {
			t.Errorf("thread %d is kept", i)
		}
	}
	for i, d := range g.p.fds.table[:cap(g.p.fds.table)] {
		if i > 2 && d.file != nil {
			t.Errorf("file %d is kept", i)
		}
	}
}

func TestAThreadThatExitedIsNotKept(t *testing.T) {
	g := newGuest(t)
	g.on(g.spawn())
	g.run(call(unix.SYS_EXIT, 0), pass)
	if th := g.p.threads[:2]; th[1] != nil {
		t.Error("it is kept")
	}
}

func TestAFrameThatIsLeftTakesNoMemory(t *testing.T) {
	g := newGuest(t)
	g.handle(syscall.SIGUSR1, 0, 0)
	g.kill(syscall.SIGUSR1)
	g.sigreturn()
	if f := g.p.current.frames[:1]; f[0].context.XSave != nil {
		t.Error("its extended state is kept")
	}
}

func TestSharingWithAFileIsForTheHeap(t *testing.T) {
	g := newGuest(t)
	at := g.loadMapping(libPath)
	fd := g.open("/work/m", syscall.O_CREAT|syscall.O_RDWR)
	g.must(unix.SYS_FTRUNCATE, fd, page)
	g.refused(syscall.EACCES, unix.SYS_MMAP, at+page, page, syscall.PROT_READ, mapShared|mapFixed, fd, 0)
	if len(g.p.mem.shared) != 0 {
		t.Error("a part of an object counts as shared")
	}
}

func TestSharedMappingsCannotBeSplitBeyondTheBound(t *testing.T) {
	g := newGuest(t)
	fd := g.open("/work/m", syscall.O_CREAT|syscall.O_RDWR)
	at := g.must(unix.SYS_MMAP, 0, 64*page, syscall.PROT_READ, mapShared, fd, 0)
	g.must(unix.SYS_MUNMAP, at+page, page)
	for range maxShared - 2 {
		g.must(unix.SYS_MMAP, 0, page, syscall.PROT_READ, mapShared, fd, 0)
	}
	hole := at + 3*page
	g.refused(syscall.ENOMEM, unix.SYS_MUNMAP, hole, page)
	g.refused(syscall.ENOMEM, unix.SYS_MREMAP, hole, 2*page, page, 0)
	g.refused(syscall.ENOMEM, unix.SYS_MREMAP, hole, page, 5*page, mremapMayMove)
	g.refused(syscall.ENOMEM, unix.SYS_MMAP, hole, page, syscall.PROT_READ, mapFixed|mapPrivate|mapAnonymous, 0, 0)
	if n := len(g.p.mem.shared); n != maxShared {
		t.Errorf("%d mappings", n)
	}
	g.must(unix.SYS_MUNMAP, g.l.Heap.Lo, testMemory-brkWindow)
	if n := len(g.p.mem.shared); n != 0 {
		t.Errorf("%d mappings are left", n)
	}
}

func TestAStopEndsAWriteBack(t *testing.T) {
	g, fd, at := sharedFile(t)
	g.m.CopyOut(at, []byte("late"))
	g.during(g.p.Stop, unix.SYS_MSYNC, at, 3*page, 4)
	buf := make([]byte, 4)
	if _, _ = g.p.fds.get(fd).inode().ReadAt(buf, 0); string(buf) == "late" {
		t.Error("it went on")
	}
}

func TestMemoryThatIsNotMappedCannotBeMoved(t *testing.T) {
	g := newGuest(t)
	at := g.mmap(4 * page)
	g.must(unix.SYS_MUNMAP, at+page, page)
	g.refused(syscall.EFAULT, unix.SYS_MREMAP, at, 4*page, 8*page, mremapMayMove)
}

func TestTheTickIsNeverFasterThanAProcessorCanServe(t *testing.T) {
	g := newGuest(t)
	least := time.Hour
	g.p.tickIn = func(d time.Duration) { least = min(least, d) }
	g.handle(syscall.SIGALRM, 0, 0)
	g.must(unix.SYS_SETITIMER, itimerReal, g.bytes(words(0, 1, 0, 1)), 0)
	g.must(unix.SYS_GETPID)
	if least != minTick {
		t.Errorf("a tick after %v", least)
	}
}

func TestAStopEndsTheSearchForAThread(t *testing.T) {
	g, asked := newGuest(t), 0
	g.spawn()
	for _, th := range g.p.threads {
		th.waiting, th.wait = true, wait{deadline: never, try: func() (uint64, bool) {
			asked++
			return 0, false
		}}
	}
	g.p.Stop()
	if g.p.schedule(); asked > 0 {
		t.Errorf("%d threads were asked", asked)
	}
}

func TestThreadsOfAnEarlierGenerationDoNotCount(t *testing.T) {
	g, s := parked(t)
	g.p.Resume(nil, nil, 0)
	g.spawn()
	g.run(pass)
	if n := g.p.Threads(); n != 2 {
		t.Errorf("%d threads", n)
	}
	if err := g.restore(s, testMemory); err != nil || g.p.Threads() != 1 {
		t.Errorf("%d threads after a restore, %v", g.p.Threads(), err)
	}
}

// The race detector is the judge of what other goroutines may do.
func TestARunIsToldFromOutsideWhatToDo(t *testing.T) {
	g := newGuest(t)
	g.p.sig.actions[syscall.SIGINT].Handler = sigIgn
	g.spawn()
	g.spawn()
	g.p.tickIn = g.p.startTicker
	g.m.idle = func() {}
	go func() {
		for range 1000 {
			g.p.Interrupt()
			_ = g.p.Threads()
		}
		g.p.Stop()
	}()
	if out := g.run(); out.Kind != Stopped {
		t.Errorf("outcome %+v", out)
	}
}

func TestAnAlarmDoesNotRingFasterThanTheTick(t *testing.T) {
	g := newGuest(t)
	g.must(unix.SYS_RT_SIGACTION, uint64(syscall.SIGALRM), g.bytes(words(sigIgn, saRestorer, testRestorer, 0)), 0, 8)
	g.must(unix.SYS_SETITIMER, itimerReal, g.bytes(words(0, 1, 0, 1)), 0)
	now := g.p.alarm.at
	if g.p.ringAlarm(now); g.p.alarm.at != now+uint64(minTick) {
		t.Errorf("it rings again after %d ns", g.p.alarm.at-now)
	}
	g.p.setAlarm(1e9, 1e9)
	now = g.p.alarm.at
	if g.p.ringAlarm(now); g.p.alarm.at != now+1e9 {
		t.Errorf("it rings again after %d ns", g.p.alarm.at-now)
	}
}
