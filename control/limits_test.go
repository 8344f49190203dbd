package control

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"
)

// gated is a server of this package's handler, whose end is told.
func gated(t *testing.T, h *handler) (authority string, ended <-chan struct{}) {
	t.Helper()
	listener, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	h.authority = listener.Addr().String()
	done := make(chan struct{})
	server := &http.Server{ConnContext: withConn, ReadHeaderTimeout: hang, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer close(done)
		h.ServeHTTP(w, r)
	})}
	served := make(chan struct{})
	go func() {
		defer close(served)
		_ = server.Serve(gateListener{listener, newGate(1)}) // that it was closed
	}()
	t.Cleanup(func() {
		_ = server.Close()
		<-served
	})
	return h.authority, done
}

// An answer of which the client takes nothing ends with its time.
func TestAClientThatDoesNotTakeItsAnswerIsCutOff(t *testing.T) {
	records := make([]Record, MaxInventory) // far more than sockets buffer
	for i := range records {
		records[i] = Record{SourceID: "s", InstanceID: strings.Repeat("i", 1000), State: StateReady}
	}
	operations := newOperations(1)
	defer operations.close()
	authority, ended := gated(t, &handler{
		control: NewMemory(records...), longest: hang, writeTime: 50 * time.Millisecond, operations: operations, log: slog.New(slog.DiscardHandler),
	})
	conn, err := net.Dial("tcp4", authority)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	if _, err := io.WriteString(conn, "GET /v1/sandboxes HTTP/1.1\r\nHost: "+authority+"\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	select {
	case <-ended:
	case <-time.After(hang):
		t.Fatal("the server still waits for a client that takes nothing")
	}
}

// A connection whose answer is on its way is not one without a question.
func TestAGateThatClosesLeavesAnswersThatAreOnTheirWay(t *testing.T) {
	g := newGate(4)
	admit := func() (*gatedConn, net.Conn) {
		ours, theirs := net.Pipe()
		t.Cleanup(func() { _ = errors.Join(ours.Close(), theirs.Close()) })
		c, ok := g.admit(ours)
		if !ok {
			t.Fatal("no room")
		}
		return c, theirs
	}
	silent, _ := admit()
	answered, client := admit()
	answered.busy()()
	idle, _ := admit()
	idle.busy()()
	noteIdle(idle, http.StateIdle)
	g.close()
	for name, c := range map[string]*gatedConn{"that has not asked": silent, "that has its answer": idle} {
		if _, err := c.Write([]byte("x")); !errors.Is(err, io.ErrClosedPipe) {
			t.Errorf("a connection %s is open: %v", name, err)
		}
	}
	got := make(chan string, 1)
	go func() {
		b := make([]byte, 1)
		_, _ = client.Read(b) // what was read is compared
		got <- string(b)
	}()
	if _, err := answered.Write([]byte("x")); err != nil {
		t.Errorf("an answer on its way was cut off: %v", err)
		_ = client.Close()
	}
	if b := <-got; b != "x" {
		t.Errorf("the client got %q", b)
	}
}

// What the document says in numbers.
func TestTheNumbersOfTheServerAreThoseOfTheProtocolsDocument(t *testing.T) {
	text, err := os.ReadFile("../docs/control-protocol.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		fmt.Sprintf("a head of more than %d KiB, or one that takes longer than %d s", maxHeaderBytes>>10, headerTime/time.Second),
		fmt.Sprintf("a body of more than %d KiB", maxBody>>10),
		fmt.Sprintf("an idle connection is closed after %d s", idleTime/time.Second),
		fmt.Sprintf("a client has %d s to take its answer", writeTime/time.Second),
	} {
		if !strings.Contains(string(text), want) {
			t.Errorf("the document does not say %q", want)
		}
	}
	server, err := NewServer(ServerConfig{Control: NewMemory(), SourceID: "s", Directory: folder(t)})
	if err != nil {
		t.Fatal(err)
	}
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = server.Close() }()
	h := server.life.http
	if h.ReadHeaderTimeout != headerTime || h.IdleTimeout != idleTime || h.MaxHeaderBytes != maxHeaderBytes || h.Handler.(*handler).writeTime != writeTime {
		t.Errorf("the server has %+v", h)
	}
}
