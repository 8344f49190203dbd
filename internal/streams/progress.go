package streams

import (
	"fmt"
	"io"
	"sync"
	"time"
)

// progressDelay is how long something may take before a progress line appears,
// and progressStep how often the line moves.
const (
	progressDelay = time.Second
	progressStep  = 125 * time.Millisecond
)

// Progress is one line on a terminal's standard error that says what the
// program is busy with. It appears when that takes longer than a second, and
// is erased when done. In pipes and files it writes nothing.
type Progress struct {
	w    io.Writer
	stop chan struct{}
	done chan struct{}

	mu  sync.Mutex // guards msg
	msg string
}

// Progress starts a progress line. Done must be called before anything else is
// written to standard error.
func (s *Streams) Progress() *Progress {
	tick := time.NewTicker(progressStep)
	p := s.progress(tick.C, progressDelay)
	if p.stop == nil {
		tick.Stop()
		return p
	}
	go func() {
		<-p.done
		tick.Stop()
	}()
	return p
}

func (s *Streams) progress(tick <-chan time.Time, delay time.Duration) *Progress {
	p := &Progress{w: s.Err}
	if !s.ErrTTY {
		return p
	}
	p.stop, p.done = make(chan struct{}), make(chan struct{})
	go p.loop(tick, delay, s.Width)
	return p
}

// Say sets the text of the line. It may be called from any goroutine.
func (p *Progress) Say(msg string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.msg = OneLine(msg)
}

// Done erases the line. It may be called more than once.
func (p *Progress) Done() {
	if p.stop == nil {
		return
	}
	close(p.stop)
	<-p.done
	p.stop = nil
}

func (p *Progress) loop(tick <-chan time.Time, delay time.Duration, width func() int) {
	defer close(p.done)
	const spinner = `|/-\`
	var start time.Time
	shown := false
	for i := 0; ; {
		select {
		case <-p.stop:
			if shown {
				_, _ = io.WriteString(p.w, "\r\x1b[K") // nothing can be done about a terminal that fails
			}
			return
		case now := <-tick:
			p.mu.Lock()
			msg := p.msg
			p.mu.Unlock()
			if start.IsZero() {
				start = now
			}
			passed := now.Sub(start)
			if msg == "" || passed < delay {
				continue
			}
			i++
			line := fmt.Sprintf("%c %s (%ds)", spinner[i%len(spinner)], msg, int(passed.Seconds()))
			_, _ = fmt.Fprintf(p.w, "\r%s\x1b[K", cut(line, width()-1))
			shown = true
		}
	}
}

// cut shortens s to at most n characters, so that the line never wraps. It
// takes every character for one column; messages are the program's own words.
func cut(s string, n int) string {
	r := []rune(s)
	if n < 1 || len(r) <= n {
		return s
	}
	return string(r[:n])
}
