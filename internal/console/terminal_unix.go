//go:build linux || darwin

package console

import (
	"context"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	tea "charm.land/bubbletea/v2"
	"golang.org/x/sys/unix"
	"golang.org/x/term"
)

// answerTime is what a terminal has at the end to give its last answers; over
// ssh they take a while.
const answerTime = time.Second

// maxUnread bounds what is thrown away of a terminal that did not answer.
const maxUnread = 64 << 10

// maxLost bounds how often there is nothing to read where there was something: a
// terminal that was hung up says so for ever.
const maxLost = 16

// terminal is the operator's terminal as it is around the console. Bubble Tea
// asks terminals what they can do, and an answer that comes after the console
// has ended would be typed at the shell's prompt. So the terminal stays raw for
// a while longer than Bubble Tea has it: until it has answered.
type terminal struct {
	in, out int // descriptors
	before  *term.State
}

// openTerminal makes the terminal raw; nil for what is no terminal.
func openTerminal(config Config) (*terminal, error) {
	in, inIs := descriptor(config.Input, os.Stdin)
	out, outIs := descriptor(config.Output, os.Stdout)
	if !inIs || !outIs {
		return nil, nil
	}
	t := &terminal{in: in, out: out}
	return t, t.take()
}

// descriptor is that of a terminal.
func descriptor(stream any, ordinary *os.File) (int, bool) {
	file, isFile := stream.(*os.File)
	switch {
	case stream == nil:
		file = ordinary
	case !isFile:
		return -1, false
	}
	fd := int(file.Fd())
	return fd, term.IsTerminal(fd)
}

func (t *terminal) take() (err error) {
	t.before, err = term.MakeRaw(t.in)
	return err
}

// giveBack waits for the terminal's last answers and makes it what it was.
func (t *terminal) giveBack() error {
	t.settle()
	return term.Restore(t.in, t.before)
}

// settle reads what the terminal still answers. What is typed after that is left
// for who reads next.
func (t *terminal) settle() {
	end := time.Now().Add(answerTime)
	if t.readNoWait() != nil {
		return // it is gone
	}
	// A terminal that takes nothing, as one that was stopped, is not asked.
	if t.ready(t.out, true, end) {
		if _, err := unix.Write(t.out, []byte(deviceQuestion)); err != nil {
			return // it is gone
		}
		var find answerFinder
		for lost := 0; lost < maxLost && t.ready(t.in, false, end); {
			n, b := t.readByte()
			switch {
			case n < 0, n > 0 && find.add(b):
				return
			case n == 0:
				lost++
			}
		}
	}
	for range maxUnread {
		if !t.ready(t.in, false, time.Time{}) {
			return
		}
		if n, _ := t.readByte(); n <= 0 {
			return
		}
	}
}

// readNoWait has reads of the terminal return what is there, until its modes are
// restored. After a panic Bubble Tea does not wait for its reader, which may take a
// byte from under one that was told of it, and that one would wait for ever.
func (t *terminal) readNoWait() error {
	mode, err := unix.IoctlGetTermios(t.in, getTermios)
	if err != nil {
		return err
	}
	mode.Cc[unix.VMIN], mode.Cc[unix.VTIME] = 0, 0
	return unix.IoctlSetTermios(t.in, setTermios, mode)
}

// readByte reads a byte if there is one; n is 1 then, 0 without, and negative when
// the terminal is gone.
func (t *terminal) readByte() (n int, b byte) {
	var one [1]byte
	for {
		n, err := unix.Read(t.in, one[:])
		switch {
		case err == unix.EINTR:
			continue
		case err != nil:
			return -1, 0
		}
		return n, one[0]
	}
}

// ready waits until the descriptor can be read from or written to. It is select
// and not poll, which macOS does not have for every terminal.
func (t *terminal) ready(fd int, writing bool, end time.Time) bool {
	if fd >= unix.FD_SETSIZE {
		return false
	}
	for {
		var set unix.FdSet
		set.Set(fd)
		read, write := &set, (*unix.FdSet)(nil)
		if writing {
			read, write = nil, &set
		}
		left := unix.NsecToTimeval(int64(max(0, time.Until(end))))
		n, err := unix.Select(fd+1, read, write, nil, &left)
		if err == unix.EINTR {
			continue
		}
		return n == 1 && err == nil
	}
}

// suspension gives the shell its terminal until it has the console go on. It is
// a [tea.ExecCommand]: Bubble Tea's own suspension waits for no answers.
type suspension struct {
	terminal *terminal
	ctx      context.Context // of the console
}

// Run stops the process, and its group as Ctrl-Z does, until SIGCONT. Where
// there is nobody to send that, nothing is stopped, and the console may end.
func (s suspension) Run() error {
	resumed := make(chan os.Signal, 1)
	signal.Notify(resumed, syscall.SIGCONT)
	defer signal.Stop(resumed)
	if err := s.terminal.giveBack(); err != nil {
		return err
	}
	if err := syscall.Kill(0, syscall.SIGTSTP); err != nil {
		return err
	}
	select {
	case <-resumed:
	case <-s.ctx.Done():
	}
	return s.terminal.take()
}

// SetStdin does nothing: the terminal is known.
func (suspension) SetStdin(io.Reader) {}

// SetStdout does nothing, as SetStdin.
func (suspension) SetStdout(io.Writer) {}

// SetStderr does nothing, as SetStdin.
func (suspension) SetStderr(io.Writer) {}

// suspend gives the way to suspend a console that ends with the context.
func (t *terminal) suspend(ctx context.Context) tea.Cmd {
	return tea.Exec(suspension{t, ctx}, nil)
}
