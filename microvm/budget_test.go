package microvm

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/maf-sandbox/maf-sandbox-go/internal/wire"
	"github.com/maf-sandbox/maf-sandbox-go/sandbox"
)

// asker is a sandbox whose worker asks when it is told to, and says what it was
// answered.
type asker struct {
	s    *Sandbox
	sent chan int // sizes of asks
	got  chan wire.Answer
	done chan error
}

// newAsker makes a sandbox with a run under way. Its asks are not answered before
// hold is closed.
func newAsker(t *testing.T, b *Backend, system *fakeSystem, n int, hold <-chan struct{}) *asker {
	t.Helper()
	a := &asker{sent: make(chan int), got: make(chan wire.Answer, 8), done: make(chan error, 1)}
	system.serve = answers(func(w *fakeWorker, f wire.Frame) {
		switch f.Kind {
		case wire.KindRun:
			go func() {
				id := uint32(0)
				for size := range a.sent {
					id++
					w.send(wire.KindAsk, f.Call, wire.Ask{ID: id, Name: "x", Payload: make([]byte, size)})
				}
				w.send(wire.KindDone, f.Call, wire.Done{Usable: true})
			}()
		case wire.KindAnswer:
			var answer wire.Answer
			if wire.Decode(f.Payload, &answer) == nil {
				a.got <- answer
			}
		}
	})
	var err error
	if a.s, err = b.Get(t.Context(), numbered(n), listed("example.com")); err != nil {
		t.Fatal(err)
	}
	a.s.link.asks.serve = func(ctx context.Context, _ string, request []byte) wire.Answer {
		select {
		case <-hold:
		case <-ctx.Done():
		}
		return wire.Answer{Payload: []byte{byte(len(request))}}
	}
	go func() { _, err := a.s.RunCode(context.Background(), "x", time.Minute); a.done <- err }()
	return a
}

// refused sends an ask and says whether it is answered at once, which is a
// refusal.
func (a *asker) refused(t *testing.T, size int, used func() int) bool {
	t.Helper()
	before := used()
	a.sent <- size
	for {
		select {
		case answer := <-a.got:
			if !answer.Failed || !answer.NoRoom || answer.Failure != tooMuchAsked {
				t.Fatalf("answered %+v", answer)
			}
			return true
		case <-time.After(time.Millisecond):
		}
		if used() >= before+size && size > freeAsk || size <= freeAsk && a.s.link.asks.count() > 0 {
			return false
		}
	}
}

func (a *asks) count() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.pending)
}

func TestAllSandboxesTogetherAskWithinTheBudget(t *testing.T) {
	const mib = 1 << 20
	hold := make(chan struct{})
	system := new(fakeSystem)
	b := fakeBackend(t, system, Config{})
	b.asked.limit = 17 * mib
	used := func() int {
		b.asked.mu.Lock()
		defer b.asked.mu.Unlock()
		return b.asked.used
	}
	var all []*asker
	for n := range 4 {
		all = append(all, newAsker(t, b, system, n, hold))
	}
	for i, c := range []struct {
		name    string
		sandbox int
		size    int
		refused bool
	}{
		{"the first", 0, 8 * mib, false},
		{"a second large one of the same sandbox, of the half that is for others", 0, 4 * mib, true},
		{"one of another sandbox", 1, 8 * mib, false},
		{"one more than there is room for", 2, 8 * mib, true},
		{"a small one, of which there is never too much", 3, freeAsk / 2, false},
		{"one that finds the rest", 2, mib / 2, false},
	} {
		if got := all[c.sandbox].refused(t, c.size, used); got != c.refused {
			t.Errorf("%d, %s: refused %v", i, c.name, got)
		}
	}
	close(hold)
	for _, a := range all {
		close(a.sent)
		if err := <-a.done; err != nil {
			t.Error(err)
		}
	}
	if used() != 0 {
		t.Errorf("%d bytes are taken when all is answered", used())
	}
}

func TestTheBudgetIsGivenBackHoweverASandboxEnds(t *testing.T) {
	const size = 1 << 20
	for name, end := range map[string]func(w *fakeWorker, call uint32, ask []byte){
		"in the middle of an ask": func(w *fakeWorker, call uint32, ask []byte) {
			frame := []byte{0, 0, 16, 0, byte(wire.KindAsk), 0, 0, 0, byte(call), 0, 0, 0}
			_, _ = w.theirs.Write(append(frame, ask[:size/2]...))
			w.die(errors.New("killed"))
		},
		"with an ask that is no message": func(w *fakeWorker, call uint32, _ []byte) { w.send(wire.KindAsk, call, make([]byte, size)) },
		"with an ask of another call":    func(w *fakeWorker, call uint32, ask []byte) { w.send(wire.KindAsk, call+1, ask) },
		"with an ask that waits": func(w *fakeWorker, call uint32, ask []byte) {
			w.send(wire.KindAsk, call, ask)
			w.die(errors.New("killed"))
		},
		"with an ask twice": func(w *fakeWorker, call uint32, ask []byte) {
			w.send(wire.KindAsk, call, ask)
			w.send(wire.KindAsk, call, ask)
		},
	} {
		t.Run(name, func(t *testing.T) {
			ask, err := wire.Encode(wire.Ask{ID: 1, Name: "x", Payload: make([]byte, size)})
			if err != nil {
				t.Fatal(err)
			}
			b := fakeBackend(t, &fakeSystem{serve: answers(func(w *fakeWorker, f wire.Frame) {
				if f.Kind == wire.KindRun {
					end(w, f.Call, ask)
				}
			})}, Config{})
			s, err := b.Get(t.Context(), key(), listed("example.com"))
			if err != nil {
				t.Fatal(err)
			}
			s.link.asks.serve = func(ctx context.Context, _ string, _ []byte) wire.Answer {
				<-ctx.Done()
				return wire.Answer{}
			}
			if _, err := s.RunCode(t.Context(), "x", time.Minute); err == nil || sandbox.Usable(err) {
				t.Errorf("error %v", err)
			}
			eventually(t, "nothing is taken of the budget", func() bool {
				b.asked.mu.Lock()
				defer b.asked.mu.Unlock()
				return b.asked.used == 0
			})
		})
	}
}

func TestAProgramWhoseRequestFindsNoRoomGetsAnOSError(t *testing.T) {
	web(t)
	b := open(t, nil)
	b.asked.limit = 1 << 20
	s, err := b.Get(t.Context(), key(), listed(webAddress))
	if err != nil {
		t.Fatal(err)
	}
	got := prints(t, s, `
try: http_post('http://`+webAddress+`/large', 'x' * (2 << 20))
except OSError as e: print(type(e).__name__, e)
print(http_post('http://`+webAddress+`/small', 'x' * (512 << 10))['status'])
`)
	if !strings.HasPrefix(got, "OSError [Errno 105] ") || !strings.Contains(got, "try again later") || !strings.HasSuffix(got, "\n200\n") {
		t.Errorf("printed %q", got)
	}
}
