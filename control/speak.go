package control

import (
	"net"
	"sync"
)

// speakFirst makes a connection one from which nothing is read before something
// was written to it: in HTTP/1.1 the client speaks first. A host may refuse before
// it has read anything, as one with too many connections does, and whoever has the
// port of a host that is gone may greet. What comes to net/http's transport while
// it expects nothing it prints, by chance, to the log of the program: over the
// console's screen.
func speakFirst(conn net.Conn) net.Conn {
	return &politeConn{Conn: conn, spoken: make(chan struct{})}
}

type politeConn struct {
	net.Conn
	once   sync.Once
	spoken chan struct{} // closed when the other side may be heard
}

func (c *politeConn) speak() { c.once.Do(func() { close(c.spoken) }) }

// Read waits until something was written.
func (c *politeConn) Read(p []byte) (int, error) {
	<-c.spoken
	return c.Conn.Read(p)
}

// Write lets the other side be heard, also before it has taken everything.
func (c *politeConn) Write(p []byte) (int, error) {
	c.speak()
	return c.Conn.Write(p)
}

// Close ends a reader that still waits.
func (c *politeConn) Close() error {
	err := c.Conn.Close()
	c.speak()
	return err
}
