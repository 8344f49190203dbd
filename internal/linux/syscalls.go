package linux

import "syscall"

// args are a system call's six arguments.
type args [6]uint64

// handler answers a system call with what RAX will hold.
type handler func(p *Process, a *args) uint64

// maxCall is one more than the highest number that is looked at
// (arch/x86/entry/syscalls/syscall_64.tbl); x32 numbers are far above.
const maxCall = 480

// fail is how Linux returns an error.
func fail(e syscall.Errno) uint64 { return uint64(-int64(e)) }

// errnoOf gives the error that a return value stands for, or zero.
func errnoOf(v uint64) syscall.Errno {
	if n := -int64(v); n > 0 && n < 4096 {
		return syscall.Errno(n)
	}
	return 0
}

// result turns an errno into a return value.
func result(e syscall.Errno) uint64 {
	if e != 0 {
		return fail(e)
	}
	return 0
}

// syscall answers the system call the guest is stopped at.
func (p *Process) syscall() {
	r, t := p.cpu.Regs(), p.current
	nr := r.RAX
	ret := fail(syscall.ENOSYS)
	if nr < maxCall {
		p.calls[nr]++
		if h := handlers[nr]; h != nil {
			a := args{r.RDI, r.RSI, r.RDX, r.R10, r.R8, r.R9}
			ret = h(p, &a)
		}
	}
	if t.waiting {
		t.call = nr
		return
	}
	r.RAX = ret
}

