package mcp

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
)

// eventHeader names the last event that a client has of a stream that it asks for
// again, in the protocol.
const eventHeader = "Last-Event-ID"

// maxGets bounds the streams of a session that are open by GET: its own, and one for
// each call whose connection was lost.
const maxGets = maxWaiting + 1

// gets are the streams that clients have open by GET. There is one request for each:
// the SDK has others wait for one that is being replayed, also those whose clients
// have gone. The zero value is ready; all methods may be called at the same time.
type gets struct {
	mu sync.Mutex
	// open has the streams of each session; guarded by mu.
	open map[string]map[string]struct{}
}

// begin notes a request for a stream, until release.
func (g *gets) begin(session, stream string) (release func(), err *refusal) {
	g.mu.Lock()
	defer g.mu.Unlock()
	of := g.open[session]
	if _, open := of[stream]; open {
		return nil, &refusal{http.StatusConflict, "another request has this stream: end it first"}
	}
	if len(of) >= maxGets {
		return nil, &refusal{http.StatusTooManyRequests, fmt.Sprintf("%d streams of this session are open, which is the limit: end one first", maxGets)}
	}
	if of == nil {
		if g.open == nil {
			g.open = map[string]map[string]struct{}{}
		}
		of = map[string]struct{}{}
		g.open[session] = of
	}
	of[stream] = struct{}{}
	return func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		delete(of, stream)
		if len(of) == 0 {
			delete(g.open, session)
		}
	}, nil
}

// get serves a stream of a session.
func (g *gate) get(w http.ResponseWriter, r *http.Request) *refusal {
	session := r.Header.Get(sessionHeader)
	if g.server.named(session) != nil { // the SDK refuses others at once
		stream, _, _ := strings.Cut(r.Header.Get(eventHeader), "_") // and the event's number
		release, err := g.gets.begin(session, stream)
		if err != nil {
			return err
		}
		defer release()
	}
	g.next.ServeHTTP(w, r)
	return nil
}
