package egress_test

import (
	"context"
	"errors"
	"maps"
	"net"
	"net/http"
	"net/netip"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/maf-sandbox/maf-sandbox-go/internal/egress"
)

func TestTheNextAddressIsTriedWhenOneIsDeadOrSilent(t *testing.T) {
	// On a clock of its own: a machine that stands still would have one address
	// more tried.
	synctest.Test(t, func(t *testing.T) {
		w := &web{
			names:  map[string][][]netip.Addr{"api.example.com": {addrs("8.0.0.1", "8.0.0.2", "8.0.0.3", "8.0.0.4", "8.0.0.5")}},
			dead:   map[netip.Addr]bool{netip.MustParseAddr("8.0.0.1"): true},
			silent: map[netip.Addr]bool{netip.MustParseAddr("8.0.0.2"): true},
			answer: "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n",
		}
		b, err := egress.NewBroker(egress.Config{
			Policy: newPolicy(t, listing("api.example.com")), Resolver: w, Dial: w.dial,
			OwnAddrs: func() ([]netip.Addr, error) { return nil, nil },
		})
		if err != nil {
			t.Fatal(err)
		}
		defer b.Close()
		if _, err := b.Do(t.Context(), get("http://api.example.com/")); err != nil {
			t.Fatal(err)
		}
		if _, dials := w.did(); !slices.Equal(dials, []string{"8.0.0.1:80", "8.0.0.2:80", "8.0.0.3:80"}) {
			t.Errorf("dialled %q", dials)
		}
		for _, addr := range []string{"8.0.0.2", "8.0.0.3", "8.0.0.4"} {
			w.dead[netip.MustParseAddr(addr)], w.silent = true, nil
		}
		_, err = b.Do(t.Context(), get("http://api.example.com/"))
		failure := failed(t, err, egress.KindConnect)
		if _, dials := w.did(); len(dials) != 4 || !strings.Contains(failure.Message, "api.example.com on port 80") {
			t.Errorf("dialled %q: %v", dials, failure)
		}
	})
}

// A family of addresses that leads nowhere costs a quarter of a second, not its
// share of the request's time.
func TestASilentFamilyOfAddressesCostsOneDelay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const delay = 250 * time.Millisecond
		w := &web{names: map[string][][]netip.Addr{"api.example.com": {
			addrs("2606::1", "2606::2", "2606::3", "2606::4", "2606::5", "93.184.216.34"),
		}}}
		begun := map[string]time.Duration{}
		start := time.Now()
		b, err := egress.NewBroker(egress.Config{
			Policy: newPolicy(t, listing("api.example.com")), Resolver: w, Observe: w.observe,
			OwnAddrs: func() ([]netip.Addr, error) { return nil, nil },
			Dial: func(ctx context.Context, addr netip.AddrPort) (net.Conn, error) {
				w.mu.Lock()
				begun[addr.String()] = time.Since(start)
				w.mu.Unlock()
				if addr.Addr().Is6() {
					<-ctx.Done()
					return nil, ctx.Err()
				}
				return answering("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"), nil
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		defer b.Close()
		_, err = b.Do(t.Context(), get("http://api.example.com/"))
		if want := map[string]time.Duration{"[2606::1]:80": 0, "93.184.216.34:80": delay}; err != nil || !maps.Equal(begun, want) {
			t.Errorf("%v, dialled %v, not %v", err, begun, want)
		}
		if seen := w.lastSeen(t); seen.Dialed.String() != "93.184.216.34:80" || seen.Duration != delay {
			t.Errorf("dialled %v, after %v", seen.Dialed, seen.Duration)
		}
	})
}

