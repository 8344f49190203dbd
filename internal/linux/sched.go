package linux

import (
	"runtime"
	"time"
)

// timeSlice is how long a thread runs while others could: CPython's own switch
// interval (Python/ceval_gil.c, DEFAULT_INTERVAL).
const timeSlice = 5 * time.Millisecond

// minTick is the shortest time to a tick, whatever an alarm's interval: Linux's
// own slack for timers (init/init_task.c, timer_slack_ns). Each tick takes time
// of the host's outside the guest's processor.
const minTick = 50 * time.Microsecond

// scheduler shares the one processor out among the threads.
//
// Threads change only at the exits of the guest: at a system call that waits,
// and at a tick. The tick is a timer that runs while some other thread could
// have something to do before the guest leaves by itself, and not otherwise: a
// program with one thread is never disturbed.
type scheduler struct {
	threads []*thread
	current *thread
	lastID  uint64
	// next is where the search for another thread begins once the current one
	// has exited.
	next int
	// turns numbers the waits.
	turns uint64
	// frames counts the signal frames of all threads.
	frames int

	// yield asks for another thread to be looked for, prefer says which is to
	// be the first; rearm that the tick may have to come at another time.
	yield, rearm bool
	prefer       *thread
	// favourite, if set, runs whenever it can: the thread that an interrupt from
	// outside is to end has little time to do so.
	favourite *thread
	ticker    *time.Timer
	armed     bool
	alarm     alarm

	// slept is how long the process has slept, in nanoseconds; since and
	// sleptThen are the time and slept at the last switch.
	slept, since, sleptThen uint64

	// failure is an error of the machine that a handler met.
	failure error
}

// reset leaves one thread.
func (s *scheduler) reset(main *thread) {
	s.stopTicker()
	clear(s.threads) // what earlier threads hold
	*s = scheduler{threads: append(s.threads[:0], main), current: main, lastID: main.id, ticker: s.ticker, alarm: alarm{at: never}}
}

func (s *scheduler) stopTicker() {
	if s.armed {
		s.ticker.Stop()
		s.armed = false
	}
}

// now is the guest's monotonic time in nanoseconds.
func (p *Process) now() uint64 {
	mono, _ := p.cpu.Clock()
	return mono
}

// after gives the deadline of a wait that begins now.
func (p *Process) after(ns uint64) uint64 {
	now := p.now()
	return now + min(ns, never-1-now)
}

// schedule makes a thread that can go on the current one. Without one it waits
// for a deadline. It returns early, with a current thread that waits, for an
// interrupt or Stop.
func (p *Process) schedule() {
	p.yield = false
	for now := p.now(); p.failure == nil; {
		p.ringAlarm(now)
		if t := p.runnable(now); t != nil {
			p.switchTo(t)
			return
		}
		if p.ctl.stop.Load() || p.ctl.interrupt.Load() {
			return
		}
		now = p.idle(now)
	}
}

// runnable finds the next thread, in turn, that does not wait any more.
func (p *Process) runnable(now uint64) *thread {
	if t := p.prefer; t != nil {
		p.prefer = nil
		if !t.exited && p.ready(t, now) {
			return t
		}
	}
	if t := p.favourite; t != nil && !t.exited && p.ready(t, now) {
		return t
	}
	start := p.next
	for i, t := range p.threads {
		if t == p.current {
			start = i + 1
		}
	}
	n := len(p.threads)
	for i := range n {
		// One attempt may take a while: many files, or a long path.
		if p.stopping() {
			return nil
		}
		if t := p.threads[(start+i)%n]; p.ready(t, now) {
			return t
		}
	}
	return nil
}

