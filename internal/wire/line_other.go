//go:build !linux

package wire

import (
	"net"
	"time"
)

// Line is a connection.
type Line struct{ net.Conn }

// NewLine makes a line of a socket.
func NewLine(c net.Conn, _ time.Duration) *Line { return &Line{c} }