// What answers when it is too late is closed, and nobody waits for more.
func TestOfTwoConnectionsTheLaterOneIsClosed(t *testing.T) {
	w := newWeb(t, func(http.ResponseWriter, *http.Request) {})
	w.names["api.example.com"] = [][]netip.Addr{addrs("8.0.0.1", "8.0.0.2")}
	b := w.broker(t, newPolicy(t, listing("api.example.com")), func(c *egress.Config) {
		c.Dial = func(ctx context.Context, addr netip.AddrPort) (net.Conn, error) {
			if addr.Addr() == netip.MustParseAddr("8.0.0.1") {
				<-ctx.Done()
				ctx = context.Background()
			}
			return w.dial(ctx, addr)
		}
	})
	if _, err := b.Do(within(t), get("http://api.example.com/")); err != nil {
		t.Fatal(err)
	}
	if _, dials := w.did(); !slices.Equal(dials, []string{"8.0.0.2:80", "8.0.0.1:80"}) || w.open.Load() != 0 {
		t.Errorf("dialled %q, %d are open", dials, w.open.Load())
	}
}

func TestARefusedConnectionIsToldFromASilentOne(t *testing.T) {
	refuse := &net.OpError{Op: "dial", Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)}
	unreachable := &net.OpError{Op: "dial", Err: os.NewSyscallError("connect", syscall.ENETUNREACH)}
	w := newWeb(t, nil)
	w.names["api.example.com"] = [][]netip.Addr{addrs("8.0.0.1", "8.0.0.2")}
	for name, row := range map[string]struct {
		errs []error
		kind egress.Kind
		says string
	}{
		"refused by both":             {[]error{refuse, refuse}, egress.KindRefused, "connection refused"},
		"unreachable and refused":     {[]error{unreachable, refuse}, egress.KindRefused, "connection refused"},
		"unreachable":                 {[]error{unreachable, unreachable}, egress.KindConnect, "network is unreachable"},
		"an error without its number": {[]error{errors.New("odd"), unreachable}, egress.KindConnect, "the connection failed"},
	} {
		b := w.broker(t, newPolicy(t, listing("api.example.com")), func(c *egress.Config) {
			c.Dial = func(_ context.Context, addr netip.AddrPort) (net.Conn, error) {
				return nil, row.errs[addr.Addr().As4()[3]-1]
			}
		})
		_, err := b.Do(within(t), get("http://api.example.com/"))
		if failure := failed(t, err, row.kind); failure.Message != "could not connect to api.example.com on port 80: "+row.says {
			t.Errorf("%s: %v", name, failure)
		}
	}
}

func TestNoNameLeadsToTheHostItselfWithoutPermission(t *testing.T) {
	w := newWeb(t, func(http.ResponseWriter, *http.Request) {})
	w.names["inside.example.com"] = w.names["api.example.com"]
	policy := newPolicy(t, listing("api.example.com", "inside.example.com", public.String()), "inside.example.com")
	b := w.broker(t, policy, func(c *egress.Config) {
		c.OwnAddrs = func() ([]netip.Addr, error) { return addrs("10.0.0.1", public.String()), nil }
	})
	unknowing := w.broker(t, policy, func(c *egress.Config) {
		c.OwnAddrs = func() ([]netip.Addr, error) { return nil, errors.New("no netlink") }
	})
	for _, row := range []struct {
		host, kind string
		broker     *egress.Broker
	}{
		{"api.example.com", "address", b},
		{"inside.example.com", "200", b},
		{public.String(), "200", b}, // listed for itself
		{"api.example.com", "lookup", unknowing},
		{public.String(), "200", unknowing},
	} {
		if got := ask(t, row.broker, "GET", "http://"+row.host+"/"); got.kind() != row.kind {
			t.Errorf("%s: %s %+v, not %s", row.host, got.kind(), got.Error, row.kind)
		}
	}
	if got := ask(t, b, "GET", "http://api.example.com/"); !strings.Contains(got.Error.Message, "of the kind private") {
		t.Errorf("a guest may not tell the host's addresses from others: %q", got.Error.Message)
	}
	if seen := w.seen[0]; seen.Answers[0].Class != egress.ClassOwn || seen.Answers[0].Allowed {
		t.Errorf("observed %+v", seen.Answers)
	}
}
