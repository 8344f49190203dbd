package mcp_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/maf-sandbox/maf-sandbox-go/internal/mcp"
)

// byHand connects to a server by hand and begins a request with a body of so many
// bytes.
func byHand(t *testing.T, address string, length int) net.Conn {
	t.Helper()
	u, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	c, err := net.Dial("tcp", u.Host)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	if err := c.SetDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	if _, err := fmt.Fprintf(c, "POST %s HTTP/1.1\r\nHost: %s\r\nContent-Type: application/json\r\nAccept: application/json, text/event-stream\r\nContent-Length: %d\r\n\r\n",
		mcp.Path, u.Host, length); err != nil {
		t.Fatal(err)
	}
	return c
}

// unread begins a session whose answer is larger than what a connection holds,
// and reads of it only that it has begun.
func unread(t *testing.T, address string) {
	t.Helper()
	body := strings.Replace(initialize, `"id":1`, `"id":"`+strings.Repeat("x", 7<<20)+`"`, 1)
	c := byHand(t, address, len(body))
	if err := c.(*net.TCPConn).SetReadBuffer(4096); err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(c, body); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(c, make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
}

func TestAClientThatDoesNotReadKeepsNobodyOut(t *testing.T) {
	address := listen(t, serve(t, memory(), nil), mcp.HTTP{})
	unread(t, address)
	if status, text, _ := post(t, address, strings.NewReader(initialize), nil); status != http.StatusOK {
		t.Errorf("status %d %q", status, text)
	}
}

func TestAServerEndsThoughAClientDoesNotRead(t *testing.T) {
	s := serve(t, memory(), nil)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.ServeHTTP(ctx, l, mcp.HTTP{}) }()
	unread(t, "http://"+l.Addr().String())
	cancel()
	if err := await(t, ended); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}

func TestARefusalDoesNotWaitForTheBody(t *testing.T) {
	c := byHand(t, listen(t, serve(t, memory(), nil), mcp.HTTP{Token: token}), 1000)
	if line, err := bufio.NewReader(c).ReadString('\n'); err != nil || !strings.Contains(line, " 401 ") {
		t.Errorf("got %q, %v", line, err)
	}
}
