package streams

import "io"

// Sink is one of the guest's two output streams on its way to the user. A
// write to it never fails for the guest's sake; the first failure is kept,
// told to the owner at once and everything after it is dropped.
type Sink struct {
	name   string
	w      io.Writer
	filter *Neutralizer // nil: bytes pass unchanged
	fail   func(error)
	err    error
	mid    *bool // the cursor is in the middle of a line
}

// Guest gives the sinks for a guest's stdout and stderr. Bytes for a terminal
// are neutralised unless raw is set; bytes for pipes and files pass unchanged.
// fail, if not nil, hears of the first failed write of each, which satisfies
// errors.Is for ErrPipe or ErrWrite.
func (s *Streams) Guest(raw bool, fail func(error)) (stdout, stderr *Sink) {
	stdout = newSink("standard output", s.Out, s.OutTTY && !raw, fail)
	stderr = newSink("standard error", s.Err, s.ErrTTY && !raw, fail)
	if s.OutTTY && s.ErrTTY {
		stdout.mid = stderr.mid // one screen, one cursor
	}
	return stdout, stderr
}

func newSink(name string, w io.Writer, neutral bool, fail func(error)) *Sink {
	k := &Sink{name: name, w: w, fail: fail, mid: new(bool)}
	if neutral {
		k.filter = NewNeutralizer(w)
		k.w = k.filter
	}
	return k
}

// Write takes all of p. It reports the first failure again and again, so that
// whoever looks at it can stop.
func (k *Sink) Write(p []byte) (int, error) {
	if k.err != nil {
		return 0, k.err
	}
	if len(p) == 0 {
		return 0, nil
	}
	*k.mid = p[len(p)-1] != '\n'
	if _, err := k.w.Write(p); err != nil {
		k.failed(err)
		return 0, k.err
	}
	return len(p), nil
}

// Close lets go of what the terminal filter holds back and returns the first
// failure there was. It does not close the stream.
func (k *Sink) Close() error {
	if k.filter != nil && k.err == nil {
		if err := k.filter.Close(); err != nil {
			k.failed(err)
		}
	}
	return k.err
}

// MidLine says whether what was written last does not end a line.
func (k *Sink) MidLine() bool { return *k.mid }

func (k *Sink) failed(err error) {
	k.err = classify(k.name, err)
	if k.fail != nil {
		k.fail(k.err)
	}
}
