package repl

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/peterh/liner"

	"github.com/maf-sandbox/maf-sandbox-go/internal/streams"
	"github.com/maf-sandbox/maf-sandbox-go/microvm"
)

// Editor asks the user for lines.
type Editor interface {
	// Line shows the prompt and returns a line without its line break, io.EOF
	// at the end, or ErrInterrupted when the user gave the line up.
	Line(prompt string) (string, error)
	// Close puts the terminal back and keeps the history.
	Close() error
}

// ErrInterrupted is what Line returns for Ctrl-C.
var ErrInterrupted = errors.New("interrupted")

// NewEditor gives line editing with the history kept in the file at path on a
// terminal, and plain reading without prompts elsewhere. An empty path means
// no history.
func NewEditor(s *streams.Streams, path string) Editor {
	if s.InTTY && s.OutTTY && liner.TerminalSupported() {
		return newTerminal(path)
	}
	return &plain{r: bufio.NewReader(s.In)}
}

// plain reads lines from what is no terminal.
type plain struct{ r *bufio.Reader }

func (p *plain) Line(string) (string, error) {
	var line []byte
	for {
		part, err := p.r.ReadSlice('\n')
		line = append(line, part...)
		switch {
		case errors.Is(err, bufio.ErrBufferFull) && len(line) <= microvm.MaxMaxCode:
			continue
		case errors.Is(err, bufio.ErrBufferFull):
			return "", fmt.Errorf("a line has more than %d bytes", microvm.MaxMaxCode)
		case errors.Is(err, io.EOF) && len(line) > 0, err == nil:
			return strings.TrimRight(string(line), "\r\n"), nil
		}
		return "", err
	}
}

func (p *plain) Close() error { return nil }

// terminal edits lines on the process's terminal.
type terminal struct {
	state *liner.State
	path  string
}

func newTerminal(path string) *terminal {
	t := &terminal{state: liner.NewLiner(), path: path}
	t.state.SetCtrlCAborts(true)
	t.state.SetMultiLineMode(true)
	t.state.SetTabCompletionStyle(liner.TabCircular)
	// There is nothing to complete; what Tab is good for here is indentation.
	t.state.SetWordCompleter(func(line string, pos int) (string, []string, string) {
		r := []rune(line)
		pos = min(pos, len(r))
		return string(r[:pos]), []string{"    "}, string(r[pos:])
	})
	loadHistory(t.state, path)
	return t
}

func (t *terminal) Line(prompt string) (string, error) {
	line, err := t.state.Prompt(prompt)
	switch {
	case errors.Is(err, liner.ErrPromptAborted):
		return "", ErrInterrupted
	case err != nil:
		return "", err
	}
	if strings.TrimSpace(line) != "" {
		t.state.AppendHistory(line)
	}
	return line, nil
}

func (t *terminal) Close() error {
	err := saveHistory(t.state, t.path)
	return errors.Join(err, t.state.Close())
}

// maxHistory bounds how much of the history file is read, in bytes.
const maxHistory = 1 << 20

// historyPath gives where the history is kept below the cache folder.
func historyPath(dir string) string {
	if dir == "" {
		return ""
	}
	return filepath.Join(dir, "history")
}

type historian interface {
	ReadHistory(io.Reader) (int, error)
	WriteHistory(io.Writer) (int, error)
}

// loadHistory reads what earlier conversations left. Lines that cannot be read
// are simply not there.
func loadHistory(h historian, path string) {
	if path == "" {
		return
	}
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if err != nil {
		return
	}
	defer func() { _ = f.Close() }() // only read
	_, _ = h.ReadHistory(io.LimitReader(f, maxHistory))
}

// saveHistory replaces the history file by one that only the user can read:
// what people type at a prompt may be private.
func saveHistory(h historian, path string) error {
	if path == "" {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return fmt.Errorf("history: %w", err)
	}
	f, err := os.CreateTemp(filepath.Dir(path), ".history-*") // created with mode 0600
	if err != nil {
		return fmt.Errorf("history: %w", err)
	}
	_, err = h.WriteHistory(f)
	err = errors.Join(err, f.Close())
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		_ = os.Remove(f.Name()) // a leftover file is all that can go wrong
		return fmt.Errorf("history: %w", err)
	}
	return nil
}
