// Package speakfirst keeps a server from being heard before it was asked.
package speakfirst

import (
	"net"
	"sync"
)

// Conn makes a connection one from which nothing is read before something was
// written to it: in HTTP/1.1 the client speaks first. A server may refuse before it
// has read anything, as one with too many connections does, and whoever has the port
// of one that is gone may greet. What comes to net/http's transport while it expects
// nothing it prints, by chance, to the log of the program: over a console's screen.
func Conn(conn net.Conn) net.Conn {
	return &polite{Conn: conn, spoken: make(chan struct{})}
}

type polite struct {
	net.Conn
	once   sync.Once
	spoken chan struct{} // closed when the other side may be heard
}

func (c *polite) speak() { c.once.Do(func() { close(c.spoken) }) }

// Read waits until something was written.
func (c *polite) Read(p []byte) (int, error) {
	<-c.spoken
	return c.Conn.Read(p)
}

// Write lets the other side be heard before it has taken everything: it may well
// refuse the rest.
func (c *polite) Write(p []byte) (int, error) {
	c.speak()
	return c.Conn.Write(p)
}

// Close ends a reader that still waits.
func (c *polite) Close() error {
	err := c.Conn.Close()
	c.speak()
	return err
}
