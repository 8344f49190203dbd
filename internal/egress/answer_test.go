package egress_test

import (
	"bytes"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// ledger is a room of a size, as one answer finds it.
type ledger struct {
	limit, held, most int
}

func (l *ledger) room(n int) bool {
	if n > l.limit {
		return false
	}
	l.held, l.most = n, max(l.most, n)
	return true
}

func TestAnAnswerTakesItsRoomBeforeTheMemory(t *testing.T) {
	w := newWeb(t, func(rw http.ResponseWriter, r *http.Request) {
		n, _ := strconv.Atoi(strings.Trim(r.URL.Path, "/"))
		if r.URL.RawQuery == "chunked" {
			rw.(http.Flusher).Flush()
		} else {
			rw.Header().Set("Content-Length", strconv.Itoa(n))
		}
		_, _ = rw.Write(bytes.Repeat([]byte("x"), n))
	})
	b := w.broker(t, newPolicy(t, listing("api.example.com")), nil)
	for _, row := range []struct {
		path  string
		limit int
		want  string
	}{
		{"0", 1000, "200"},
		{"1000", 2000, "200"},
		{"1000?chunked", 8 << 10, "200"},
		{"1000?chunked", 2000, "no_room"},
		{"1000000", 1_700_000, "200"},
		{"1000000?chunked", 1_700_000, "200"},
		{"1000000", 1_000_000, "no_room"},
		{"1000000?chunked", 1_000_000, "no_room"},
		{"8388608", 13 << 20, "200"},
		{"8388608", 8 << 20, "no_room"},
		{"100000000", 1 << 30, "too_large"},
	} {
		of := &ledger{limit: row.limit}
		reply := b.Serve(within(t), message(`{"method":"GET","url":"http://api.example.com/`+row.path+`"}`), of.room)
		got := decodeReply(t, reply)
		if got.kind() != row.want {
			t.Errorf("%s within %d: %s, not %s", row.path, row.limit, got.kind(), row.want)
		}
		switch size, _ := strconv.Atoi(strings.TrimSuffix(row.path, "?chunked")); {
		case got.Error == nil && (len(got.body) != size || of.held != cap(reply)):
			t.Errorf("%s: %d bytes of body in %d, of which %d are taken", row.path, len(got.body), cap(reply), of.held)
		case got.Error != nil && !strings.Contains(got.Error.Message, "try again") && row.want == "no_room":
			t.Errorf("%s: %s", row.path, got.Error.Message)
		}
		if seen := w.lastSeen(t); seen.Failure.String() != row.want && got.Error != nil {
			t.Errorf("%s: observed as %s", row.path, seen.Failure)
		}
	}
}

// An answer for which there is no room is given up at once, not when the rest of it
// comes.
func TestAnswersWithoutRoomAreGivenUpWhileTheyArrive(t *testing.T) {
	const requests, size, granted = 8, 8 << 20, 3 << 20
	release := make(chan struct{})
	w := newWeb(t, func(rw http.ResponseWriter, _ *http.Request) {
		rw.Header().Set("Content-Length", strconv.Itoa(size))
		_, _ = rw.Write(make([]byte, size-1))
		rw.(http.Flusher).Flush()
		<-release
	})
	b := w.broker(t, newPolicy(t, listing("api.example.com")), nil)
	var group sync.WaitGroup
	for range requests {
		of := &ledger{limit: granted}
		group.Go(func() {
			reply := b.Serve(t.Context(), message(`{"method":"GET","url":"http://api.example.com/"}`), of.room)
			if got := decodeReply(t, reply); got.kind() != "no_room" || of.most > granted {
				t.Errorf("%s, with %d bytes taken", got.kind(), of.most)
			}
		})
	}
	done := make(chan struct{})
	go func() { group.Wait(); close(done) }()
	select {
	case <-done:
	case <-time.After(hang):
		t.Error("the broker waits for the rest of answers that have no room")
	}
	close(release)
}
