package mcp

import (
	"context"
	"io"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
)

// wire is a connection whose client sends requests with the ids of a channel, and
// takes answers into another.
type wire struct {
	sdk.Connection
	ids     chan int64
	answers chan jsonrpc.ID
	method  string
}

// Connect implements sdk.Transport.
func (w wire) Connect(context.Context) (sdk.Connection, error) { return w, nil }

func (w wire) Read(context.Context) (jsonrpc.Message, error) {
	n, ok := <-w.ids
	if !ok {
		return nil, io.EOF
	}
	return &jsonrpc.Request{ID: requestNumber(n), Method: w.method}, nil
}

func (w wire) Write(_ context.Context, message jsonrpc.Message) error {
	w.answers <- message.(*jsonrpc.Response).ID
	return nil
}

func (wire) Close() error { return nil }

func requestNumber(n int64) jsonrpc.ID {
	id, err := jsonrpc.MakeID(float64(n))
	if err != nil {
		panic(err) // of a number
	}
	return id
}

// connection gives the connection of a transport.
func connection(t *testing.T, of sdk.Transport) sdk.Connection {
	t.Helper()
	c, err := of.Connect(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestAnIDStandsForOneRequestUntilItsAnswer(t *testing.T) {
	for _, method := range []string{callMethod, "ping"} {
		w := wire{ids: make(chan int64, 8), answers: make(chan jsonrpc.ID, 8), method: method}
		l := new(line)
		c := connection(t, arriving{w, l, slog.New(slog.DiscardHandler)})
		next := func(want int64) {
			t.Helper()
			message, err := c.Read(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if got := message.(*jsonrpc.Request).ID; got != requestNumber(want) {
				t.Errorf("%s: %v was read, want %d", method, got.Raw(), want)
			}
		}
		for _, id := range []int64{1, 1, 1, 2} {
			w.ids <- id
		}
		next(1)
		next(2) // the others are dropped
		if err := c.Write(t.Context(), &jsonrpc.Response{ID: requestNumber(1)}); err != nil {
			t.Fatal(err)
		}
		w.ids <- 1
		next(1)
		for _, id := range []int64{2, 1} {
			if err := c.Write(t.Context(), &jsonrpc.Response{ID: requestNumber(id)}); err != nil {
				t.Fatal(err)
			}
		}
		if len(l.queue) != 0 {
			t.Errorf("%s: %d places are left", method, len(l.queue))
		}
	}
}

func TestAClientIsNotReadUntilItTakesItsAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const sent = 3 * maxUnanswered
		w := wire{ids: make(chan int64, sent), answers: make(chan jsonrpc.ID), method: "ping"}
		c := connection(t, draining{w, time.Second})
		for n := range int64(sent) {
			w.ids <- n
		}
		close(w.ids)
		ended := make(chan error, 1)
		go func() { // like the SDK
			for {
				message, err := c.Read(t.Context())
				if err != nil {
					ended <- err
					return
				}
				go func() { _ = c.Write(t.Context(), &jsonrpc.Response{ID: message.(*jsonrpc.Request).ID}) }()
			}
		}()
		for taken := range sent {
			synctest.Wait()
			if read, want := sent-len(w.ids), min(taken+maxUnanswered, sent); read != want {
				t.Fatalf("%d were read when %d answers were taken, want %d", read, taken, want)
			}
			<-w.answers
		}
		if err := <-ended; err != io.EOF {
			t.Errorf("got %v", err)
		}
	})
}

func TestAClientThatIsNotReadCanEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := wire{ids: make(chan int64, maxUnanswered), method: "ping"}
		c := connection(t, draining{w, time.Second})
		for n := range int64(maxUnanswered) {
			w.ids <- n
			if _, err := c.Read(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		ended := make(chan error, 1)
		go func() {
			_, err := c.Read(t.Context())
			ended <- err
		}()
		synctest.Wait()
		if err := c.Close(); err != nil {
			t.Fatal(err)
		}
		if err := <-ended; err != io.EOF {
			t.Errorf("got %v", err)
		}
	})
}
