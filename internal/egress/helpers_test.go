package egress_test

import (
	"bytes"
	"context"
	"crypto/x509"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/maf-sandbox/maf-sandbox-go/internal/egress"
	"github.com/maf-sandbox/maf-sandbox-go/sandbox"
)

const (
	decider = "the test"
	// hang ends a test that would never end.
	hang = 20 * time.Second
)

var public = netip.MustParseAddr("93.184.216.34")

func addrs(texts ...string) []netip.Addr {
	var parsed []netip.Addr
	for _, text := range texts {
		parsed = append(parsed, netip.MustParseAddr(text))
	}
	return parsed
}

// listing is a spec that lists hosts, each with the methods after a space.
func listing(hosts ...string) sandbox.Spec {
	spec := sandbox.Spec{Kind: "k", Egress: sandbox.EgressAllowlist}
	for _, text := range hosts {
		name, methods, named := strings.Cut(text, " ")
		rule := sandbox.EgressRule{Host: sandbox.MustHost(name)}
		if named {
			rule.Methods = strings.Split(methods, ",")
		}
		spec.EgressAllow = append(spec.EgressAllow, rule)
	}
	return spec
}

func newPolicy(t testing.TB, spec sandbox.Spec, private ...string) *egress.Policy {
	t.Helper()
	var hosts []sandbox.Host
	for _, name := range private {
		hosts = append(hosts, sandbox.MustHost(name))
	}
	policy, err := egress.NewPolicy(decider, spec, hosts...)
	if err != nil {
		t.Fatal(err)
	}
	return policy
}

// web is a world with one HTTP and one TLS server behind every address, and a
// resolver that says what the test wants.
type web struct {
	plain, secure *httptest.Server
	// names are the answers for each name, one for each lookup; the last one
	// stays. A name that is missing does not exist.
	names map[string][][]netip.Addr
	// silent addresses are never connected to, dead ones refuse.
	silent, dead map[netip.Addr]bool
	// answer is what every other address says where there are no servers.
	answer string
	// open counts the connections that are not closed.
	open atomic.Int64

	mu      sync.Mutex
	lookups []string
	dials   []string
	seen    []egress.Observation
}

func newWeb(t testing.TB, handler http.HandlerFunc) *web {
	t.Helper()
	w := &web{
		plain:  httptest.NewServer(handler),
		secure: httptest.NewUnstartedServer(handler),
		names:  map[string][][]netip.Addr{"api.example.com": {{public}}},
	}
	// Handshakes that are meant to fail are no news.
	w.secure.Config.ErrorLog = log.New(io.Discard, "", 0)
	w.secure.StartTLS()
	t.Cleanup(w.secure.Close)
	t.Cleanup(w.plain.Close)
	return w
}

func (w *web) Lookup(_ context.Context, name string) ([]netip.Addr, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.lookups = append(w.lookups, name)
	answers := w.names[name]
	if len(answers) == 0 {
		return nil, &net.DNSError{Err: "no such host", Name: name, Server: "10.9.8.7:53", IsNotFound: true}
	}
	if len(answers) > 1 {
		w.names[name] = answers[1:]
	}
	return answers[0], nil
}

func (w *web) dial(ctx context.Context, addr netip.AddrPort) (net.Conn, error) {
	w.mu.Lock()
	w.dials = append(w.dials, addr.String())
	w.mu.Unlock()
	switch {
	case w.silent[addr.Addr()]:
		<-ctx.Done()
		return nil, ctx.Err()
	case w.dead[addr.Addr()]:
		return nil, fmt.Errorf("dead address")
	}
	if w.plain == nil {
		return answering(w.answer), nil
	}
	server := w.plain
	if addr.Port() == 443 {
		server = w.secure
	}
	var d net.Dialer
	conn, err := d.DialContext(ctx, "tcp", server.Listener.Addr().String())
	if err != nil {
		return nil, err
	}
	w.open.Add(1)
	return &counted{Conn: conn, open: &w.open}, nil
}

// counted is a connection that is counted until it is closed.
type counted struct {
	net.Conn
	open *atomic.Int64
	once sync.Once
}

