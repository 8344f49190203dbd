package linux

import (
	"slices"
	"syscall"
)

// interrupt does what Interrupt asked for.
func (p *Process) interrupt() {
	if p.mailbox.parking {
		return
	}
	p.mailbox.interrupted = true
	p.favourite = p.raise(sigInfo{signo: syscall.SIGINT, host: true})
	p.dropHostCallsBeside()
}

// withdrawInterrupt takes back a signal of Interrupt that no handler has met,
// such as one that is blocked.
func (p *Process) withdrawInterrupt() {
	p.sig.queue.withdraw()
	for _, t := range p.threads {
		t.queue.withdraw()
	}
}

// withdraw removes a pending signal of Interrupt.
func (q *signalQueue) withdraw() {
	if i := slices.IndexFunc(q.info, func(s sigInfo) bool { return s.host }); i >= 0 {
		q.take(q.info[i].signo)
	}
}
