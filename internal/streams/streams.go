package streams

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"

	"golang.org/x/term"
)

// DefaultWidth is the width, in columns, assumed where no terminal says.
const DefaultWidth = 80

// ErrPipe is the class of writes whose reader has gone away, as with
// `| head`. It is no failure to speak of: the program ends quietly.
var ErrPipe = errors.New("reader closed the pipe")

// ErrWrite is the class of all other failed writes, such as a full device.
var ErrWrite = errors.New("write failed")

// Streams are the three standard streams and what is known about them.
type Streams struct {
	In       io.Reader
	Out, Err io.Writer
	// InTTY, OutTTY and ErrTTY say which of them are terminals.
	InTTY, OutTTY, ErrTTY bool
	// Color says whether Out may carry colour and bold: it is a terminal and
	// the user has not set NO_COLOR.
	Color bool
	// Width gives the columns of the terminal behind Out, DefaultWidth
	// without one.
	Width func() int
}

// System gives the streams of this process.
func System() *Streams {
	s := &Streams{
		In: os.Stdin, Out: os.Stdout, Err: os.Stderr,
		InTTY:  term.IsTerminal(int(os.Stdin.Fd())),
		OutTTY: term.IsTerminal(int(os.Stdout.Fd())),
		ErrTTY: term.IsTerminal(int(os.Stderr.Fd())),
	}
	s.Color = s.OutTTY && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"
	s.Width = func() int {
		// A terminal that has not been told its size reports zero.
		if w, _, err := term.GetSize(int(os.Stdout.Fd())); err == nil && w > 0 {
			return w
		}
		return DefaultWidth
	}
	return s
}

// Test gives streams over buffers, none of which is a terminal.
func Test(stdin string) (s *Streams, out, errOut *bytes.Buffer) {
	out, errOut = new(bytes.Buffer), new(bytes.Buffer)
	return &Streams{
		In: bytes.NewBufferString(stdin), Out: out, Err: errOut,
		Width: func() int { return DefaultWidth },
	}, out, errOut
}

// WriteOut writes p to standard output and classifies a failure as ErrPipe or
// ErrWrite.
func (s *Streams) WriteOut(p []byte) error {
	_, err := s.Out.Write(p)
	return classify("standard output", err)
}

func classify(name string, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, syscall.EPIPE), errors.Is(err, io.ErrClosedPipe):
		return fmt.Errorf("%s: %w", name, ErrPipe)
	}
	var path *os.PathError
	if errors.As(err, &path) {
		err = path.Err // "write /dev/stdout: " says nothing that name does not
	}
	return fmt.Errorf("%s: %w: %w", name, ErrWrite, err)
}
