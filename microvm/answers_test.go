package microvm

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/maf-sandbox/maf-sandbox-go/internal/egress"
	"github.com/maf-sandbox/maf-sandbox-go/internal/wire"
)

func TestASandboxGetsNoMoreOfABudgetThanItLeaves(t *testing.T) {
	const limit = 1200
	b := budget{limit: limit}
	greedy := func(s *share) (held int) {
		for s.take(1) {
			held++
		}
		return held
	}
	all := make([]share, 4)
	for i, want := range []int{600, 300, 150, 75} {
		all[i].of = &b
		if got := greedy(&all[i]); got != want {
			t.Errorf("sandbox %d has %d of %d, not %d", i, got, limit, want)
		}
	}
	// What one gives back is there for the others, however little they had.
	all[0].give(600)
	if got := 75 + greedy(&all[3]); got != 375 {
		t.Errorf("the last one has %d then", got)
	}
	for i := range all {
		all[i].give(all[i].held)
	}
	if b.used != 0 {
		t.Errorf("%d are taken of an unused budget", b.used)
	}
}

func TestAGrantTakesAndGivesBackWhatItChanges(t *testing.T) {
	b := budget{limit: 10 * freeAsk}
	g := grant{share: &share{of: &b}}
	for i, step := range []struct {
		n       int
		granted bool
		used    int
	}{
		{freeAsk, true, 0}, // what is small is free
		{2 * freeAsk, true, 2 * freeAsk},
		{5 * freeAsk, true, 5 * freeAsk},
		{6 * freeAsk, false, 5 * freeAsk},
		{3 * freeAsk, true, 3 * freeAsk},
		{10, true, 0},
	} {
		if got := g.room(step.n); got != step.granted || b.used != step.used {
			t.Errorf("step %d: %d bytes are granted: %t, with %d taken", i, step.n, got, b.used)
		}
	}
	g.room(4 * freeAsk)
	if g.free(); b.used != 0 {
		t.Errorf("%d bytes stay taken", b.used)
	}
}

// The limits of one sandbox's requests are what it has when it is alone: while the
// last half of a body arrives, the first is there twice.
func TestASandboxAloneHasRoomForAllItsRequestsAtOnce(t *testing.T) {
	b := newBudgets()
	s := share{of: &b.answers}
	for i := range egress.DefaultConcurrent {
		g := grant{share: &s}
		if !g.room(egress.DefaultBodyBytes + egress.DefaultBodyBytes/2 + 2*egress.MaxHeaderBytes) {
			t.Errorf("no room for answer %d", i)
		}
	}
}

// answering is a sandbox whose program asks for answers of so many bytes, one
// after the other, and what it was answered.
func answering(t *testing.T, b *Backend, system *fakeSystem, sizes ...int) (*Sandbox, <-chan []wire.Answer) {
	t.Helper()
	var got []wire.Answer
	all := make(chan []wire.Answer, 1)
	ask := func(w *fakeWorker, call uint32) {
		if len(got) == len(sizes) {
			all <- got
			w.send(wire.KindDone, call, wire.Done{Usable: true})
			return
		}
		w.send(wire.KindAsk, call, wire.Ask{ID: uint32(len(got)), Name: "x", Payload: make([]byte, 4)})
	}
	system.serve = answers(func(w *fakeWorker, f wire.Frame) {
		var answer wire.Answer
		switch {
		case f.Kind == wire.KindRun:
			ask(w, f.Call)
		case f.Kind == wire.KindAnswer && wire.Decode(f.Payload, &answer) == nil:
			got = append(got, answer)
			ask(w, f.Call)
		}
	})
	s, err := b.Get(t.Context(), key(), listed("example.com"))
	if err != nil {
		t.Fatal(err)
	}
	next := 0
	s.link.asks.serve = func(context.Context, string, []byte) wire.Answer {
		next++
		return wire.Answer{Payload: make([]byte, sizes[next-1])}
	}
	return s, all
}

// An answer that comes whole, and did not ask for room while it grew, finds it or
// is dropped.
func TestAnswersWithoutRoomAreFailuresThatSayTryAgain(t *testing.T) {
	const mib = 1 << 20
	system := new(fakeSystem)
	b := fakeBackend(t, system, Config{})
	b.answers.limit = 5 * mib
	sizes := []int{4 * mib, 6 * mib, freeAsk, 4 * mib}
	s, got := answering(t, b, system, sizes...)
	if _, err := s.RunCode(t.Context(), "x", time.Minute); err != nil {
		t.Fatal(err)
	}
	for i, a := range <-got {
		if i == 1 && (!a.Failed || a.Failure != tooMuchAnswered) || i != 1 && len(a.Payload) != sizes[i] {
			t.Errorf("answer %d: %d bytes, failed %t, %q", i, len(a.Payload), a.Failed, a.Failure)
		}
	}
	if b.answers.used != 0 {
		t.Errorf("%d bytes are taken when all is answered", b.answers.used)
	}
}

func TestAnAnswerThatIsDroppedGivesItsRoomBack(t *testing.T) {
	const size = 1 << 20
	b := fakeBackend(t, &fakeSystem{serve: answers(func(w *fakeWorker, f wire.Frame) {
		if f.Kind == wire.KindRun {
			w.send(wire.KindAsk, f.Call, wire.Ask{ID: 1, Name: "x"})
		}
	})}, Config{})
	s, err := b.Get(t.Context(), key(), listed("example.com"))
	if err != nil {
		t.Fatal(err)
	}
	used := make(chan int, 1)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	s.link.asks.serve = func(ctx context.Context, _ string, _ []byte) wire.Answer {
		if !roomOf(ctx)(size) {
			t.Error("no room in an unused budget")
		}
		b.answers.mu.Lock()
		used <- b.answers.used
		b.answers.mu.Unlock()
		cancel()
		<-ctx.Done()
		return wire.Answer{Payload: make([]byte, size)}
	}
	if _, err := s.RunCode(ctx, "x", time.Minute); err == nil {
		t.Error("the run has come to an end")
	}
	if got := <-used; got != size {
		t.Errorf("%d bytes were taken", got)
	}
	eventually(t, "nothing is taken of the budget", func() bool {
		b.answers.mu.Lock()
		defer b.answers.mu.Unlock()
		return b.answers.used == 0
	})
}

func TestAProgramWhoseAnswerFindsNoRoomGetsAnOSError(t *testing.T) {
	web(t)
	b := open(t, nil)
	b.answers.limit = 2 << 20
	s, err := b.Get(t.Context(), key(), listed(webAddress))
	if err != nil {
		t.Fatal(err)
	}
	got := prints(t, s, `
import errno
try: http_get('http://`+webAddress+`/big')
except OSError as e: print(errno.errorcode[e.errno], e)
print(http_get('http://`+webAddress+`/small')['status'])
`)
	if !strings.HasPrefix(got, "ENOBUFS ") || !strings.Contains(got, "try again later") || !strings.HasSuffix(got, "\n200\n") {
		t.Errorf("printed %q", got)
	}
	b.answers.limit = maxAnsweredTogether
	if got := prints(t, s, "print(len(http_get('http://"+webAddress+"/big')['body']))"); got != "2097152\n" {
		t.Errorf("with room: %q", got)
	}
	if b.answers.used != 0 {
		t.Errorf("%d bytes are taken when all is answered", b.answers.used)
	}
}
