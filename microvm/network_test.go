package microvm

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/maf-sandbox/maf-sandbox-go/internal/wire"
	"github.com/maf-sandbox/maf-sandbox-go/sandbox"
)

// webAddress is a loopback address of this test's own, so that port 80 is free.
const webAddress = "127.83.12.8"

// web is a server on port 80.
func web(t *testing.T) {
	t.Helper()
	l, err := net.Listen("tcp", net.JoinHostPort(webAddress, "80"))
	if err != nil {
		t.Skipf("needs to listen on port 80: %v", err)
	}
	s := &http.Server{ReadHeaderTimeout: time.Second, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		// A server that answers before it has read may close too early.
		_, _ = io.Copy(io.Discard, r.Body)
		switch r.URL.Path {
		case "/forbidden":
			http.Error(w, "no", http.StatusForbidden)
		case "/big":
			_, _ = w.Write(make([]byte, 2<<20))
		case "/wait":
			<-r.Context().Done()
		default:
			_, _ = fmt.Fprintf(w, "%s %s", r.Method, r.URL.Path)
		}
	})}
	go func() { _ = s.Serve(l) }()
	t.Cleanup(func() { _ = s.Close() })
}

// listed is a spec that lists hosts.
func listed(hosts ...string) sandbox.Spec {
	s := spec()
	s.Egress = sandbox.EgressAllowlist
	for _, h := range hosts {
		s.EgressAllow = append(s.EgressAllow, sandbox.EgressRule{Host: sandbox.MustHost(h)})
	}
	return s
}

func TestAProgramReachesListedHostsAndNoOthers(t *testing.T) {
	web(t)
	b := open(t, nil)
	var mu sync.Mutex
	var seen []sandbox.EgressObservation
	b.ObserveEgress(func(o sandbox.EgressObservation) {
		mu.Lock()
		defer mu.Unlock()
		seen = append(seen, o)
	})
	s, err := b.Get(t.Context(), key(), listed(webAddress))
	if err != nil {
		t.Fatal(err)
	}
	for range 2 { // in a new sandbox, and after a reset
		got := prints(t, s, `
import urllib.request
print(http_get('http://`+webAddress+`/a')['body'], http_post('http://`+webAddress+`/b', body='x')['status'])
print(urllib.request.urlopen('http://`+webAddress+`/c').read(), http_get('http://`+webAddress+`/forbidden')['status'])
try: http_get('http://192.0.2.1/')
except OSError as e: print(type(e).__name__, e)
try: http_get('http://`+webAddress+`:81/')
except OSError: pass
`)
		want := "GET /a 200\nb'GET /c' 403\nPermissionError "
		if !strings.HasPrefix(got, want) || !strings.Contains(got, "192.0.2.1") {
			t.Errorf("printed %q", got)
		}
		if err := s.Reset(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	mu.Lock()
	defer mu.Unlock()
	if len(seen) != 12 || seen[0].Key != key() || !seen[0].Decisions[0].Allowed || seen[0].Decisions[0].Host != webAddress {
		t.Fatalf("%d observations, the first %+v", len(seen), seen[:min(1, len(seen))])
	}
	if last := seen[4].Decisions[0]; last.Allowed || last.Host != "192.0.2.1" || last.Port != 80 || last.Reason == "" {
		t.Errorf("the refused one: %+v", last)
	}
	// It did not ask for port 80, and nothing else can be allowed.
	if other := seen[5].Decisions[0]; other.Allowed || other.Host != "" || other.Port != 0 || other.Reason != "port not allowed" {
		t.Errorf("the one of another port: %+v", other)
	}
}

func TestWithoutAListThereIsNoNetwork(t *testing.T) {
	b := open(t, nil)
	s := get(t, b, key())
	r, err := s.RunCode(t.Context(), "http_get('http://"+webAddress+"/')", 0)
	if err != nil || !strings.Contains(string(r.Stderr), "network access is not allowed in this sandbox") {
		t.Errorf("stderr %q, %v", r.Stderr, err)
	}
}

func TestAProgramThatWaitsForTheNetworkIsUnderItsDeadline(t *testing.T) {
	web(t)
	b := open(t, func(c *Config) { c.Grace = patience(time.Second) })
	s, err := b.Get(t.Context(), key(), listed(webAddress))
	if err != nil {
		t.Fatal(err)
	}
	prints(t, s, "http_get('http://"+webAddress+"/')") // warm
	_, err = s.RunCode(t.Context(), "http_get('http://"+webAddress+"/wait')", patience(300*time.Millisecond))
	if sandbox.Usable(err) {
		if got := prints(t, s, "print(http_get('http://"+webAddress+"/again')['body'])"); got != "GET /again\n" {
			t.Errorf("afterwards: %q", got)
		}
	}
	if err == nil || !strings.Contains(err.Error(), "time limit") {
		t.Errorf("error %v", err)
	}
}

func TestEgressThatCannotBeEnforcedIsRefused(t *testing.T) {
	b, err := New(Config{Private: true})
	if err != nil {
		t.Fatal(err)
	}
	many := listed()
	for i := range 513 {
		many.EgressAllow = append(many.EgressAllow, sandbox.EgressRule{Host: sandbox.MustHost(fmt.Sprintf("h%d.example", i))})
	}
	for name, s := range map[string]sandbox.Spec{"a wildcard": listed("*.example.com"), "too many hosts": many} {
		if _, err := b.Acquire(t.Context(), key(), s); err == nil || sandbox.Usable(err) != true || !strings.Contains(err.Error(), "egress") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestAWorkerThatAsksTooMuchIsStopped(t *testing.T) {
	for name, reply := range map[string]func(w *fakeWorker, f wire.Frame){
		"too many at once": func(w *fakeWorker, f wire.Frame) {
			for id := range uint32(wire.MaxAsks + 2) {
				w.send(wire.KindAsk, f.Call, wire.Ask{ID: id, Name: "http", Payload: []byte("x")})
			}
		},
		"a number twice": func(w *fakeWorker, f wire.Frame) {
			for range wire.MaxAsks + 1 {
				w.send(wire.KindAsk, f.Call, wire.Ask{ID: 1, Name: "http"})
			}
		},
		"an ask that is no message": func(w *fakeWorker, f wire.Frame) { w.send(wire.KindAsk, f.Call, []byte{0xff}) },
	} {
		t.Run(name, func(t *testing.T) {
			hold := make(chan struct{})
			s := &fakeSystem{serve: answers(reply)}
			b := fakeBackend(t, s, Config{})
			first, err := b.Get(t.Context(), key(), listed("api.example.com"))
			if err != nil {
				t.Fatal(err)
			}
			first.link.asks.serve = holding(hold)
			defer close(hold)
			if _, err := first.RunCode(t.Context(), "x", 10*time.Second); err == nil || sandbox.Usable(err) {
				t.Errorf("error %v", err)
			}
		})
	}
	// Without a list, a worker has nothing to ask.
	s := &fakeSystem{serve: answers(func(w *fakeWorker, f wire.Frame) { w.send(wire.KindAsk, f.Call, wire.Ask{ID: 1, Name: "http"}) })}
	b := fakeBackend(t, s, Config{})
	first, err := b.Get(t.Context(), key(), spec())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := first.RunCode(t.Context(), "x", 10*time.Second); err == nil || sandbox.Usable(err) {
		t.Errorf("error %v", err)
	}
}
