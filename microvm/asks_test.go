package microvm

import (
	"context"
	"runtime"
	"testing"

	"github.com/maf-sandbox/maf-sandbox-go/internal/wire"
)

// A program whose time is up in a call must see that its time is up, and not that
// the call has failed.
func TestAnAnswerThatOnlySaysThatTimeIsUpWaitsUntilNobodyWantsIt(t *testing.T) {
	for name, end := range map[string]func(a *asks, over context.CancelFunc){
		"the worker withdraws the ask": func(a *asks, _ context.CancelFunc) { a.withdraw(7) },
		"the program has ended":        func(_ *asks, over context.CancelFunc) { over() },
	} {
		t.Run(name, func(t *testing.T) {
			for range 50 { // an answer that is sent too early may come a moment later
				served, replied := make(chan struct{}), make(chan wire.Answer, 1)
				b := newBudgets()
				a := &asks{asked: share{of: &b.asked}, answers: share{of: &b.answers}, pending: map[uint32]pending{}}
				a.serve = func(ctx context.Context, _ string, _ []byte) wire.Answer {
					defer close(served)
					<-ctx.Done()
					return wire.Answer{Failed: true}
				}
				a.reply = func(_ uint32, w wire.Answer) {
					a.answered(w.ID)
					replied <- w
				}
				over, ended := context.WithCancel(t.Context())
				time, up := context.WithCancel(over)
				if err := a.begin(time, over, 1, wire.Ask{ID: 7, Name: "x"}); err != nil {
					t.Fatal(err)
				}
				up()
				<-served
				for range 10 {
					runtime.Gosched()
				}
				select {
				case <-replied:
					t.Error("the answer came while the program could still see it")
				default:
				}
				end(a, ended)
				if w := <-replied; w.ID != 7 || len(a.pending) != 0 {
					t.Errorf("answer %+v, %d pending", w, len(a.pending))
				}
				ended()
			}
		})
	}
}
