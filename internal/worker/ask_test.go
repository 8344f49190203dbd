package worker

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/maf-sandbox/maf-sandbox-go/internal/engine"
	"github.com/maf-sandbox/maf-sandbox-go/internal/wire"
)

func TestTheBoundsOfEngineAndWireAgree(t *testing.T) {
	if engine.MaxHostCalls != wire.MaxAsks || engine.MaxHostName != wire.MaxAskName || engine.MaxHostBytes != wire.MaxAskBytes {
		t.Error("the engine allows calls to the host that the wire does not, or fewer")
	}
}

// wait has an ask wait for its answer, as the machine does.
func wait(ask engine.AskFunc) engine.HostFunc {
	return func(ctx context.Context, name string, request []byte) (reply []byte, err error) {
		done := make(chan struct{})
		ask(ctx, name, request, func(r []byte, e error) {
			reply, err = r, e
			close(done)
		})
		<-done
		return reply, err
	}
}

// runHost runs a program that may ask the host.
func (c *client) runHost(number uint32, code string) {
	c.t.Helper()
	c.send(wire.KindRun, number, wire.Run{Code: []byte(code), Timeout: time.Minute, Host: true})
}

// asked reads what the program asks.
func (c *client) asked(number uint32) (a wire.Ask) {
	c.t.Helper()
	c.next(wire.KindAsk, number, &a)
	return a
}

// stdout expects output and the end of its call.
func (c *client) stdout(number uint32, want string) {
	c.t.Helper()
	if f := c.next(wire.KindStdout, number, nil); string(f.Payload) != want {
		c.t.Errorf("stdout %q, want %q", f.Payload, want)
	}
	c.done(number)
}

func TestAProgramGetsTheHostsAnswer(t *testing.T) {
	c := serve(t, nil)
	c.start(wire.Start{})
	for i, k := range []struct {
		answer wire.Answer
		want   string
	}{
		{wire.Answer{Payload: []byte("reply")}, "reply"},
		{wire.Answer{Failed: true, Failure: "broken"}, "error: broken"},
		{wire.Answer{Failed: true, NoRoom: true, Failure: "x"}, "error: " + engine.ErrNoRoom.Error()},
		{wire.Answer{Unknown: true}, "error: not offered by the host"},
	} {
		n := uint32(i + 1)
		c.runHost(n, "ask na\xffme")
		a := c.asked(n)
		if a.ID != n || a.Name != "na\uFFFDme" || string(a.Payload) != "request" {
			t.Errorf("asked: %+v", a)
		}
		k.answer.ID = a.ID
		c.send(wire.KindAnswer, n, k.answer)
		c.stdout(n, k.want)
	}
	c.run(9, "ask x")
	c.stdout(9, "no host")
}

func TestAnswersFindTheirAsksInAnyOrder(t *testing.T) {
	c := serve(t, nil)
	c.start(wire.Start{})
	c.runHost(1, "asks")
	var asks []wire.Ask
	for range 3 {
		asks = append(asks, c.asked(1))
	}
	for _, a := range []wire.Ask{asks[2], asks[0], asks[1]} {
		c.send(wire.KindAnswer, 1, wire.Answer{ID: a.ID, Payload: []byte("to " + a.Name)})
	}
	if d := c.done(1); d.Kind != "" {
		t.Errorf("%+v", d)
	}
}

func TestAnAskThatNobodyWaitsForIsWithdrawnAndCountsUntilItIsAnswered(t *testing.T) {
	c := serve(t, nil)
	c.start(wire.Start{})
	c.runHost(1, "drop it")
	a := c.asked(1)
	c.m.running <- struct{}{}
	var w wire.Withdraw
	c.next(wire.KindWithdraw, 1, &w)
	if w.ID != a.ID {
		t.Errorf("%d was withdrawn, %d asked", w.ID, a.ID)
	}
	c.send(wire.KindAnswer, 1, wire.Answer{ID: a.ID, Failed: true, Failure: "cancelled"})
	if d := c.done(1); d.Kind != "" {
		t.Errorf("%+v", d)
	}
	c.run(2, "x")
	if d := c.done(2); d.Kind != "" {
		t.Errorf("the next call: %+v", d)
	}
}

// The host takes what is said of a call that is done for a breach of the protocol.
func TestNothingIsWithdrawnAfterTheCallIsDone(t *testing.T) {
	var sent bytes.Buffer
	s := &server{w: wire.NewWriter(&sent), asks: newAsks()}
	for _, number := range []uint32{1, 2} {
		if err := s.send(wire.KindWithdraw, number, wire.Withdraw{ID: number}); err != nil {
			t.Fatal(err)
		}
		if err := s.done(number, wire.Done{Usable: true}); err != nil {
			t.Fatal(err)
		}
		if err := s.send(wire.KindWithdraw, number, wire.Withdraw{ID: number}); err != nil {
			t.Fatal(err)
		}
	}
	var got []string
	for r := wire.NewReader(&sent, wire.MaxPayload); ; {
		f, err := r.Next()
		if err != nil {
			break
		}
		got = append(got, fmt.Sprint(f.Kind, " ", f.Call))
	}
	w, d := wire.KindWithdraw, wire.KindDone
	if want := []string{fmt.Sprint(w, " 1"), fmt.Sprint(d, " 1"), fmt.Sprint(w, " 2"), fmt.Sprint(d, " 2")}; !slices.Equal(got, want) {
		t.Errorf("sent %q, want %q", got, want)
	}
}

func TestAnAskEndsWithTheConnection(t *testing.T) {
	c := serve(t, nil)
	c.start(wire.Start{})
	c.runHost(1, "ask x")
	c.asked(1)
	c.close()
	if err := c.end(); err != nil && !errors.Is(err, unix.EPIPE) {
		t.Error(err)
	}
	if !c.m.closed {
		t.Error("the machine was not closed")
	}
}

func TestAnAnswerThatCannotBeEndsTheConnection(t *testing.T) {
	for name, act := range map[string]func(c *client){
		"nothing was asked": func(c *client) { c.send(wire.KindAnswer, 1, wire.Answer{ID: 1}) },
		"a second answer": func(c *client) {
			c.runHost(1, "drop x")
			a := c.asked(1)
			c.send(wire.KindAnswer, 1, wire.Answer{ID: a.ID})
			c.send(wire.KindAnswer, 1, wire.Answer{ID: a.ID})
			c.m.running <- struct{}{}
		},
		"garbage":                  func(c *client) { c.send(wire.KindAnswer, 1, []int{1}) },
		"an ask from the host":     func(c *client) { c.send(wire.KindAsk, 1, wire.Ask{}) },
		"a withdrawal by the host": func(c *client) { c.send(wire.KindWithdraw, 1, wire.Withdraw{}) },
	} {
		t.Run(name, func(t *testing.T) {
			c := serve(t, nil)
			c.start(wire.Start{})
			act(c)
			go func() { _, _ = io.Copy(io.Discard, c.conn) }() // what calls under way still say
			if err := c.end(); !errors.Is(err, wire.ErrProtocol) {
				t.Errorf("%v", err)
			}
		})
	}
}
