package mcp

import (
	"bytes"
	"errors"
	"fmt"
	"testing"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
)

// small is a replay with bounds of a few events of 100 bytes.
func small() *replay {
	r := newReplay()
	r.maxSession, r.max = 1200, 2900
	return r
}

// sends opens a stream and puts events of 100 bytes into it, each of its own letter.
func sends(t *testing.T, r *replay, session, stream, letters string) {
	t.Helper()
	if err := r.Open(t.Context(), session, stream); err != nil {
		t.Fatal(err)
	}
	for _, c := range []byte(letters) {
		if err := r.Append(t.Context(), session, stream, bytes.Repeat([]byte{c}, 100)); err != nil {
			t.Fatal(err)
		}
	}
}

// after is the letters of what is replayed after an index, or "gone".
func after(t *testing.T, r *replay, session, stream string, index int) (letters string) {
	t.Helper()
	for data, err := range r.After(t.Context(), session, stream, index) {
		if errors.Is(err, sdk.ErrEventsPurged) {
			return "gone"
		}
		if err != nil || len(data) != 100 {
			t.Fatalf("%d bytes, %v", len(data), err)
		}
		letters += string(data[:1])
	}
	return letters
}

// keeps checks the sum of what is kept, and its bounds.
func keeps(t *testing.T, r *replay, sessions int) {
	t.Helper()
	sum := 0
	for id, of := range r.sessions {
		size := 0
		for _, s := range of.streams {
			size += streamCost + eventCost*len(s.events)
			for _, data := range s.events {
				size += len(data)
			}
		}
		if size != of.size || size > r.maxSession {
			t.Errorf("session %s keeps %d bytes, counted as %d, of at most %d", id, size, of.size, r.maxSession)
		}
		sum += size
	}
	if sum != r.size || sum > r.max || len(r.sessions) != sessions {
		t.Errorf("%d bytes, counted as %d, of at most %d, in %d sessions, want %d", sum, r.size, r.max, len(r.sessions), sessions)
	}
}

func TestWhatWasSentIsReplayedFromAnyEvent(t *testing.T) {
	r := small()
	sends(t, r, "s", "one", "ab")
	sends(t, r, "s", "two", "c")
	for _, c := range []struct {
		session, stream string
		index           int
		want            string
	}{
		{"s", "one", -1, "ab"},
		{"s", "one", 0, "b"},
		{"s", "one", 1, ""},
		{"s", "one", 1 << 40, ""},
		{"s", "two", -1, "c"},
		{"s", "three", 0, "gone"},
		{"other", "one", 0, "gone"},
		{"s", standalone, -1, ""}, // a client that listens for the first time
		{"s", standalone, 0, "gone"},
	} {
		if got := after(t, r, c.session, c.stream, c.index); got != c.want {
			t.Errorf("%s/%s after %d: got %q, want %q", c.session, c.stream, c.index, got, c.want)
		}
	}
	keeps(t, r, 1)
	if err := r.SessionClosed(t.Context(), "s"); err != nil {
		t.Fatal(err)
	}
	if got := after(t, r, "s", "one", -1); got != "gone" {
		t.Errorf("after the session: %q", got)
	}
	keeps(t, r, 0)
}

func TestASessionLosesItsOldestStreamsOnly(t *testing.T) {
	r := small()
	sends(t, r, "quiet", "q", "q")
	for i := range 50 {
		sends(t, r, "busy", fmt.Sprint(i), "b")
		keeps(t, r, 2)
	}
	if got := after(t, r, "busy", "49", -1) + after(t, r, "busy", "48", -1) + " " + after(t, r, "busy", "0", -1); got != "bb gone" {
		t.Errorf("got %q", got)
	}
	if got := after(t, r, "quiet", "q", -1); got != "q" {
		t.Errorf("another session: %q", got)
	}
	// One that is larger than all there may be is not kept, and says so.
	sends(t, r, "busy", "large", "abcdefghijklmnop")
	if got := after(t, r, "busy", "large", 3); got != "gone" {
		t.Errorf("got %q", got)
	}
	keeps(t, r, 1)
}

func TestRoomIsMadeWhereMostIsKept(t *testing.T) {
	r := small()
	sends(t, r, "little", "l", "l")
	for _, busy := range []string{"one", "two", "three", "four"} {
		for i := range 10 {
			sends(t, r, busy, fmt.Sprint(i), "b")
		}
	}
	if got := after(t, r, "little", "l", -1); got != "l" {
		t.Errorf("a session that keeps little: %q", got)
	}
	keeps(t, r, 5)
}

func TestRequestsWithoutEndTakeNoRoomWithoutEnd(t *testing.T) {
	r := small()
	for i := range 10_000 {
		if err := r.Open(t.Context(), fmt.Sprint(i%100), fmt.Sprint(i)); err != nil {
			t.Fatal(err)
		}
	}
	if len(r.sessions) > r.max/streamCost {
		t.Errorf("%d sessions are kept", len(r.sessions))
	}
	keeps(t, r, len(r.sessions))
}
