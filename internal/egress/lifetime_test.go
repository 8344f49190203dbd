package egress_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/netip"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/maf-sandbox/maf-sandbox-go/internal/egress"
)

// TestTimeRunsOutInEveryPhase has the time end while the name is looked up, the
// connection is made, TLS is agreed, the answer is awaited and its body comes.
func TestTimeRunsOutInEveryPhase(t *testing.T) {
	release := make(chan struct{})
	w := newWeb(t, func(rw http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/body" {
			_, _ = io.WriteString(rw, "first")
			rw.(http.Flusher).Flush()
		}
		select {
		case <-release:
		case <-r.Context().Done():
		}
	})
	defer close(release)
	mute, err := net.Listen("tcp", "127.0.0.1:0") // accepts in the kernel only
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = mute.Close() }()
	w.names["silent.example.com"] = [][]netip.Addr{addrs("8.0.0.2")}
	w.silent = map[netip.Addr]bool{netip.MustParseAddr("8.0.0.2"): true}
	policy := newPolicy(t, listing("api.example.com", "silent.example.com"))
	b := w.broker(t, policy, nil)
	slowNames := w.broker(t, policy, func(c *egress.Config) { c.Resolver = slowResolver{} })
	muteTLS := w.broker(t, policy, func(c *egress.Config) {
		c.Dial = func(ctx context.Context, _ netip.AddrPort) (net.Conn, error) {
			var d net.Dialer
			return d.DialContext(ctx, "tcp", mute.Addr().String())
		}
	})
	for name, row := range map[string]struct {
		broker *egress.Broker
		url    string
	}{
		"name":    {slowNames, "http://api.example.com/"},
		"connect": {b, "http://silent.example.com/"},
		"tls":     {muteTLS, "https://api.example.com/"},
		"answer":  {b, "http://api.example.com/"},
		"secure":  {b, "https://api.example.com/"},
		"body":    {b, "http://api.example.com/body"},
	} {
		t.Run(name, func(t *testing.T) {
			request := get(row.url)
			request.Timeout = 50 * time.Millisecond
			_, err := row.broker.Do(within(t), request)
			if failure := failed(t, err, egress.KindTimeout); !errors.Is(failure, context.DeadlineExceeded) {
				t.Errorf("the cause is %v", failure.Cause)
			}
			// Of the two parts of a request it is the one that has run out.
			parts := get(row.url)
			parts.ConnectTimeout, parts.AnswerTimeout = 50*time.Millisecond, hang
			connects := name == "name" || name == "connect" || name == "tls"
			if !connects {
				parts.ConnectTimeout, parts.AnswerTimeout = hang, 50*time.Millisecond
			}
			_, err = row.broker.Do(within(t), parts)
			failure := failed(t, err, egress.KindTimeout)
			if !errors.Is(failure, context.DeadlineExceeded) || failure.Connecting != connects || strings.Contains(failure.Message, "50ms") != connects {
				t.Errorf("of its parts: %v, connecting %t, caused by %v", failure, failure.Connecting, failure.Cause)
			}
			// The run that waits ends for another reason.
			ctx, cancel := context.WithCancel(within(t))
			defer time.AfterFunc(20*time.Millisecond, cancel).Stop()
			_, err = row.broker.Do(ctx, get(row.url))
			if failure := failed(t, err, egress.KindConnect); !errors.Is(failure, context.Canceled) {
				t.Errorf("the cause is %v", failure.Cause)
			}
		})
	}
	capped := w.broker(t, policy, func(c *egress.Config) { c.Limits.Time = 50 * time.Millisecond })
	for _, host := range []string{"api", "silent"} {
		request := get("http://" + host + ".example.com/")
		request.Timeout, request.ConnectTimeout, request.AnswerTimeout = time.Hour, time.Hour, time.Hour
		_, err = capped.Do(within(t), request)
		if failure := failed(t, err, egress.KindTimeout); failure.Connecting {
			t.Errorf("the host's limit is told as the program's: %v", failure)
		}
	}
}

type slowResolver struct{}

func (slowResolver) Lookup(ctx context.Context, name string) ([]netip.Addr, error) {
	<-ctx.Done()
	return nil, &net.DNSError{Err: ctx.Err().Error(), Name: name, IsTimeout: true}
}

func TestOneSandboxTakesItsShareOnly(t *testing.T) {
	arrived, release := make(chan struct{}), make(chan struct{})
	var once sync.Once
	free := func() { once.Do(func() { close(release) }) }
	defer free()
	w := newWeb(t, func(http.ResponseWriter, *http.Request) {
		arrived <- struct{}{}
		<-release
	})
	b := w.broker(t, newPolicy(t, listing("api.example.com")), func(c *egress.Config) {
		c.Limits.Concurrent, c.Limits.Waiting = 2, 1
	})
	results := make(chan error)
	do := func() { _, err := b.Do(within(t), get("http://api.example.com/")); results <- err }
	go do()
	go do()
	<-arrived
	<-arrived
	// Time that runs out in the queue: nothing was sent.
	request := get("http://api.example.com/")
	request.Timeout = time.Millisecond
	_, err := b.Do(within(t), request)
	_ = failed(t, err, egress.KindBusy)
	// Of two more, one waits and one is refused, whichever it is.
	go do()
	go do()
	_ = failed(t, <-results, egress.KindBusy)
	if _, dials := w.did(); len(dials) != 2 {
		t.Errorf("%d requests were on their way, not 2", len(dials))
	}
	free()
	<-arrived
	for range 3 {
		if err := <-results; err != nil {
			t.Errorf("a request that had its place or waited: %v", err)
		}
	}
}

