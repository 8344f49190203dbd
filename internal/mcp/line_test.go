package mcp

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/maf-sandbox/maf-sandbox-go/sandbox"
)

// joined puts a call in a line that has room.
func joined(t *testing.T, l *line) *place {
	t.Helper()
	p, err := l.join()
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// waits begins a wait and gives its end.
func waits(t *testing.T, p *place, patience time.Duration) <-chan error {
	t.Helper()
	ended := make(chan error, 1)
	go func() { ended <- p.wait(t.Context(), patience) }()
	return ended
}

func TestTheLineKeepsTheOrderOfArrivalWhoeverComesForItsTurnFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var l line
		places := []*place{joined(t, &l), joined(t, &l), joined(t, &l)}
		third := waits(t, places[2], 0)
		second := waits(t, places[1], 0)
		synctest.Wait()
		if len(second)+len(third) > 0 {
			t.Fatal("a call has its turn before the first one has come")
		}
		places[0].leave() // it never came
		if err := <-second; err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if len(third) > 0 {
			t.Fatal("two calls have their turn")
		}
		places[1].leave()
		places[1].leave()
		if err := <-third; err != nil {
			t.Fatal(err)
		}
	})
}

func TestTheWaitInLineIsBoundedForEachCallAhead(t *testing.T) {
	const patience = 2 * time.Second
	synctest.Test(t, func(t *testing.T) {
		var l line
		ahead := []*place{joined(t, &l), joined(t, &l), joined(t, &l), joined(t, &l)}
		begin := time.Now()
		last := waits(t, joined(t, &l), patience)
		// Calls that end, each in less time, are waited out. One that gives up its
		// place is not one that ends.
		time.Sleep(patience - 1)
		ahead[0].leave()
		time.Sleep(patience - 1)
		ahead[1].leave()
		time.Sleep(patience / 2)
		ahead[3].leave()
		err := <-last
		if took := time.Since(begin); took != 3*patience-2 {
			t.Errorf("it waited for %v", took)
		}
		if !errors.Is(err, sandbox.ErrQueuedTimeout) || !sandbox.Usable(err) {
			t.Errorf("got %v", err)
		}
	})
}

func TestWhoGivesUpInLineIsOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var l line
		first, second := joined(t, &l), joined(t, &l)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		for _, p := range []*place{first, second} { // whose turn it is, and whose it is not
			if err := p.wait(ctx, 0); !errors.Is(err, sandbox.ErrCanceled) || !sandbox.Usable(err) {
				t.Errorf("got %v", err)
			}
			p.leave()
		}
		if len(l.queue) != 0 {
			t.Errorf("%d are in line", len(l.queue))
		}
	})
}

func TestALineIsBoundedButForItsEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var l line
		runs := joined(t, &l)
		if err := <-waits(t, runs, 0); err != nil {
			t.Fatal(err)
		}
		var late *place
		for range maxWaiting - 1 {
			late = joined(t, &l)
		}
		if _, err := l.join(); !errors.Is(err, errWaiting) {
			t.Errorf("one too many: %v", err)
		}
		// Nobody comes for the other places any more, and what runs is waited for.
		end := l.joinLast()
		ended := waits(t, end, 0)
		synctest.Wait()
		if len(ended) > 0 {
			t.Error("the end did not wait for the call whose turn it was")
		}
		runs.leave()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		if err := late.wait(t.Context(), 0); !errors.Is(err, errOver) {
			t.Errorf("after the end: %v", err)
		}
		end.leave()
		if err := l.joinLast().wait(t.Context(), 0); err != nil {
			t.Errorf("the end again: %v", err)
		}
	})
}
