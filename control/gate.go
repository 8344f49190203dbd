package control

import (
	"container/list"
	"context"
	"net"
	"net/http"
	"regexp"
	"strconv"
	"sync"
	"time"

	"github.com/maf-sandbox/maf-sandbox-go/internal/pyjson"
)

// gate bounds how many connections a listener has. Each listener has its own:
// whoever crowds the port, as any local user can, keeps nobody out of the socket.
//
// A connection whose question is being worked on stays; when the bound is met, of
// the others that goes which has kept the server waiting for the longest: without
// a whole request, or without taking its answer. So many slow or silent clients
// cannot keep out one that asks.
type gate struct {
	most int

	mu      sync.Mutex
	closed  bool                // guarded by mu
	waiting *list.List          // of *gatedConn, longest first; guarded by mu
	conns   map[*gatedConn]bool // guarded by mu
}

func newGate(most int) *gate {
	return &gate{most: most, waiting: list.New(), conns: make(map[*gatedConn]bool)}
}

// admit takes a connection in, or closes it when all others are being answered.
func (g *gate) admit(conn net.Conn) (*gatedConn, bool) {
	g.mu.Lock()
	var evicted *gatedConn
	full := g.closed || len(g.conns) >= g.most
	if oldest := g.waiting.Front(); full && !g.closed && oldest != nil {
		evicted = oldest.Value.(*gatedConn)
		g.remove(evicted)
		full = false
	}
	var c *gatedConn
	if !full {
		c = &gatedConn{Conn: conn, gate: g}
		c.place = g.waiting.PushBack(c)
		g.conns[c] = true
	}
	g.mu.Unlock()
	if evicted != nil {
		_ = evicted.Conn.Close()
	}
	if c == nil {
		// Nothing is in the way of the first bytes of a connection, so this
		// does not wait; the deadline is for what cannot happen.
		_ = conn.SetWriteDeadline(time.Now().Add(settlement))
		_, _ = conn.Write(refusalOf(http.StatusServiceUnavailable))
		_ = conn.Close()
	}
	return c, c != nil
}

// remove forgets a connection. Precondition: mu is held.
func (g *gate) remove(c *gatedConn) {
	if c.place != nil {
		g.waiting.Remove(c.place)
		c.place = nil
	}
	delete(g.conns, c)
}

// busy marks a connection whose question is being worked on; what it returns
// ends that, and then it is the client's turn.
func (c *gatedConn) busy() (answered func()) {
	g := c.gate
	g.mu.Lock()
	defer g.mu.Unlock()
	c.serving = true
	if c.place != nil {
		g.waiting.Remove(c.place)
		c.place = nil
	}
	return func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		if g.conns[c] {
			c.place = g.waiting.PushBack(c)
		}
	}
}

// noteIdle marks a connection whose client has its answer. It is the server's
// ConnState hook.
func noteIdle(conn net.Conn, state http.ConnState) {
	if c, ok := conn.(*gatedConn); ok && state == http.StateIdle {
		c.gate.mu.Lock()
		defer c.gate.mu.Unlock()
		c.serving = false
	}
}

// close refuses new connections and closes those without a question. The others
// are left to get their answers.
func (g *gate) close() {
	g.mu.Lock()
	g.closed = true
	var dropped []*gatedConn
	for e := g.waiting.Front(); e != nil; e = e.Next() {
		if c := e.Value.(*gatedConn); !c.serving {
			dropped = append(dropped, c)
		}
	}
	for _, c := range dropped {
		g.remove(c)
	}
	g.mu.Unlock()
	for _, c := range dropped {
		_ = c.Conn.Close()
	}
}

// gatedConn is a connection that a gate counts.
type gatedConn struct {
	net.Conn
	gate *gate
	// place is in gate.waiting, and nil while busy; guarded by gate.mu
	place *list.Element
	// serving is set from a question until its answer is out; guarded by
	// gate.mu
	serving bool
}

// Close closes the connection and makes room.
func (c *gatedConn) Close() error {
	c.gate.mu.Lock()
	c.gate.remove(c)
	c.gate.mu.Unlock()
	return c.Conn.Close()
}

// libraryRefusal is how net/http itself refuses what it cannot parse, in one
// write and in plain text, or an expectation, without a body. The handlers'
// answers never have such a head. It is made when it is needed: workers, which
// are the same program, do without.
var libraryRefusal = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`^HTTP/1\.1 (?:(\d{3}) [^\r\n]*\r\nContent-Type: text/plain; charset=utf-8\r\nConnection: close\r\n\r\n|(417) )`)
})

// Write passes on what the server writes, with the library's own refusals in
// the protocol's form.
func (c *gatedConn) Write(b []byte) (int, error) {
	refusal := libraryRefusal().FindSubmatch(b)
	if refusal == nil {
		return c.Conn.Write(b)
	}
	code, err := strconv.Atoi(string(refusal[1]) + string(refusal[2]))
	if err != nil {
		return c.Conn.Write(b)
	}
	if _, err := c.Conn.Write(refusalOf(code)); err != nil {
		return 0, err
	}
	return len(b), nil
}

// refusalOf is a whole response for a request that could not be read.
func refusalOf(code int) []byte {
	say := "malformed request"
	switch code {
	case 413, 431:
		say = "request is too large"
	case 503:
		say = "too many requests at once; try again"
	case 417, 501:
		say = "request uses what this server does not offer"
	case 505:
		say = "HTTP version is not supported; use HTTP/1.1"
	}
	var o pyjson.Object
	o.String("error", say)
	body := o.Bytes()
	head := "HTTP/1.1 " + strconv.Itoa(code) + " " + http.StatusText(code) + "\r\n"
	for _, h := range fixedHeaders {
		head += h[0] + ": " + h[1] + "\r\n"
	}
	head += "Connection: close\r\nContent-Length: " + strconv.Itoa(len(body)) + "\r\n\r\n"
	return append([]byte(head), body...)
}

// gateListener admits what another listener accepts.
type gateListener struct {
	net.Listener
	gate *gate
}

// Accept waits for the next connection that finds room.
func (l gateListener) Accept() (net.Conn, error) {
	for {
		conn, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if c, ok := l.gate.admit(conn); ok {
			return c, nil
		}
	}
}

// connKey is where a request's context has its connection.
type connKey struct{}

func withConn(ctx context.Context, c net.Conn) context.Context {
	return context.WithValue(ctx, connKey{}, c)
}

func connOf(ctx context.Context) *gatedConn {
	c, _ := ctx.Value(connKey{}).(*gatedConn)
	return c
}
