package control

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/maf-sandbox/maf-sandbox-go/control/internal/rundir"
)

// hang bounds what must not last for ever; nothing is expected to come near.
const hang = 30 * time.Second

// folder is a private folder whose path leaves room for a socket's name.
func folder(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "mst")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return filepath.Join(dir, "run")
}

// told is a listener that tells of its end before it.
type told struct {
	net.Listener
	before func()
}

func (l told) Close() error {
	l.before()
	return l.Listener.Close()
}

// held is a control whose inventory comes when its context has ended.
type held struct {
	*Memory
	entered chan struct{}
	ended   func()
}

func (h held) List(ctx context.Context) ([]Record, error) {
	close(h.entered)
	<-ctx.Done()
	h.ended()
	return nil, ctx.Err()
}

// Who reads the folder while a server closes must find nobody to ask: first the
// announcement goes, then the port, then what is under way is ended.
func TestAServerIsWithdrawnBeforeAnythingOfItEnds(t *testing.T) {
	dir := folder(t)
	var events []string
	note := func(event string) func() {
		return func() {
			if left, err := filepath.Glob(filepath.Join(dir, "*.json")); err != nil || len(left) != 0 {
				event += " while announced"
			}
			events = append(events, event)
		}
	}
	c := held{Memory: NewMemory(), entered: make(chan struct{})}
	var port string
	c.ended = func() {
		if conn, err := net.Dial("tcp", port); err == nil {
			_ = conn.Close()
			events = append(events, "the port is open")
		}
		note("operation ends")()
	}
	server, err := NewServer(ServerConfig{Control: &c, SourceID: "s", Directory: dir, Socket: true})
	if err != nil {
		t.Fatal(err)
	}
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	for i, name := range []string{"port ends", "socket ends"} {
		server.life.listeners[i] = told{server.life.listeners[i], note(name)}
	}
	port = server.life.listeners[0].Addr().String()
	client, err := NewClient(server.life.manifest)
	if err != nil {
		t.Fatal(err)
	}
	asked := make(chan error, 1)
	go func() { _, err := client.List(context.Background()); asked <- err }()
	<-c.entered
	if err := server.Close(); err != nil {
		t.Error(err)
	}
	if err := <-asked; err == nil {
		t.Error("the operation that was ended has an inventory")
	}
	if want := []string{"port ends", "socket ends", "operation ends"}; !slices.Equal(events, want) {
		t.Errorf("the order is %q, want %q", events, want)
	}
}

// A host may end, and another take its port, between the look at its lock and the
// connection.
func TestAHostThatEndsWhileItIsConnectedToIsNotAsked(t *testing.T) {
	dir, err := rundir.Create(folder(t))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = dir.Close() }()
	announced, err := dir.Announce(rundir.NewStem(), nil)
	if err != nil {
		t.Fatal(err)
	}
	ours, theirs := net.Pipe()
	defer func() { _ = theirs.Close() }()
	if err := theirs.SetDeadline(time.Now().Add(hang)); err != nil {
		t.Fatal(err)
	}
	name := filepath.Join(dir.Path(), announced.Name())
	withdraw := func() (net.Conn, error) { return ours, announced.Withdraw() }
	if conn, err := connectAlive(name, withdraw); conn != nil || !errors.Is(err, errWithdrawn) {
		t.Errorf("connected: %v, %v", conn, err)
	}
	if sent, err := io.ReadAll(theirs); len(sent) > 0 || err != nil {
		t.Errorf("who has the port now got %q, %v", sent, err)
	}
	// From then on nobody connects.
	conn, err := connectAlive(name, func() (net.Conn, error) {
		t.Error("connected to the port of a host that is gone")
		return nil, fs.ErrClosed
	})
	if conn != nil || !errors.Is(err, errWithdrawn) {
		t.Errorf("connected: %v, %v", conn, err)
	}
}
