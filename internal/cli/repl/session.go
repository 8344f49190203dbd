package repl

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/maf-sandbox/maf-sandbox-go/internal/cli"
	"github.com/maf-sandbox/maf-sandbox-go/internal/streams"
	"github.com/maf-sandbox/maf-sandbox-go/microvm"
	"github.com/maf-sandbox/maf-sandbox-go/sandbox"
)

const (
	prompt     = ">>> "
	promptMore = "... "
)

// session is one conversation. All of it runs on one goroutine, which hands
// what blocks, the machine and the editor, to others and waits for them and
// for signals.
type session struct {
	o       *Options
	ctx     context.Context // ends with the conversation
	cancel  context.CancelCauseFunc
	signals <-chan os.Signal

	editor         Editor
	machine        cli.Machine
	info           microvm.Info
	stdout, stderr *streams.Sink
	block          block
	timing         bool
}

// errQuit ends the conversation in good order.
var errQuit = errors.New("quit")

// loop reads and runs until the end and returns why it ended, nil for an
// ordinary end.
func (s *session) loop() error {
	for {
		err := s.turn()
		if cause := cli.StopCause(s.ctx); cause != nil {
			return cause
		}
		switch {
		case errors.Is(err, errQuit):
			return nil
		case errors.Is(err, io.EOF):
			if text := s.block.take(); text != "" {
				return s.execute(text)
			}
			return nil
		case err != nil:
			return err
		}
	}
}

// turn reads one line and runs what is complete by it.
func (s *session) turn() error {
	p := prompt
	if !s.block.empty() {
		p = promptMore
	}
	line, err := s.read(p)
	if errors.Is(err, ErrInterrupted) {
		s.block.reset()
		s.say("KeyboardInterrupt")
		return nil
	}
	if err != nil {
		return err
	}
	if s.block.empty() {
		if done, err := s.command(line); done || err != nil {
			return err
		}
	}
	for _, text := range s.block.feed(line) {
		if err := s.execute(text); err != nil {
			return err
		}
	}
	return nil
}

// read asks for a line. A signal ends the conversation.
func (s *session) read(p string) (string, error) {
	type answer struct {
		line string
		err  error
	}
	c := make(chan answer, 1)
	go func() {
		line, err := s.editor.Line(p)
		c <- answer{line, err}
	}()
	select {
	case a := <-c:
		return a.line, a.err
	case sig := <-s.signals:
		s.cancel(&cli.SignalError{Signal: sig})
	case <-s.ctx.Done():
	}
	return "", s.ctx.Err()
}

// execute runs text. The error it returns ends the conversation.
func (s *session) execute(text string) error {
	start := s.o.Now()
	res, err := s.run(text)
	passed := s.o.Now().Sub(start)
	if res.Value != "" {
		_, _ = s.stdout.Write([]byte(res.Value + "\n")) // the sink keeps the error
	}
	if s.stdout.MidLine() && s.o.Factory.Streams.OutTTY {
		_, _ = s.stdout.Write([]byte("\n")) // the prompt begins a line
	}
	if cause := cli.StopCause(s.ctx); cause != nil {
		return cause
	}
	if s.timing {
		s.say("%v", passed.Round(time.Microsecond))
	}
	return s.settle(res, err)
}

// run has the machine run text and waits for it. Ctrl-C interrupts the
// program; any other signal ends the conversation too.
func (s *session) run(text string) (microvm.Result, error) {
	ctx, cancel := context.WithCancel(s.ctx)
	defer cancel()
	type outcome struct {
		res microvm.Result
		err error
	}
	c := make(chan outcome, 1)
	go func() {
		res, err := s.machine.Run(ctx, microvm.Request{
			Code: text, Filename: "<stdin>", Echo: true,
			Timeout: s.o.Timeout.Value, MaxOutput: int(s.o.MaxOutput.Bytes),
			Live:   true,
			Stdout: s.stdout, Stderr: s.stderr,
		})
		c <- outcome{res, err}
	}()
	for {
		select {
		case o := <-c:
			return o.res, o.err
		case sig := <-s.signals:
			if sig != os.Interrupt {
				s.cancel(&cli.SignalError{Signal: sig})
			}
			cancel()
		}
	}
}

// settle says what there is to say about a run and replaces a machine that is
// of no more use.
func (s *session) settle(res microvm.Result, err error) error {
	switch {
	case res.Exited && errors.Is(err, sandbox.ErrGuestCrash):
		s.say("%s: the program ended its interpreter with status %d", cli.Program, res.ExitCode)
	case errors.Is(err, sandbox.ErrCanceled):
		if !bytes.Contains(res.Stderr, []byte("KeyboardInterrupt")) {
			s.say("KeyboardInterrupt")
		}
	case err != nil:
		s.say("%s", cli.Message(err))
	}
	if sandbox.Usable(err) {
		return nil
	}
	s.say("%s: the sandbox is retired; going on with a fresh one, names are lost", cli.Program)
	_ = s.machine.Close() // it is given up either way
	s.machine = nil
	return s.open()
}

// open gets a machine, with a progress line and Ctrl-C as the way out.
func (s *session) open() error {
	p := s.o.Factory.Streams.Progress()
	defer p.Done()
	ctx, cancel := context.WithCancel(s.ctx)
	defer cancel()
	type outcome struct {
		m    cli.Machine
		info microvm.Info
		err  error
	}
	c := make(chan outcome, 1)
	go func() {
		m, info, err := s.o.Factory.Open(ctx, s.o.Machine.Options(p.Say))
		c <- outcome{m, info, err}
	}()
	for {
		select {
		case o := <-c:
			if cause := cli.StopCause(s.ctx); o.err != nil && cause != nil {
				return cause
			}
			s.machine, s.info = o.m, o.info
			return o.err
		case sig := <-s.signals:
			s.cancel(&cli.SignalError{Signal: sig})
		}
	}
}

// say writes a line of the program's own to standard error.
func (s *session) say(format string, args ...any) {
	nl := ""
	if s.stderr.MidLine() {
		nl = "\n"
	}
	_, _ = s.stderr.Write([]byte(nl + fmt.Sprintf(format, args...) + "\n")) // the sink keeps the error
}

func (s *session) close() {
	if s.editor != nil {
		_ = s.editor.Close() // a lost history is not worth a message
	}
	if s.machine != nil {
		_ = s.machine.Close()
	}
	_, _ = s.stdout.Close(), s.stderr.Close()
}
