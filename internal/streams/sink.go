package streams

import "io"

// Sink is one of the guest's two output streams on its way to the user. The
// first failure of either is kept, told to the owner at once, and everything
// after it is dropped on both: a program that is stopped because nobody reads
// it has nothing more to say. The two are used by one goroutine at a time.
type Sink struct {
	name   string
	w      io.Writer
	filter *Neutralizer // nil: bytes pass unchanged
	both   *shared
	mid    *bool // the cursor is in the middle of a line
}

// shared is what a guest's two sinks have in common.
type shared struct {
	fail func(error)
	err  error // the first failure
}

// Guest gives the sinks for a guest's stdout and stderr. Bytes for a terminal
// are neutralised unless raw is set; bytes for pipes and files pass unchanged.
// fail, if not nil, hears of the first failed write, which satisfies errors.Is
// for ErrPipe or ErrWrite.
func (s *Streams) Guest(raw bool, fail func(error)) (stdout, stderr *Sink) {
	both := &shared{fail: fail}
	stdout = newSink("standard output", s.Out, s.OutTTY && !raw, both)
	stderr = newSink("standard error", s.Err, s.ErrTTY && !raw, both)
	if s.OutTTY && s.ErrTTY {
		stdout.mid = stderr.mid // one screen, one cursor
	}
	return stdout, stderr
}

func newSink(name string, w io.Writer, neutral bool, both *shared) *Sink {
	k := &Sink{name: name, w: w, both: both, mid: new(bool)}
	if neutral {
		k.filter = NewNeutralizer(w)
		k.w = k.filter
	}
	return k
}

// Write takes all of p. It reports the first failure again and again, so that
// whoever looks at it can stop.
func (k *Sink) Write(p []byte) (int, error) {
	if k.both.err != nil {
		return 0, k.both.err
	}
	if len(p) == 0 {
		return 0, nil
	}
	*k.mid = p[len(p)-1] != '\n'
	if _, err := k.w.Write(p); err != nil {
		k.failed(err)
		return 0, k.both.err
	}
	return len(p), nil
}

// Close lets go of what the terminal filter holds back and returns the first
// failure there was. It does not close the stream.
func (k *Sink) Close() error {
	if k.filter != nil && k.both.err == nil {
		if err := k.filter.Close(); err != nil {
			k.failed(err)
		}
	}
	return k.both.err
}

// MidLine says whether what was written last does not end a line.
func (k *Sink) MidLine() bool { return *k.mid }

func (k *Sink) failed(err error) {
	k.both.err = classify(k.name, err)
	if k.both.fail != nil {
		k.both.fail(k.both.err)
	}
}
