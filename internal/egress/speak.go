package egress

import (
	"net"
	"sync"
)

// speakFirst makes the connection one from which nothing is read before something
// was written to it: in HTTP/1.1 the client speaks first. What a server says
// before would come to net/http's transport while it expects nothing, or not, as
// chance has it, and then it prints the server's bytes to the log of the host
// program.
func speakFirst(conn net.Conn) net.Conn {
	return &politeConn{Conn: conn, spoken: make(chan struct{})}
}

type politeConn struct {
	net.Conn
	once   sync.Once
	spoken chan struct{}
}

func (c *politeConn) speak() { c.once.Do(func() { close(c.spoken) }) }

func (c *politeConn) Read(p []byte) (int, error) {
	<-c.spoken
	return c.Conn.Read(p)
}

// Write lets the server speak before it has read everything: it may well refuse
// the rest.
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