// ready reports whether a thread can go on, and ends its wait if so.
func (p *Process) ready(t *thread, now uint64) bool {
	if !t.waiting {
		return true
	}
	if t.wait.try != nil {
		if ret, done := t.wait.try(); done {
			p.leaveSuspension(t)
			p.resume(t, ret)
			return true
		}
	}
	if t.wait.woken {
		p.resume(t, 0)
		return true
	}
	if n := p.deliverable(t); n != 0 {
		// The mask that a suspended call brought stays until the handler is
		// entered, which then returns to the one before.
		ret := interruptedCall
		if t.wait.signalled != nil {
			ret = t.wait.signalled()
		}
		if ret == interruptedCall && t.wait.restart && p.sig.actions[n].Flags&saRestart != 0 {
			p.restart(t)
		} else {
			p.resume(t, ret)
		}
		return true
	}
	if t.wait.deadline <= now {
		p.leaveSuspension(t)
		ret := uint64(0)
		if t.wait.expired != nil {
			ret = t.wait.expired()
		}
		p.resume(t, ret)
		return true
	}
	return false
}

// switchTo makes t the current thread.
func (p *Process) switchTo(t *thread) {
	p.rearm = true
	old := p.current
	if t == old {
		return
	}
	now := p.now()
	old.used += p.usedSince(now)
	p.since, p.sleptThen = now, p.slept
	if !old.exited {
		if p.failure = p.cpu.Save(&old.context); p.failure != nil {
			return
		}
	}
	p.current = t
	p.failure = p.cpu.Restore(&t.context)
}

// usedSince is the processor time that the current thread has had since it
// became the current one.
func (p *Process) usedSince(now uint64) uint64 {
	ns := now - min(now, p.since)
	return ns - min(ns, p.slept-p.sleptThen)
}

// usedBy is the processor time that a thread has had.
func (p *Process) usedBy(t *thread, now uint64) uint64 {
	if t != p.current {
		return t.used
	}
	return t.used + p.usedSince(now)
}

// idle waits for the next deadline, an interrupt or Stop. When there is no
// deadline, nothing in the guest can ever happen again: that is a deadlock, and
// whoever runs the process hears of it. It gives the time at its end.
func (p *Process) idle(now uint64) uint64 {
	at := min(p.alarm.at, p.nextTimer())
	for _, t := range p.threads {
		at = min(at, t.wait.deadline)
	}
	if at == never && p.deadlocked != nil && !p.hostAwaited() {
		p.deadlocked()
	}
	reached := now
	if p.doze(at, at-min(at, now)) {
		// Whatever the guest's clock says: the two may differ by a little.
		reached = at
	}
	after := p.now()
	p.slept += after - min(after, now)
	return max(after, reached)
}

// sleepUntilWoken sleeps for ns nanoseconds, or without a limit when at is
// never. It reports whether the time was slept to its end.
func (p *Process) sleepUntilWoken(at, ns uint64) bool {
	var expired <-chan time.Time
	if at != never {
		timer := time.NewTimer(time.Duration(min(ns, maxSleep)))
		defer timer.Stop()
		expired = timer.C
	}
	if p.roams {
		// A goroutine that is locked to its thread makes way for another one, and
		// comes back, through the kernel.
		runtime.UnlockOSThread()
		defer runtime.LockOSThread()
	}
	select {
	case <-expired:
		return true
	case <-p.ctl.wake:
		return false
	}
}

// arm sets the tick for what other threads wait for.
func (p *Process) arm() {
	p.rearm = false
	if (len(p.threads) == 1 || p.current == p.favourite) && p.alarm.at == never {
		p.stopTicker()
		return
	}
	now := p.now()
	at := p.alarm.at
	for _, t := range p.threads {
		switch {
		case t == p.current || p.current == p.favourite:
		case !t.waiting || t.wait.woken || t.wait.try != nil:
			at = min(at, now+uint64(timeSlice))
		default:
			at = min(at, t.wait.deadline)
		}
	}
	if at == never {
		p.stopTicker()
		return
	}
	p.tickIn(max(time.Duration(min(at-min(at, now), maxSleep)), minTick))
}

// startTicker makes the tick come after d.
func (p *Process) startTicker(d time.Duration) {
	p.armed = true
	if p.ticker == nil {
		p.ticker = time.AfterFunc(d, func() {
			p.ctl.tick.Store(true)
			p.cpu.Interrupt()
		})
		return
	}
	p.ticker.Reset(d)
}

// alarm is the timer behind alarm and setitimer(ITIMER_REAL).
type alarm struct {
	// at is when it rings (monotonic, in nanoseconds) or never; interval is
	// how long after that it rings again, zero for not at all.
	at, interval uint64
}
