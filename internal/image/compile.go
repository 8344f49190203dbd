//go:build unix

package image

import (
	"bufio"
	"context"
	_ "embed"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"sync"
)

//go:embed compile.py
var compileScript string

const (
	// compilers is how many interpreters compile at once.
	compilers = 2
	// maxByteCode bounds what one source file may compile to, in bytes.
	maxByteCode = 64 << 20
	// maxSource bounds a source file that is compiled, in bytes.
	maxSource = 16 << 20
)

// source is a text to be compiled.
type source struct {
	guest string
	text  []byte
}

// compiler makes byte code with the captured interpreter itself. Which process
// compiles what depends on the sources alone: byte code has marks of what the
// process compiled before, and equal inputs must give equal images.
type compiler struct {
	workers [compilers]*compileWorker
}

type compileWorker struct {
	size  int
	queue chan source
	done  chan struct{}
	code  map[string][]byte
	err   error
}

func newCompiler(ctx context.Context, python string) *compiler {
	c := new(compiler)
	for i := range c.workers {
		w := &compileWorker{queue: make(chan source, 16384), done: make(chan struct{}), code: make(map[string][]byte)}
		c.workers[i] = w
		go func() {
			defer close(w.done)
			w.err = w.run(ctx, python)
			for range w.queue { // let add go on after an error
			}
		}()
	}
	return c
}

// add queues a text.
func (c *compiler) add(guest string, text []byte) {
	if len(text) > maxSource {
		return
	}
	w := c.workers[0]
	for _, other := range c.workers[1:] {
		if other.size < w.size {
			w = other
		}
	}
	w.size += len(text)
	w.queue <- source{guest, text}
}

// close ends the queue and gives the byte code by source path. Texts that do
// not compile have none.
func (c *compiler) close() (map[string][]byte, error) {
	code := make(map[string][]byte)
	var errs []error
	for _, w := range c.workers {
		close(w.queue)
	}
	for _, w := range c.workers {
		<-w.done
		errs = append(errs, w.err)
		for guest, b := range w.code {
			code[guest] = b
		}
	}
	return code, errors.Join(errs...)
}

func (w *compileWorker) run(ctx context.Context, python string) error {
	env := append(helperEnv(), "PYTHONHASHSEED=0", "PYTHONSAFEPATH=1", "SOURCE_DATE_EPOCH=0")
	cmd := helper(ctx, env, python, "-S", "-s", "-B", "-W", "ignore", "-X", "utf8", "-c", compileScript)
	var errs limited
	cmd.Stderr = &errs
	in, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("compile with %s: %w", python, err)
	}
	err = w.exchange(in, out)
	if waitErr := cmd.Wait(); err == nil {
		err = waitErr
	}
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case err != nil:
		return fmt.Errorf("compile with %s: %w: %s", python, err, lastLine(errs.Bytes()))
	}
	return nil
}

// exchange sends sources and reads byte code until the queue ends.
func (w *compileWorker) exchange(in io.WriteCloser, out io.Reader) error {
	var (
		wg      sync.WaitGroup
		sendErr error
		sent    = make(chan string, cap(w.queue))
	)
	wg.Go(func() {
		defer close(sent)
		b := bufio.NewWriterSize(in, 1<<16)
		for s := range w.queue {
			head := binary.LittleEndian.AppendUint32(nil, uint32(len(s.guest)))
			head = binary.LittleEndian.AppendUint32(head, uint32(len(s.text)))
			for _, part := range [][]byte{head, []byte(s.guest), s.text} {
				if _, err := b.Write(part); err != nil {
					sendErr = err
					return
				}
			}
			sent <- s.guest
		}
		sendErr = errors.Join(b.Flush(), in.Close())
	})
	r := bufio.NewReaderSize(out, 1<<16)
	var err error
	for guest := range sent {
		var code []byte
		if code, err = readAnswer(r); err != nil {
			break
		}
		if len(code) > 0 {
			w.code[guest] = code
		}
	}
	if err != nil {
		// The process is gone or talks nonsense: unblock the sender.
		_ = in.Close()
		for range sent {
		}
	}
	wg.Wait()
	return errors.Join(err, sendErr)
}

func readAnswer(r io.Reader) ([]byte, error) {
	var head [4]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return nil, fmt.Errorf("read byte code: %w", err)
	}
	n := binary.LittleEndian.Uint32(head[:])
	if n > maxByteCode {
		return nil, fmt.Errorf("read byte code: %d bytes", n)
	}
	b := make([]byte, n)
	if _, err := io.ReadFull(r, b); err != nil {
		return nil, fmt.Errorf("read byte code: %w", err)
	}
	return b, nil
}