// handlers by system call number. What is not here answers ENOSYS. Reasons for
// some of the refusals:
//
//   - fork, vfork, execve and their kin: there is one process. ENOSYS makes
//     CPython raise OSError "Function not implemented".
//   - socket and connect: EPERM for what would leave the guest, because the
//     network is refused by policy rather than unknown.
var handlers = [maxCall]handler{
	0: sysRead, 1: sysWrite, 2: sysOpen, 3: sysClose,
	4: sysStat, 5: sysFstat, 6: sysLstat, 7: sysPoll,
	8: sysLseek, 9: sysMmap, 10: sysMprotect, 11: sysMunmap,
	12: sysBrk, 13: sysRtSigaction, 14: sysRtSigprocmask, 15: sysRtSigreturn,
	16: sysIoctl, 17: sysPread64, 18: sysPwrite64, 19: sysReadv,
	20: sysWritev, 21: sysAccess, 22: sysPipe, 23: sysSelect, 24: sysSchedYield,
	25: sysMremap, 26: sysMsync, 28: sysMadvise,
	32: sysDup, 33: sysDup2, 34: sysPause, 35: sysNanosleep,
	36: sysGetitimer, 37: sysAlarm, 38: sysSetitimer,
	39: answer(processID), // getpid
	40: sysSendfile,
	41: sysSocket, 42: sysConnect, 43: sysAccept, 44: sysSendto,
	45: sysRecvfrom, 46: sysSendmsg, 47: sysRecvmsg, 48: sysShutdown,
	49: sysBind, 50: sysListen, 51: sysGetsockname, 52: sysGetpeername,
	53: sysSocketpair, 54: sysSetsockopt, 55: sysGetsockopt,
	56: sysClone, 60: sysExit,
	61: refuse(syscall.ECHILD), // wait4
	62: sysKill, 63: sysUname,
	72: sysFcntl, 73: answer(0), // flock
	74: sysSync, 75: sysSync, 76: sysTruncate, 77: sysFtruncate,
	79: sysGetcwd, 80: sysChdir, 81: sysFchdir, 82: sysRename,
	83: sysMkdir, 84: sysRmdir, 85: sysCreat, 86: sysLink,
	87: sysUnlink, 88: sysSymlink, 89: sysReadlink, 90: sysChmod,
	91: sysFchmod, 92: sysChown, 93: sysFchown, 94: sysLchown,
	95: sysUmask, 96: sysGettimeofday, 97: sysGetrlimit, 98: sysGetrusage,
	99: sysSysinfo, 100: sysTimes,
	102: answer(userID), 104: answer(userID), // getuid, getgid
	105: refuse(syscall.EPERM), 106: refuse(syscall.EPERM), // setuid, setgid
	107: answer(userID), 108: answer(userID), // geteuid, getegid
	109: refuse(syscall.EPERM), // setpgid
	110: answer(parentID),      // getppid
	111: answer(processID),     // getpgrp
	112: refuse(syscall.EPERM), // setsid
	115: answer(0),             // getgroups: none
	116: refuse(syscall.EPERM), // setgroups
	117: sysSetresuid, 119: sysSetresuid, 118: sysGetresuid, 120: sysGetresuid,
	121: answer(processID), 124: answer(processID), // getpgid, getsid
	127: sysRtSigpending, 128: sysRtSigtimedwait, 130: sysRtSigsuspend, 131: sysSigaltstack,
	133: sysMknod, 137: sysStatfs, 138: sysFstatfs,
	140: sysGetpriority, 141: sysSetpriority,
	142: sysSchedSetparam, 143: sysSchedGetparam, 144: sysSchedSetscheduler, 145: sysSchedGetscheduler,
	146: sysSchedPriorityMax, 147: sysSchedPriorityMin, 148: sysSchedRRGetInterval,
	157: sysPrctl, 158: sysArchPrctl, 160: sysSetrlimit,
	161: refuse(syscall.EPERM), // chroot
	162: answer(0),             // sync
	186: sysGettid,
	// setxattr and its kin: shutil goes on without extended attributes.
	188: refuse(syscall.EOPNOTSUPP),
	189: refuse(syscall.EOPNOTSUPP),
	190: refuse(syscall.EOPNOTSUPP),
	191: refuse(syscall.EOPNOTSUPP),
	192: refuse(syscall.EOPNOTSUPP),
	193: refuse(syscall.EOPNOTSUPP),
	194: refuse(syscall.EOPNOTSUPP),
	195: refuse(syscall.EOPNOTSUPP),
	196: refuse(syscall.EOPNOTSUPP),
	197: refuse(syscall.EOPNOTSUPP),
	198: refuse(syscall.EOPNOTSUPP),
	199: refuse(syscall.EOPNOTSUPP),
	200: sysTkill, 201: sysTime, 202: sysFutex,
	203: sysSchedSetaffinity, 204: sysSchedGetaffinity, 213: sysEpollCreate, 217: sysGetdents64, 218: sysSetTidAddress,
	221: answer(0), // fadvise64
	227: sysClockSettime, 228: sysClockGettime, 229: sysClockGetres, 230: sysClockNanosleep,
	231: sysExitGroup, 232: sysEpollWait, 233: sysEpollCtl, 234: sysTgkill,
	257: sysOpenat, 258: sysMkdirat, 259: sysMknod, 260: sysFchownat,
	262: sysNewfstatat, 263: sysUnlinkat, 264: sysRenameat, 265: sysLinkat,
	266: sysSymlinkat, 267: sysReadlinkat, 268: sysFchmodat, 269: sysFaccessat,
	270: sysPselect6, 271: sysPpoll,
	273: answer(0), // set_robust_list: matters only to other threads
	280: sysUtimensat, 281: sysEpollPwait, 283: sysTimerfdCreate, 284: sysEventfd,
	285: sysFallocate, 286: sysTimerfdSettime, 287: sysTimerfdGettime, 288: sysAccept4,
	290: sysEventfd2, 291: sysEpollCreate1,
	292: sysDup3, 293: sysPipe2, 295: sysPreadv, 296: sysPwritev,
	302: sysPrlimit64, 309: sysGetcpu, 316: sysRenameat2, 318: sysGetrandom, 319: sysMemfdCreate,
	326: sysCopyFileRange, 327: sysPreadv, 328: sysPwritev, 332: sysStatx,
	435: sysClone3, 436: sysCloseRange, 439: sysFaccessat2, 441: sysEpollPwait2,
}
