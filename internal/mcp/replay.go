package mcp

import (
	"context"
	"iter"
	"slices"
	"sync"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
)

// Bounds of a replay, in bytes, and what its bookkeeping comes to.
const (
	// maxSessionReplay bounds what is kept for one session: a few answers with as
	// much output as programs may print by default.
	maxSessionReplay = 8 << 20
	// maxReplay bounds what is kept for all of them.
	maxReplay = 64 << 20
	// streamCost and eventCost are what a stream and an event take beside their
	// data, roughly.
	streamCost, eventCost = 256, 64
)

// replay keeps what was sent to clients over HTTP, until their session ends or
// room is needed, so that a client whose connection was lost while a program ran
// can ask for the rest (Last-Event-ID). A stream is what answers one request. It
// stays when the sandbox is reset or an operator removes it: the answers are the
// client's own, who has had them or may still ask. It is an sdk.EventStore; the
// SDK's own keeps an entry of every request that a session has ever made, and has
// one session push out what others wait for.
type replay struct {
	maxSession, max int

	mu       sync.Mutex
	size     int                  // of all sessions; guarded by mu
	sessions map[string]*replayed // guarded by mu
}

// replayed is what is kept for one session.
type replayed struct {
	id      string
	size    int
	streams []*replayedStream // the oldest first
}

type replayedStream struct {
	id     string
	size   int
	events [][]byte
}

var _ sdk.EventStore = (*replay)(nil)

func newReplay() *replay {
	return &replay{maxSession: maxSessionReplay, max: maxReplay, sessions: map[string]*replayed{}}
}

// standalone is the stream of what answers no request. The server sends nothing
// there, so that nothing is kept of it.
const standalone = ""

// Open implements sdk.EventStore.
func (r *replay) Open(_ context.Context, session, stream string) error {
	if stream == standalone {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	of := r.sessions[session]
	if of == nil {
		of = &replayed{id: session}
		r.sessions[session] = of
	}
	s := &replayedStream{id: stream}
	of.streams = append(of.streams, s)
	r.grow(of, s, streamCost)
	return nil
}

// Append implements sdk.EventStore. What there is no room for is dropped; After
// tells.
func (r *replay) Append(_ context.Context, session, stream string, data []byte) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if of, s := r.find(session, stream); s != nil {
		s.events = append(s.events, data)
		r.grow(of, s, eventCost+len(data))
	}
	return nil
}

// After implements sdk.EventStore.
func (r *replay) After(_ context.Context, session, stream string, index int) iter.Seq2[[]byte, error] {
	events, err := r.after(session, stream, index)
	return func(yield func([]byte, error) bool) {
		if err != nil {
			yield(nil, err)
			return
		}
		for _, data := range events {
			if !yield(data, nil) {
				return
			}
		}
	}
}

func (r *replay) after(session, stream string, index int) ([][]byte, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	_, s := r.find(session, stream)
	switch {
	case stream == standalone && index < 0:
		return nil, nil // from its start, where there is nothing
	case s == nil:
		return nil, sdk.ErrEventsPurged
	}
	return slices.Clone(s.events[min(max(index+1, 0), len(s.events)):]), nil
}

// SessionClosed implements sdk.EventStore.
func (r *replay) SessionClosed(_ context.Context, session string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if of := r.sessions[session]; of != nil {
		r.size -= of.size
		delete(r.sessions, session)
	}
	return nil
}

// find gives what there is of a stream, from the newest on. Precondition: mu is
// held.
func (r *replay) find(session, stream string) (*replayed, *replayedStream) {
	of := r.sessions[session]
	if of == nil {
		return nil, nil
	}
	for _, s := range slices.Backward(of.streams) {
		if s.id == stream {
			return of, s
		}
	}
	return of, nil
}

// grow counts bytes in, and drops the oldest streams until all bounds are kept: of
// the session, and for all sessions of those with the most. Precondition: mu is
// held.
func (r *replay) grow(of *replayed, s *replayedStream, bytes int) {
	s.size += bytes
	of.size += bytes
	r.size += bytes
	for of.size > r.maxSession {
		r.drop(of)
	}
	for r.size > r.max {
		largest := of
		for _, other := range r.sessions {
			if other.size > largest.size {
				largest = other
			}
		}
		r.drop(largest)
	}
}

// drop drops a session's oldest stream. Precondition: mu is held.
func (r *replay) drop(of *replayed) {
	oldest := of.streams[0]
	of.streams[0] = nil // its memory
	of.streams = of.streams[1:]
	of.size -= oldest.size
	r.size -= oldest.size
	if len(of.streams) == 0 {
		delete(r.sessions, of.id) // the SDK may have opened a stream of one that was closed
	}
}
