//go:build linux && amd64

package live

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/maf-sandbox/maf-sandbox-go/internal/egress/egresstest"
	"github.com/maf-sandbox/maf-sandbox-go/router"
	"github.com/maf-sandbox/maf-sandbox-go/sandbox"
)

// refusedPrelude gives programs a function that tells how a request was refused.
const refusedPrelude = `
import json, urllib.request, http.client
def tells(f, *a, **k):
    try: return f(*a, **k)
    except Exception as e: return type(e).__name__
`

// TestProgramsReachWhatTheirPolicyListsOnly is the original's live scenario of
// the HTTP policy, and what ours promises beyond it.
func TestProgramsReachWhatTheirPolicyListsOnly(t *testing.T) {
	web := newSite(t)
	b := newBackend(t, onSite(web))
	spec := listing(here, nobody, insideName, outsideName)
	spec.Requires = spec.Requires.With(sandbox.CapEgressMethods)
	spec.EgressAllow = append(spec.EgressAllow, sandbox.EgressRule{Host: sandbox.MustHost(apiName), Methods: []string{"PUT"}})
	s := acquire(t, b, conversation(1), spec)
	// Whatever the host's environment says of proxies is not for programs.
	t.Setenv("HTTP_PROXY", "http://"+elsewhere+"/")
	t.Setenv("HTTPS_PROXY", "http://"+elsewhere+"/")

	for _, shape := range shapes {
		shape.prepare(t, s)
		web.took()
		for _, row := range []struct {
			name, code, want string
			hits             []string
		}{
			{"a listed address", `print(http_get("http://` + here + `/a")["body"])`, "GET||", []string{"GET http://" + here + "/a"}},
			{"a listed address over TLS", `print(http_get("https://` + here + `/a")["body"])`, "GET||", []string{"GET https://" + here + "/a"}},
			{"a listed name", `r = http_get("http://` + insideName + `/"); print(r["status"], r["headers"]["X-Site"])`, "200 here", []string{"GET http://inside.example/"}},
			{"a listed name over TLS", `print(http_post("https://inside.example/p", body="b", content_type="text/x")["body"])`, "POST|text/x|b", []string{"POST https://inside.example/p"}},
			{"urllib", `print(urllib.request.urlopen("https://inside.example/u").read())`, "b'GET||'", []string{"GET https://inside.example/u"}},
			{"a packed page", `r = http_get("http://` + here + `/packed"); print(r["body"], r["headers"].get("Content-Encoding"))`, "what was packed None", []string{"GET http://" + here + "/packed"}},
			{"a packed page for urllib", `
import gzip
r = urllib.request.urlopen("http://` + here + `/packed"); print(r.headers["Content-Encoding"], gzip.decompress(r.read()))`, "gzip b'what was packed'", []string{"GET http://" + here + "/packed"}},
			{"http.client", `c = http.client.HTTPConnection("` + here + `"); c.request("POST", "/c", "x"); print(c.getresponse().read())`, "b'POST||x'", []string{"POST http://" + here + "/c"}},
			{"an answer of 403 is an answer", `print(http_get("http://` + here + `/forbidden")["status"])`, "403", []string{"GET http://" + here + "/forbidden"}},
			{"a redirect is not followed", `r = http_get("http://` + here + `/moved"); print(r["status"], r["headers"]["Location"])`, "302 http://" + elsewhere + "/", []string{"GET http://" + here + "/moved"}},
			{"urllib does not follow one out of the policy", `print(tells(urllib.request.urlopen, "http://` + here + `/moved"))`, "URLError", []string{"GET http://" + here + "/moved"}},
			{"nothing of the host's comes along", `print(http_get("http://` + here + `/headers")["body"])`, "Authorization=;Cookie=;Proxy-Authorization=;User-Agent=maf-sandbox;", []string{"GET http://" + here + "/headers"}},
			{"a method that a rule names", `print(urllib.request.urlopen(urllib.request.Request("http://` + apiName + `/m", b"x", method="PUT")).read())`, "b'PUT|application/x-www-form-urlencoded|x'", []string{"PUT http://api.example.com/m"}},
			{"a method that it does not", `print(tells(http_get, "http://` + apiName + `/m"))`, "PermissionError", nil},
			{"another address", `print(tells(http_get, "http://` + elsewhere + `/"))`, "PermissionError", nil},
			{"another name", `print(tells(http_get, "http://other.example/"))`, "PermissionError", nil},
			{"another port", `print(tells(http_get, "http://` + here + `:8080/"))`, "PermissionError", nil},
			{"a listed name inside, without permission", `print(tells(http_get, "http://` + outsideName + `/"))`, "PermissionError", nil},
			{"a server that does not prove to be the host", `print(tells(http_get, "https://` + insideName + `./"))`, "OSError", nil},
			{"CONNECT", `c = http.client.HTTPConnection("` + here + `"); print(tells(c.request, "CONNECT", "` + here + `:443"))`, "OSError", nil},
			{"TRACE", `c = http.client.HTTPConnection("` + here + `"); print(tells(c.request, "TRACE", "/"))`, "NobodyListens", nil},
			{"another address, through urllib and http.client", `
for f in lambda: urllib.request.urlopen("http://` + elsewhere + `/"), lambda: http.client.HTTPConnection("` + elsewhere + `").request("GET", "/"):
    try: f()
    except OSError as e: print(isinstance(getattr(e, "reason", e), PermissionError), end=";")
print()`, "True;True;", nil},
			{"a listed address at which nobody listens", `print(tells(http_get, "http://` + nobody + `/"), tells(http.client.HTTPConnection("` + nobody + `").request, "GET", "/"))`, "ConnectionRefusedError ConnectionRefusedError", nil},
			{"a socket", `import socket; print(tells(socket.create_connection, ("` + here + `", 80)))`, "ConnectionRefusedError", nil},
		} {
			if got := prints(t, s, refusedPrelude+row.code); got != row.want+"\n" {
				t.Errorf("%s, %s: printed %q, want %q", shape.name, row.name, got, row.want)
			}
			if hits := web.took(); !slices.Equal(hits, row.hits) {
				t.Errorf("%s, %s: the servers were asked %q, want %q", shape.name, row.name, hits, row.hits)
			}
		}
	}
}

