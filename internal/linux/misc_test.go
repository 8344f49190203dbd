package linux

import (
	"encoding/binary"
	"os"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

func TestUnameShowsNothingOfTheHost(t *testing.T) {
	g := newGuest(t)
	buf := g.alloc(390)
	g.want(0, unix.SYS_UNAME, buf)
	got := string(g.get(buf, 390))
	if !strings.HasPrefix(got, "Linux\x00") || !strings.Contains(got, "x86_64\x00") {
		t.Errorf("uname tells %q", got)
	}
	host, err := os.Hostname()
	if err == nil && host != "sandbox" && host != "" && strings.Contains(got, host) {
		t.Error("the host's name shows")
	}
	var u unix.Utsname
	if unix.Uname(&u) == nil && strings.Contains(got, unix.ByteSliceToString(u.Release[:])) {
		t.Error("the host's kernel shows")
	}
}

func TestIdentitiesAndSimpleAnswers(t *testing.T) {
	g := newGuest(t)
	for nr, want := range map[uint64]uint64{
		unix.SYS_GETPID: processID, unix.SYS_GETTID: processID, unix.SYS_GETPPID: parentID, unix.SYS_GETPGRP: processID,
		unix.SYS_GETUID: userID, unix.SYS_GETEUID: userID, unix.SYS_GETGID: userID, unix.SYS_GETEGID: userID,
		unix.SYS_SCHED_YIELD: 0, unix.SYS_SET_TID_ADDRESS: processID, unix.SYS_SET_ROBUST_LIST: 0, unix.SYS_MSYNC: 0,
		unix.SYS_SOCKET: fail(syscall.EPERM), unix.SYS_CLONE: fail(syscall.ENOSYS), unix.SYS_WAIT4: fail(syscall.ECHILD),
		unix.SYS_FORK: fail(syscall.ENOSYS), unix.SYS_EXECVE: fail(syscall.ENOSYS), unix.SYS_PTRACE: fail(syscall.ENOSYS),
		unix.SYS_SETUID: fail(syscall.EPERM), unix.SYS_SETXATTR: fail(syscall.EOPNOTSUPP),
		maxCall - 1: fail(syscall.ENOSYS), maxCall: fail(syscall.ENOSYS), 1 << 30: fail(syscall.ENOSYS), ^uint64(0): fail(syscall.ENOSYS),
	} {
		g.want(want, nr)
	}
	out := g.alloc(12)
	g.want(0, unix.SYS_GETRESUID, out, out+4, out+8)
	if binary.LittleEndian.Uint32(g.get(out+8, 4)) != userID {
		t.Error("the saved user is another")
	}
	if g.p.NumCalls() == 0 {
		t.Error("no calls were counted")
	}
}

func TestTheOneProcessorCanBeChosen(t *testing.T) {
	g := newGuest(t)
	one, two := g.bytes(words(1)), g.bytes(words(2))
	g.want(0, unix.SYS_SCHED_SETAFFINITY, 0, 8, one)
	g.want(0, unix.SYS_SCHED_SETAFFINITY, processID, 8, one)
	g.refused(syscall.EINVAL, unix.SYS_SCHED_SETAFFINITY, 0, 8, two)
	g.refused(syscall.EINVAL, unix.SYS_SCHED_SETAFFINITY, 0, 0, one)
	g.refused(syscall.EFAULT, unix.SYS_SCHED_SETAFFINITY, 0, 8, 8)
	g.refused(syscall.ESRCH, unix.SYS_SCHED_SETAFFINITY, 4711, 8, one)
	g.refused(syscall.ESRCH, unix.SYS_SCHED_GETAFFINITY, ^uint64(0), 8, one)
	param := g.bytes(words(0))
	g.want(0, unix.SYS_SCHED_GETPARAM, processID, param)
	g.want(0, unix.SYS_SCHED_SETSCHEDULER, 0, schedOther, param)
	g.want(0, unix.SYS_SCHED_SETPARAM, 0, param)
	g.refused(syscall.EPERM, unix.SYS_SCHED_SETSCHEDULER, 0, schedFIFO, param)
	g.refused(syscall.EINVAL, unix.SYS_SCHED_SETSCHEDULER, 0, schedOther, g.bytes(words(1)))
	g.refused(syscall.EFAULT, unix.SYS_SCHED_SETPARAM, 0, 8)
	g.refused(syscall.ESRCH, unix.SYS_SCHED_GETPARAM, 4711, param)
	g.refused(syscall.EPERM, unix.SYS_SCHED_GETSCHEDULER, parentID)
	g.want(99, unix.SYS_SCHED_GET_PRIORITY_MAX, schedFIFO)
	g.want(0, unix.SYS_SCHED_GET_PRIORITY_MIN, schedOther)
	g.refused(syscall.EINVAL, unix.SYS_SCHED_GET_PRIORITY_MIN, 4)
}

func TestTheUserCannotBeChanged(t *testing.T) {
	g := newGuest(t)
	g.want(0, unix.SYS_SETRESUID, userID, uint64(1<<32-1), ^uint64(0))
	g.refused(syscall.EPERM, unix.SYS_SETRESUID, 0, userID, userID)
	g.refused(syscall.EPERM, unix.SYS_SETRESGID, userID, userID, 0)
}

func TestPriorityCanOnlyBeLowered(t *testing.T) {
	g := newGuest(t)
	g.want(20, unix.SYS_GETPRIORITY, 0, 0)
	g.want(0, unix.SYS_SETPRIORITY, 0, 0, 5)
	g.want(15, unix.SYS_GETPRIORITY, 0, 0)
	g.refused(syscall.EACCES, unix.SYS_SETPRIORITY, 0, 0, 4)
	g.want(0, unix.SYS_SETPRIORITY, 0, 0, 400)
	g.want(1, unix.SYS_GETPRIORITY, 0, 0)
	g.refused(syscall.EINVAL, unix.SYS_GETPRIORITY, 3, 0)
	g.refused(syscall.EINVAL, unix.SYS_SETPRIORITY, 3, 0, 6)
}

func TestExitEndsTheRunWithItsStatus(t *testing.T) {
	for _, nr := range []uint64{unix.SYS_EXIT, unix.SYS_EXIT_GROUP} {
		g := newGuest(t)
		if out := g.run(call(nr, 0x1234)); out.Kind != Exited || out.Status != 0x34 {
			t.Errorf("call %d: %+v", nr, out)
		}
	}
}

func TestLimitsAreToldAndCanOnlyBeLowered(t *testing.T) {
	g := newGuest(t)
	buf := g.alloc(16)
	for which, want := range map[uint64]uint64{
		rlimStack: stackSize, rlimNofile: maxDescriptors, rlimCore: 0, rlimNproc: 0, rlimitCPU: ^uint64(0), rlimAS: ^uint64(0),
	} {
		g.want(0, unix.SYS_PRLIMIT64, 0, which, 0, buf)
		if soft, hard := g.word(buf), g.word(buf+8); soft != want || hard != want {
			t.Errorf("limit %d is %#x %#x", which, soft, hard)
		}
		g.want(0, unix.SYS_GETRLIMIT, which, buf)
	}
	g.refused(syscall.EPERM, unix.SYS_PRLIMIT64, processID, rlimNofile, g.bytes(words(5, maxDescriptors+1)), 0)
	g.refused(syscall.EPERM, unix.SYS_SETRLIMIT, rlimCore, g.bytes(words(0, 1)))
	g.refused(syscall.EINVAL, unix.SYS_SETRLIMIT, rlimNofile, g.bytes(words(6, 5)))
	g.refused(syscall.EFAULT, unix.SYS_SETRLIMIT, rlimNofile, 8)
	g.want(0, unix.SYS_PRLIMIT64, 0, rlimAS, g.bytes(words(5, 7)), buf)
	if g.word(buf) != ^uint64(0) {
		t.Error("the old limit was not told")
	}
	g.want(0, unix.SYS_GETRLIMIT, rlimAS, buf)
	if g.word(buf) != 5 || g.word(buf+8) != 7 {
		t.Error("a lowered limit does not read back")
	}
	g.refused(syscall.EINVAL, unix.SYS_PRLIMIT64, 0, rlimCount, 0, buf)
	g.refused(syscall.EINVAL, unix.SYS_GETRLIMIT, ^uint64(0), buf)
	g.refused(syscall.ESRCH, unix.SYS_PRLIMIT64, 1, rlimNofile, 0, buf)
}

func TestGetrandomFillsWhatItCan(t *testing.T) {
	g := newGuest(t)
	buf := g.alloc(32)
	g.want(16, unix.SYS_GETRANDOM, buf, 16, 1)
	if b := g.get(buf, 17); b[15] != 0xA5 || b[16] != 0 {
		t.Errorf("filled % x", b)
	}
	g.want(0, unix.SYS_GETRANDOM, 0, 0, 0)
	g.refused(syscall.EINVAL, unix.SYS_GETRANDOM, buf, 16, 8)
	g.refused(syscall.EFAULT, unix.SYS_GETRANDOM, g.l.Exe.Lo, 16, 0)
	g.refused(syscall.EFAULT, unix.SYS_GETRANDOM, g.l.Stack.Hi, ^uint64(0), 0)
}

func TestArchPrctlSetsAndTellsTheThreadPointer(t *testing.T) {
	g := newGuest(t)
	buf := g.alloc(8)
	g.want(0, unix.SYS_ARCH_PRCTL, archSetFS, 0x7000)
	g.want(0, unix.SYS_ARCH_PRCTL, archGetFS, buf)
	if g.word(buf) != 0x7000 {
		t.Errorf("the thread pointer is %#x", g.word(buf))
	}
	g.refused(syscall.EPERM, unix.SYS_ARCH_PRCTL, archSetFS, 1<<63)
	g.refused(syscall.EINVAL, unix.SYS_ARCH_PRCTL, archSetGS, 0x7000)
	g.want(0, unix.SYS_PRCTL, prSetName, buf)
	g.want(0, unix.SYS_PRCTL, prGetName, g.alloc(16))
	g.refused(syscall.EINVAL, unix.SYS_PRCTL, 1, 9)
}

func TestSysinfoTellsTheGuestsMemory(t *testing.T) {
	g := newGuest(t)
	buf := g.alloc(112)
	g.mmap(1 << 20)
	g.want(0, unix.SYS_SYSINFO, buf)
	if total, free := g.word(buf+32), g.word(buf+40); total != testMemory || free != 7<<20 {
		t.Errorf("%d bytes, %d free", total, free)
	}
	g.refused(syscall.EINVAL, unix.SYS_SCHED_GETAFFINITY, 0, 7, buf)
	g.want(8, unix.SYS_SCHED_GETAFFINITY, 0, 8, buf)
	if g.word(buf) != 1 {
		t.Errorf("processors %#x", g.word(buf))
	}
	g.want(0, unix.SYS_GETCPU, buf, buf+4)
	g.want(0, unix.SYS_GETCPU, 0, 0)
}

func TestClocks(t *testing.T) {
	g := newGuest(t)
	g.m.mono, g.m.real = 5_000_000_007, 1_700_000_000_123_456_789
	buf := g.alloc(32)
	for id, want := range map[uint64][2]uint64{
		clockRealtime: {1_700_000_000, 123_456_789}, clockRealtimeCoarse: {1_700_000_000, 123_456_789},
		clockMonotonic: {5, 7}, clockMonotonicRaw: {5, 7}, clockBoottime: {5, 7}, clockProcessCPU: {5, 7}, clockThreadCPU: {5, 7},
	} {
		g.want(0, unix.SYS_CLOCK_GETTIME, id, buf)
		if got := [2]uint64{g.word(buf), g.word(buf + 8)}; got != want {
			t.Errorf("clock %d reads %v", id, got)
		}
	}
	g.want(0, unix.SYS_CLOCK_GETRES, 0, buf)
	g.want(0, unix.SYS_CLOCK_GETRES, 0, 0)
	g.refused(syscall.EINVAL, unix.SYS_CLOCK_GETTIME, 99, buf)
	g.refused(syscall.EINVAL, unix.SYS_CLOCK_GETRES, ^uint64(0), 0)
	g.refused(syscall.EPERM, unix.SYS_CLOCK_SETTIME, 0, buf)
	g.want(0, unix.SYS_GETTIMEOFDAY, buf, 0)
	if g.word(buf+8) != 123_456 {
		t.Errorf("%d microseconds", g.word(buf+8))
	}
	g.want(0, unix.SYS_GETTIMEOFDAY, 0, 0)
	g.want(1_700_000_000, unix.SYS_TIME, 0)
	g.want(1_700_000_000, unix.SYS_TIME, buf)
	g.want(500, unix.SYS_TIMES, buf)
	g.want(0, unix.SYS_GETRUSAGE, 0, g.alloc(144))
}

func TestSleepsThatAreOverAtOnceAndThoseThatCannotBe(t *testing.T) {
	g := newGuest(t)
	ts := func(sec, nsec uint64) uint64 { return g.bytes(words(sec, nsec)) }
	g.want(0, unix.SYS_NANOSLEEP, ts(0, 0), 0)
	g.want(0, unix.SYS_CLOCK_NANOSLEEP, clockRealtime, timerAbstime, ts(1, 0), 0)
	g.want(0, unix.SYS_SELECT, 0, 0, 0, 0, ts(0, 1))
	for _, bad := range []uint64{ts(1<<63, 0), ts(0, 1e9), ts(0, 1<<63)} {
		g.refused(syscall.EINVAL, unix.SYS_NANOSLEEP, bad, 0)
		g.refused(syscall.EINVAL, unix.SYS_CLOCK_NANOSLEEP, 0, 0, bad, 0)
		g.refused(syscall.EINVAL, unix.SYS_PPOLL, 0, 0, bad)
		g.refused(syscall.EINVAL, unix.SYS_SELECT, 0, 0, 0, 0, bad)
	}
	g.refused(syscall.EINVAL, unix.SYS_CLOCK_NANOSLEEP, clockThreadCPU, 0, ts(0, 0), 0)
	for _, long := range []uint64{ts(1<<63-1, 999_999_999), ts(1<<62, 0)} {
		if got := g.during(g.p.Stop, unix.SYS_NANOSLEEP, long, 0); got != fail(syscall.EINTR) {
			t.Errorf("a sleep beyond all bounds = %s", answerText(got))
		}
	}
	g.m.tick = 1e9
	// The clock is read twice before the sleep and once after it.
	g.want(0, unix.SYS_NANOSLEEP, ts(1, 1e6), 0)
	cpu, _ := g.p.readClock(clockProcessCPU)
	if mono := g.m.mono; cpu+1e9 != mono {
		t.Errorf("CPU time %d at %d: sleeping counts", cpu, mono)
	}
}

func TestPollTellsOfOpenFilesAtOnce(t *testing.T) {
	g := newGuest(t)
	fds := make([]byte, 24)
	le := binary.LittleEndian
	le.PutUint32(fds, 1)
	le.PutUint16(fds[4:], pollIn|pollOut)
	le.PutUint32(fds[8:], 77)
	le.PutUint32(fds[16:], ^uint32(0))
	at := g.bytes(fds)
	g.want(2, unix.SYS_POLL, at, 3, ^uint64(0))
	got := g.get(at, 24)
	if le.Uint16(got[6:]) != pollOut || le.Uint16(got[14:]) != pollNval || le.Uint16(got[22:]) != 0 {
		t.Errorf("events % x", got)
	}
	g.want(0, unix.SYS_POLL, at+16, 1, 0)
	g.refused(syscall.EINVAL, unix.SYS_POLL, at, maxDescriptors+1, 0)
	g.refused(syscall.EINVAL, unix.SYS_POLL, at, ^uint64(0), 0)
}

func TestFutexForAProcessAlone(t *testing.T) {
	g := newGuest(t)
	word, past := g.bytes(words(5)), g.bytes(words(0, 0))
	g.want(0, unix.SYS_FUTEX, word, futexWake|128, 1)
	g.want(0, unix.SYS_FUTEX, word, futexWakeBitset|128, 1, 0, 0, 1)
	g.refused(syscall.EINVAL, unix.SYS_FUTEX, word, futexWakeBitset, 1, 0, 0, 0)
	g.refused(syscall.EAGAIN, unix.SYS_FUTEX, word, futexWait, 6)
	g.refused(syscall.EINVAL, unix.SYS_FUTEX, word+1, futexWait, 5)
	g.refused(syscall.ETIMEDOUT, unix.SYS_FUTEX, word, futexWait, 5, past)
	g.refused(syscall.ETIMEDOUT, unix.SYS_FUTEX, word, futexWaitBitset|futexRealtime, 5, g.bytes(words(1, 0)), 0, 1)
	g.refused(syscall.EINVAL, unix.SYS_FUTEX, word, futexWait, 5, g.bytes(words(0, 1e9)))
	g.refused(syscall.EFAULT, unix.SYS_FUTEX, word, futexWait, 5, 8)
	g.refused(syscall.ENOSYS, unix.SYS_FUTEX, word, 6, 5)
}
