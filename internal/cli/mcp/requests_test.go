package mcp

import (
	"bytes"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/maf-sandbox/maf-sandbox-go/router"
	"github.com/maf-sandbox/maf-sandbox-go/sandbox"
)

// refusing is the log of a server that lets programs reach a.example.
type refusing struct {
	*requests
	out bytes.Buffer
}

func newRefusing(t *testing.T) *refusing {
	t.Helper()
	rules, err := sandbox.AllowHosts("a.example")
	if err != nil {
		t.Fatal(err)
	}
	r := new(refusing)
	plain := &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey || a.Key == slog.LevelKey {
			return slog.Attr{}
		}
		return a
	}}
	r.requests = newRequests(slog.New(slog.NewTextHandler(&r.out, plain)), rules)
	return r
}

// hears tells of so many refusals.
func (r *refusing) hears(n int, of sandbox.Key, reason string, host func(i int) string) {
	for i := range n {
		r.Observe(router.EgressObserved{EgressObservation: sandbox.EgressObservation{Key: of, Decisions: []sandbox.EgressDecision{
			{Host: host(i), Port: uint16(80 + i), Reason: reason},
		}}})
	}
}

func (r *refusing) wants(t *testing.T, lines ...string) {
	t.Helper()
	want := strings.Join(append(lines, ""), "\n")
	if got := r.out.String(); got != want {
		t.Errorf("logged\n%swant\n%s", got, want)
	}
	r.out.Reset()
}

func always(host string) func(int) string { return func(int) string { return host } }

func TestAProgramThatIsRefusedOverAndOverDoesNotFloodTheLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRefusing(t)
		r.hears(5000, key, "host not listed", func(i int) string { return fmt.Sprintf("h%d.evil", i) })
		r.wants(t, `msg="a program made a request" key=s/t/a reason="host not listed" allowed=false port=80`)
		// Another reason, and a host that the operator knows, are news once.
		r.hears(3, key, "address", always("a.example"))
		r.hears(1, key, "method not listed", always("a.example"))
		r.wants(t,
			`msg="a program made a request" key=s/t/a reason=address allowed=false port=80 host=a.example`,
			`msg="a program made a request" key=s/t/a reason="method not listed" allowed=false port=80 host=a.example`)
		// What no rule could allow has neither host nor port.
		r.Observe(router.EgressObserved{EgressObservation: sandbox.EgressObservation{Key: key, Decisions: []sandbox.EgressDecision{{Reason: "port not allowed"}}}})
		r.wants(t, `msg="a program made a request" key=s/t/a reason="port not allowed" allowed=false`)
		// Each call may have a key of its own; the session is the same.
		call := key
		call.CallID = "call-1"
		r.hears(1, call, "host not listed", always("b.evil"))
		r.wants(t)
		time.Sleep(repeatEvery)
		r.hears(3, key, "host not listed", always("c.evil"))
		r.wants(t, `msg="more requests of programs were refused" key=s/t/a reason="host not listed" count=5001`)
		// Another session has its own count, and what is left is told at the end.
		other := key
		other.ThreadID = "u"
		r.hears(1, other, "host not listed", always("d.evil"))
		r.wants(t, `msg="a program made a request" key=s/u/a reason="host not listed" allowed=false port=80`)
		r.Observe(router.ScopeDisposed{Scope: "s", ThreadID: "u"})
		r.wants(t)
		r.Observe(router.ScopeDisposed{Scope: key.Scope, ThreadID: key.ThreadID})
		got := strings.Count(r.out.String(), "\n")
		for _, want := range []string{`reason="host not listed" count=2` + "\n", "reason=address count=2 host=a.example\n"} {
			if !strings.Contains(r.out.String(), want) || got != 2 {
				t.Errorf("%q is not in %s", want, &r.out)
			}
		}
		if len(r.refused) != 0 {
			t.Errorf("%d sessions that have ended are counted", len(r.refused))
		}
	})
}