func TestNoConnectionOutlivesItsRequest(t *testing.T) {
	w := newWeb(t, func(rw http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/large":
			_, _ = rw.Write(make([]byte, 2000))
		case "/silent":
			<-r.Context().Done()
		case "/broken":
			panic(http.ErrAbortHandler)
		}
	})
	w.names["other.test"] = [][]netip.Addr{{public}}
	b := w.broker(t, newPolicy(t, listing("api.example.com", "other.test")), func(c *egress.Config) { c.Limits.ResponseBody = 1000 })
	for path, want := range map[string]string{
		"api.example.com/": "200", "api.example.com/large": "too_large", "api.example.com/broken": "connect", "other.test/": "tls",
		"api.example.com/silent": "timeout",
	} {
		seconds := 60
		if want == "timeout" {
			seconds = 1
		}
		got := decodeReply(t, b.Serve(within(t), message(fmt.Sprintf(`{"method":"GET","url":"https://%s","timeout":%d}`, path, seconds)), nil))
		if got.kind() != want {
			t.Errorf("%s: %s %+v", path, got.kind(), got.Error)
		}
		if _, dials := w.did(); len(dials) != 1 || w.open.Load() != 0 {
			t.Errorf("%s: %d of %d connections are open", path, w.open.Load(), len(dials))
		}
	}
}

func TestCloseEndsWhatIsOnItsWay(t *testing.T) {
	arrived := make(chan struct{})
	w := newWeb(t, func(_ http.ResponseWriter, r *http.Request) {
		close(arrived)
		<-r.Context().Done()
	})
	b := w.broker(t, newPolicy(t, listing("api.example.com")), nil)
	result := make(chan error)
	go func() { _, err := b.Do(within(t), get("http://api.example.com/")); result <- err }()
	<-arrived
	closed := make(chan struct{})
	go func() { b.Close(); close(closed) }()
	_ = failed(t, <-result, egress.KindConnect)
	<-closed
	w.did()
	if got := ask(t, b, "GET", "http://api.example.com/"); got.kind() != "connect" {
		t.Errorf("after the end: %+v", got)
	}
	if lookups, dials := w.did(); len(lookups)+len(dials) > 0 {
		t.Errorf("after the end: looked up %q, dialled %q", lookups, dials)
	}
	b.Close()
}

// A server that answers before it is asked is not heard until it was, and writes
// nothing into the host program's log.
func TestAServerThatSpeaksFirstIsHeardAfterTheRequest(t *testing.T) {
	var printed bytes.Buffer
	log.SetOutput(&printed)
	defer log.SetOutput(os.Stderr)
	w := newWeb(t, nil)
	const first = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nfirst"
	b := w.broker(t, newPolicy(t, listing("api.example.com")), func(c *egress.Config) {
		c.Dial = func(context.Context, netip.AddrPort) (net.Conn, error) { return answering(first), nil }
	})
	// Whether net/http reads before it writes is up to chance.
	for range 100 {
		if got := ask(t, b, "GET", "http://api.example.com/"); string(got.body) != "first" {
			t.Fatalf("%s %+v", got.kind(), got.Error)
		}
	}
	// One that says more than it was asked for is not heard afterwards either.
	more := w.broker(t, newPolicy(t, listing("api.example.com")), func(c *egress.Config) {
		c.Dial = func(context.Context, netip.AddrPort) (net.Conn, error) { return answering(first + first), nil }
	})
	for range 100 {
		if got := ask(t, more, "GET", "http://api.example.com/"); string(got.body) != "first" {
			t.Fatalf("twice: %s %+v", got.kind(), got.Error)
		}
	}
	nothingLeft(t)
	if printed.Len() > 0 {
		t.Errorf("printed %s", printed.String())
	}
}

// answering is a connection on which an answer waits from the beginning.
func answering(answer string) net.Conn {
	c := newTardy(answer)
	c.rest = ""
	return c
}

// TestAnAnswerToTheEndOfTheTimeIsNone has servers that answer when the
// connection is closed because the time is over.
func TestAnAnswerToTheEndOfTheTimeIsNone(t *testing.T) {
	w := newWeb(t, func(http.ResponseWriter, *http.Request) {})
	for name, first := range map[string]string{
		"the whole answer":      "",
		"the end of its body":   "HTTP/1.1 200 OK\r\n\r\nhalf an ans",
		"the end of its header": "HTTP/1.1 200 OK\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			b := w.broker(t, newPolicy(t, listing("api.example.com")), func(c *egress.Config) {
				c.Dial = func(context.Context, netip.AddrPort) (net.Conn, error) { return newTardy(first), nil }
			})
			// Which of the two the transport sees first is up to chance.
			for range 30 {
				request := get("http://api.example.com/")
				request.Timeout = 2 * time.Millisecond
				_, err := b.Do(within(t), request)
				_ = failed(t, err, egress.KindTimeout)
			}
		})
	}
}

// tardy is a connection that gives the rest of an answer once it is closed.
type tardy struct {
	net.Conn // none: what is not below is not called

	first, rest string
	closed      chan struct{}
	once        sync.Once
}

func newTardy(first string) *tardy {
	return &tardy{first: first, rest: "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", closed: make(chan struct{})}
}

func (c *tardy) Read(p []byte) (int, error) {
	if c.first != "" {
		n := copy(p, c.first)
		c.first = c.first[n:]
		return n, nil
	}
	<-c.closed
	return copy(p, c.rest), io.EOF
}

func (c *tardy) Write(p []byte) (int, error) { return len(p), nil }

func (c *tardy) Close() error {
	c.once.Do(func() { close(c.closed) })
	return nil
}
