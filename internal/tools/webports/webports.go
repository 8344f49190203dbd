// Package webports gives a test program the ports 80 and 443 of loopback, which
// programs in sandboxes reach and which belong to root and to whoever serves the
// machine: where they cannot be had, the test program runs in a network namespace
// of its own, in which they are free.
package webports

import (
	"fmt"
	"net"
	"os"
	"testing"
	"time"
)

// Run runs the tests, for TestMain, and gives the exit status. Where neither the
// ports nor a namespace can be had it says why, and the tests run all the same:
// those that need the ports have to skip themselves.
func Run(m *testing.M) int {
	if reason := taken(); reason != nil && !inside() {
		status, err := again()
		if err == nil {
			return status
		}
		fmt.Fprintf(os.Stderr, "webports: %v, and no namespace: %v\n", reason, err)
	}
	return m.Run()
}

// taken says why the ports cannot be had, or not be reached, as where loopback is
// down; nil when they can.
func taken() error {
	for _, port := range []string{"80", "443"} {
		if err := attempt(net.JoinHostPort("127.0.0.1", port)); err != nil {
			return err
		}
	}
	return nil
}

// attempt listens at an address and connects to it.
func attempt(address string) error {
	l, err := net.Listen("tcp", address)
	if err != nil {
		return err
	}
	defer func() { _ = l.Close() }()
	c, err := net.DialTimeout("tcp", address, time.Second)
	if err != nil {
		return err
	}
	return c.Close()
}