func TestAPolicyBelongsToOneSandbox(t *testing.T) {
	web := newSite(t)
	b := newBackend(t, onSite(web))
	open, closed := acquire(t, b, conversation(1), listing(here)), acquire(t, b, conversation(2), listing())
	const code = refusedPrelude + `print(tells(http_get, "http://` + here + `/"))`
	for _, shape := range shapes {
		shape.prepare(t, open)
		shape.prepare(t, closed)
		if got := prints(t, open, code); !strings.HasPrefix(got, "{'status': 200") {
			t.Errorf("%s: %s", shape.name, got)
		}
		if got := prints(t, closed, code); got != "PermissionError\n" {
			t.Errorf("%s: without a list: %s", shape.name, got)
		}
	}
	if _, err := b.Acquire(t.Context(), conversation(1), listing(here, insideName)); !errors.Is(err, sandbox.ErrConfigurationChanged) {
		t.Errorf("a live sandbox with another list: %v", err)
	}
	for name, change := range map[string]func(*sandbox.Spec){
		"a wildcard":   func(s *sandbox.Spec) { s.EgressAllow[0].Host = sandbox.MustHost("*.example.com") },
		"unrestricted": func(s *sandbox.Spec) { s.Egress, s.EgressAllow = sandbox.EgressUnrestricted, nil },
		"an identity": func(s *sandbox.Spec) {
			s.EgressAllow[0].Authority = sandbox.IdentityApp
		},
	} {
		spec := listing(here)
		change(&spec)
		if _, err := b.Acquire(t.Context(), conversation(3), spec); !errors.Is(err, sandbox.ErrRefused) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// The collected cases F1, F2, F3 and F6 through a guest that sends every byte as
// it is, through the guest's own function, and through urllib.
func TestCasesTakeTheWholeWayFromAGuest(t *testing.T) {
	web := newSite(t)
	b := newBackend(t, onSite(web))
	s := acquire(t, b, conversation(1), listing(apiName))
	cases := egresstest.Cases()
	var list strings.Builder
	want := make([]string, 0, len(cases))
	for _, c := range cases {
		fmt.Fprintf(&list, "(%s, %s),\n", python(c.Method), python(c.URL))
		want = append(want, c.Kind)
	}
	code := `
import _maf_http, http.client, urllib.request
class Refused(Exception): pass
failure, _maf_http._failure = _maf_http._failure, lambda kind, message: Refused(kind)
def raw(method, url):
    try: return str(_maf_http.exchange(method, url, [])[0]["status"])
    except Refused as e: return str(e)
cases = [` + list.String() + `]
for case in cases: print(raw(*case))
_maf_http._failure = failure
for method, url in cases:
    try: http_get(url)
    except OSError: pass
    try: urllib.request.urlopen(url)
    except (OSError, ValueError, http.client.HTTPException): pass
`
	for _, shape := range shapes {
		shape.prepare(t, s)
		web.took()
		web.names.Say(here)
		got := strings.Split(strings.TrimSuffix(prints(t, s, code), "\n"), "\n")
		if len(got) != len(want) {
			t.Fatalf("%s: %d answers to %d cases: %q", shape.name, len(got), len(want), got)
		}
		for i, c := range cases {
			if got[i] != want[i] {
				t.Errorf("%s, %s: %s, not %s", shape.name, c.Name, got[i], want[i])
			}
		}
		for _, hit := range web.took() {
			if !strings.Contains(hit, "://"+apiName+"/") {
				t.Errorf("%s: the server was asked %q", shape.name, hit)
			}
		}
		for _, question := range web.names.Questions() {
			if question != "A "+apiName+"." && question != "AAAA "+apiName+"." {
				t.Errorf("%s: somebody looked up %q", shape.name, question)
			}
		}
	}

	// F3 once more, with the one literal listed.
	literal := acquire(t, b, conversation(2), listing(here))
	for _, shape := range shapes {
		shape.prepare(t, literal)
		web.names.Say(here)
		web.took()
		got := prints(t, literal, refusedPrelude+`
for host in "`+here+`", "2136149001", "0x7f.0x530c09", "017724606011", "127.5442569", "[::1]", "[::ffff:`+here+`]", "[fe80::1%25eth0]", "0", "169.254.169.254", "localhost":
    r = tells(http_get, "http://" + host + "/")
    print(r["status"] if type(r) is dict else r)
`)
		if want := "200\nOSError\nOSError\nOSError\nOSError\nPermissionError\nPermissionError\nOSError\nOSError\nPermissionError\nPermissionError\n"; got != want {
			t.Errorf("%s: %q, want %q", shape.name, got, want)
		}
		if hits := web.took(); !slices.Equal(hits, []string{"GET http://" + here + "/"}) || len(web.names.Questions()) > 0 {
			t.Errorf("%s: the server was asked %q, the name server %q", shape.name, hits, web.names.Questions())
		}
	}
}

// python is a text as Python spells it, whatever is in it.
func python(text string) string {
	var b strings.Builder
	b.WriteByte('"')
	for _, r := range text {
		fmt.Fprintf(&b, `\U%08x`, r)
	}
	b.WriteByte('"')
	return b.String()
}

// F4 through a guest: names that turn round.
func TestANameThatTurnsRoundGainsNothing(t *testing.T) {
	web := newSite(t)
	b := newBackend(t, onSite(web))
	s := acquire(t, b, conversation(1), listing(insideName, outsideName))
	var reported sync.Map
	b.ObserveEgress(func(o sandbox.EgressObservation) { reported.Store(o.Decisions[0].Reason, o.Decisions[0].Allowed) })
	for _, shape := range shapes {
		shape.prepare(t, s)
		for _, row := range []struct {
			name, host string
			turns      [][]string
			want       string
			asked      int // questions: two for each lookup
		}{
			{"an example's address, then loopback", outsideName, [][]string{{"192.0.2.7"}, {here}}, "PermissionError", 2},
			{"public and private", outsideName, [][]string{{here, "10.0.0.1"}}, "PermissionError", 2},
			{"a mapped private address", outsideName, [][]string{{"::ffff:10.0.0.1"}}, "PermissionError", 2},
			{"an alias of an inner name", outsideName, [][]string{{here}}, "PermissionError", 2},
			{"permitted, then the metadata service", insideName, [][]string{{here}, {"169.254.169.254"}}, "200", 2},
			{"the metadata service of a permitted name", insideName, [][]string{{"169.254.169.254"}}, "PermissionError", 2},
			{"no such name", insideName, nil, "gaierror", 2},
			{"not listed", "nobody.example", [][]string{{here}}, "PermissionError", 0},
		} {
			web.names.SayInTurn(row.turns...)
			if row.turns == nil {
				web.names.Say()
			}
			if strings.Contains(row.name, "alias") {
				web.names.Lie(egresstest.LieAlias)
			}
			web.took()
			got := prints(t, s, refusedPrelude+`r = tells(http_get, "http://`+row.host+`/"); print(r["status"] if type(r) is dict else r)`)
			if got != row.want+"\n" {
				t.Errorf("%s, %s: %q, want %q", shape.name, row.name, got, row.want)
			}
			if asked := web.names.Questions(); len(asked) != row.asked {
				t.Errorf("%s, %s: asked %q", shape.name, row.name, asked)
			}
			if hits := web.took(); len(hits) > 0 != (row.want == "200") {
				t.Errorf("%s, %s: the server was asked %q", shape.name, row.name, hits)
			}
		}
	}
	if allowed, told := reported.Load("address"); !told || allowed != false {
		t.Error("the host was not told of an address that is not allowed")
	}
}

// A program that waits for the network is under its deadline, and the sandbox
// goes on.
func TestAProgramThatWaitsForAServerIsUnderItsDeadline(t *testing.T) {
	web := newSite(t)
	b := newBackend(t, onSite(web))
	r := newRouter(t, b, router.Config{MinCleanup: sandbox.CleanupReset})
	call, err := r.Enter(t.Context(), conversation(1), listing(here), router.CallOptions{})
	if err != nil {
		t.Fatal(err)
	}
	s, err := call.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, shape := range shapes {
		shape.prepare(t, s)
		// An import that is interrupted leaves half a package, as it does outside: on a
		// machine that is busy the time of the programs below could end in one.
		prints(t, s, "import asyncio, concurrent.futures.thread\nkept = http_get('http://"+here+"/')['status']")
		for name, code := range map[string]string{
			"the program": "http_get('http://" + here + "/wait')",
			"threads of its": `
from concurrent.futures import ThreadPoolExecutor
with ThreadPoolExecutor(3) as ex: list(ex.map(http_get, ['http://` + here + `/wait'] * 5))`,
			"threads of asyncio's": `
import asyncio
asyncio.run(asyncio.to_thread(http_get, 'http://` + here + `/wait'))`,
		} {
			_, err = s.RunCode(t.Context(), code, overrun(300*time.Millisecond))
			if !errors.Is(err, sandbox.ErrTimeout) || !sandbox.Usable(err) {
				t.Fatalf("%s, %s: %v", shape.name, name, err)
			}
			if got := prints(t, s, "print(kept)"); got != "200\n" {
				t.Errorf("%s, %s: afterwards %q", shape.name, name, got)
			}
		}
	}
	if err := call.Finish(t.Context()); err != nil {
		t.Error(err)
	}
}
