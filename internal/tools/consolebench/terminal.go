package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/charmbracelet/x/vt"
	"github.com/creack/pty"
)

// The terminal's size: the widest of the recorded screens.
const width, height = 140, 36

// patience bounds a hang: the Python program takes many seconds for the first
// look at ten thousand sandboxes.
const patience = 2 * time.Minute

// errPatience is a program that took longer than anybody waits.
var errPatience = fmt.Errorf("not within %v", patience)

// console is a program on a terminal.
type console struct {
	cmd    *exec.Cmd
	tty    *os.File
	screen *vt.Emulator
	chunks chan []byte
	seen   []byte // all that was written
	start  time.Time
}

func open(ctx context.Context, p program, directory string) (*console, error) {
	cmd := exec.CommandContext(ctx, p.path)
	cmd.Env = environment(directory)
	start := time.Now()
	tty, err := pty.StartWithSize(cmd, &pty.Winsize{Cols: width, Rows: height})
	if err != nil {
		return nil, err
	}
	c := &console{cmd: cmd, tty: tty, screen: vt.NewEmulator(width, height), chunks: make(chan []byte, 64), start: start}
	// Programs ask terminals who they are. The emulator answers, and somebody
	// has to take that.
	go func() { _, _ = io.Copy(tty, c.screen) }()
	go func() {
		defer close(c.chunks)
		for {
			buf := make([]byte, 64<<10)
			n, err := tty.Read(buf)
			if n > 0 {
				c.chunks <- buf[:n]
			}
			if err != nil {
				return
			}
		}
	}()
	return c, nil
}

func (c *console) close() {
	_ = c.cmd.Process.Kill()
	_ = c.tty.Close()
	for range c.chunks { // until the reader has ended
	}
	_ = c.screen.Close()
	_ = c.cmd.Wait() // it says that it was killed
}

// until reads what the program writes until done says so.
func (c *console) until(done func() bool) error {
	bound := time.NewTimer(patience)
	defer bound.Stop()
	for !done() {
		select {
		case chunk, more := <-c.chunks:
			if !more {
				return errors.New("the program ended")
			}
			c.seen = append(c.seen, chunk...)
			if _, err := c.screen.Write(chunk); err != nil {
				return err
			}
		case <-bound.C:
			return errPatience
		}
	}
	return nil
}

// firstPaint is the time from the start of the process until a text is on the
// screen.
func firstPaint(directory, text string) func(context.Context, program, int) ([]time.Duration, error) {
	return func(ctx context.Context, p program, _ int) ([]time.Duration, error) {
		c, err := open(ctx, p, directory)
		if err != nil {
			return nil, err
		}
		defer c.close()
		if err := c.until(func() bool { return bytes.Contains(c.seen, []byte(text)) }); err != nil {
			return nil, err
		}
		return []time.Duration{time.Since(c.start)}, nil
	}
}

// keys are the times from a key, which selects the next sandbox, until its whole
// id is on the screen, many times in one process. Looks at the host go on
// meanwhile.
func keys(directory string) func(context.Context, program, int) ([]time.Duration, error) {
	return func(ctx context.Context, p program, n int) ([]time.Duration, error) {
		c, err := open(ctx, p, directory)
		if err != nil {
			return nil, err
		}
		defer c.close()
		shown := func(i int) func() bool {
			return func() bool { return strings.Contains(c.screen.String(), instance(i)) }
		}
		if err := c.until(shown(0)); err != nil {
			return nil, err
		}
		took := make([]time.Duration, n)
		for i := range took {
			start := time.Now()
			if _, err := c.tty.WriteString("\x1b[B"); err != nil {
				return nil, err
			}
			if err := c.until(shown(i + 1)); err != nil {
				return nil, fmt.Errorf("key %d: %w", i+1, err)
			}
			took[i] = time.Since(start)
		}
		return took, nil
	}
}
