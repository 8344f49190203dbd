package repl

import (
	"bufio"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/maf-sandbox/maf-sandbox-go/internal/engine"
)

// history is what an editor remembers.
type history struct{ text string }

func (h *history) ReadHistory(r io.Reader) (int, error) {
	b, err := io.ReadAll(r)
	h.text = string(b)
	return len(b), err
}

func (h *history) WriteHistory(w io.Writer) (int, error) { return io.WriteString(w, h.text) }

func lines(text string) *history { return &history{text} }

func TestPlainReadsLinesOfAnyLengthUpToTheLimit(t *testing.T) {
	long := strings.Repeat("x", 100_000)
	p := &plain{r: bufio.NewReader(strings.NewReader("a\r\n\n" + long + "\nlast"))}
	for _, want := range []string{"a", "", long, "last"} {
		if got, err := p.Line(""); got != want || err != nil {
			t.Errorf("got %.20q, %v; want %.20q", got, err, want)
		}
	}
	if _, err := p.Line(""); !errors.Is(err, io.EOF) {
		t.Errorf("got %v at the end", err)
	}
}

func TestPlainRefusesALineBeyondTheLimit(t *testing.T) {
	p := &plain{r: bufio.NewReader(io.LimitReader(ones{}, 2*engine.MaxCodeBytes))}
	if _, err := p.Line(""); err == nil || errors.Is(err, io.EOF) {
		t.Errorf("got %v", err)
	}
}

type ones struct{}

func (ones) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = '1'
	}
	return len(p), nil
}
