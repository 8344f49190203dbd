package console

import (
	"context"
	"errors"
	"io"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/creack/pty"

	"github.com/maf-sandbox/maf-sandbox-go/control"
)

// stuckHosts are hosts that answer only when they are told to give up.
type stuckHosts struct {
	*fakeHosts
	asked chan struct{}
	once  sync.Once
}

func (h *stuckHosts) Ask(ctx context.Context, _ control.Manifest) ([]control.Record, error) {
	h.once.Do(func() { close(h.asked) })
	<-ctx.Done()
	return nil, ctx.Err()
}

// onTerminal runs a console on a terminal in this process. The channel of bytes
// is what it writes.
func onTerminal(ctx context.Context, t *testing.T, hosts Hosts) (tty *os.File, output <-chan string, done <-chan error) {
	t.Helper()
	tty, side, err := pty.Open()
	if err != nil {
		t.Fatal(err)
	}
	if err := pty.Setsize(tty, &pty.Winsize{Cols: 80, Rows: 24}); err != nil {
		t.Fatal(err)
	}
	written, ended := make(chan string, 1000), make(chan error, 1)
	read := make(chan struct{})
	go func() {
		defer close(read)
		var b [4096]byte
		for {
			n, err := tty.Read(b[:])
			if err != nil {
				return
			}
			select {
			case written <- string(b[:n]):
			default: // nobody looks any more
			}
		}
	}()
	go func() {
		ended <- Run(ctx, hosts, Config{Input: side, Output: side, Environ: []string{"TERM=xterm-256color"}})
	}()
	t.Cleanup(func() {
		_ = side.Close()
		_ = tty.Close()
		<-read
	})
	return tty, written, ended
}

const patience = 30 * time.Second

func wait[T any](t *testing.T, what string, c <-chan T) T {
	t.Helper()
	select {
	case v := <-c:
		return v
	case <-time.After(patience):
		t.Fatalf("%s does not come", what)
	}
	panic("not reached")
}

func seesOutput(t *testing.T, output <-chan string, text string) {
	t.Helper()
	var all strings.Builder
	for !strings.Contains(all.String(), text) {
		all.WriteString(wait(t, text, output))
	}
}

func TestTheEndOfTheContextEndsTheConsoleAndItsQuestions(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	hosts := &stuckHosts{fakeHosts: five(), asked: make(chan struct{})}
	_, output, done := onTerminal(ctx, t, hosts)
	seesOutput(t, output, "Looking for sandboxes")
	wait(t, "a question", hosts.asked)
	cancel()
	if err := wait(t, "the end", done); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}

func TestQuittingEndsTheQuestionsThatAreUnderWay(t *testing.T) {
	hosts := &stuckHosts{fakeHosts: five(), asked: make(chan struct{})}
	tty, output, done := onTerminal(t.Context(), t, hosts)
	seesOutput(t, output, "Looking for sandboxes")
	wait(t, "a question", hosts.asked)
	if _, err := io.WriteString(tty, "q"); err != nil {
		t.Fatal(err)
	}
	if err := wait(t, "the end", done); err != nil {
		t.Errorf("got %v", err)
	}
}