func (c *counted) Close() error {
	c.once.Do(func() { c.open.Add(-1) })
	return c.Conn.Close()
}

func (w *web) observe(seen egress.Observation) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.seen = append(w.seen, seen)
}

// did gives what was looked up and dialled since the last call.
func (w *web) did() (lookups, dials []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	lookups, dials = w.lookups, w.dials
	w.lookups, w.dials = nil, nil
	return lookups, dials
}

func (w *web) lastSeen(t testing.TB) egress.Observation {
	t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.seen) == 0 {
		t.Fatal("nothing was observed")
	}
	return w.seen[len(w.seen)-1]
}

func (w *web) roots() *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AddCert(w.secure.Certificate())
	return pool
}

// broker is over the web; the change sees the configuration first.
func (w *web) broker(t testing.TB, policy *egress.Policy, change func(*egress.Config)) *egress.Broker {
	t.Helper()
	config := egress.Config{Policy: policy, Resolver: w, Dial: w.dial, Roots: w.roots(), Observe: w.observe}
	if change != nil {
		change(&config)
	}
	return newBroker(t, config)
}

func newBroker(t testing.TB, config egress.Config) *egress.Broker {
	t.Helper()
	b, err := egress.NewBroker(config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		b.Close()
		nothingLeft(t)
	})
	return b
}

// nothingLeft waits for the goroutines of requests to end. The transport's end
// by themselves once their connection is closed.
func nothingLeft(t testing.TB) {
	t.Helper()
	buf := make([]byte, 1<<20)
	for deadline := time.Now().Add(hang); ; runtime.Gosched() {
		stacks := string(buf[:runtime.Stack(buf, true)])
		left := ""
		for _, sign := range []string{"net/http.(*persistConn)", "egress.(*Broker)", "net/http.(*Transport)"} {
			if strings.Contains(stacks, sign) {
				left = sign
			}
		}
		if left == "" {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("goroutines of %s are left:\n%s", left, stacks)
		}
	}
}

func get(url string) *egress.Request { return &egress.Request{Method: "GET", URL: url} }

// within bounds a request that should not need it.
func within(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), hang)
	t.Cleanup(cancel)
	return ctx
}

// message encodes a request as the guest does.
func message(header string, body ...byte) []byte {
	b := binary.LittleEndian.AppendUint32(nil, uint32(len(header)))
	return append(append(b, header...), body...)
}

// reply is what a guest makes of the broker's bytes.
type reply struct {
	Status  int         `json:"status"`
	Reason  string      `json:"reason"`
	Headers [][2]string `json:"headers"`
	URL     string      `json:"url"`
	Error   *struct {
		Kind    string `json:"kind"`
		Message string `json:"message"`
	} `json:"error"`
	body []byte
}

func (r reply) kind() string {
	if r.Error == nil {
		return fmt.Sprint(r.Status)
	}
	return r.Error.Kind
}

func decodeReply(t testing.TB, b []byte) reply {
	t.Helper()
	if len(b) < 4 || int(binary.LittleEndian.Uint32(b)) > len(b)-4 || binary.LittleEndian.Uint32(b) > egress.MaxHeaderBytes {
		t.Fatalf("no reply: %.100q", b)
	}
	var r reply
	length := int(binary.LittleEndian.Uint32(b))
	decoder := json.NewDecoder(bytes.NewReader(b[4 : 4+length]))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&r); err != nil {
		t.Fatalf("reply %.200q: %v", b, err)
	}
	r.body = b[4+length:]
	if r.Error != nil && (r.Status != 0 || len(r.body) > 0 || r.Error.Message == "") {
		t.Fatalf("an error with an answer, or without a message: %.200q", b)
	}
	return r
}

// header gives one field of the reply.
func (r reply) header(name string) string {
	for _, field := range r.Headers {
		if field[0] == name {
			return field[1]
		}
	}
	return ""
}

// ask sends a request the whole way.
func ask(t testing.TB, b *egress.Broker, method, url string) reply {
	t.Helper()
	header, err := json.Marshal(map[string]any{"method": method, "url": url})
	if err != nil {
		t.Fatal(err)
	}
	return decodeReply(t, b.Serve(within(t), message(string(header)), nil))
}
