package control_test

import (
	"bufio"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/maf-sandbox/maf-sandbox-go/control"
)

// capture is what the protocol's first implementation answered (package
// maf-sandbox-tui 0.1.0).
type capture struct {
	Server  string
	Options struct {
		DisposeTimeout float64 `json:"dispose_timeout"`
	}
	Manifest struct {
		Text string
	}
	Exchanges []struct {
		Case     string
		Request  string
		Response *struct {
			StatusLine string `json:"status_line"`
			Headers    [][]string
			Body       string
		}
		ControlCalls [][]any `json:"control_calls"`
	}
}

// stricter are the exchanges in which this server says something else: its status,
// 0 for none, and how the row of the protocol's document begins or goes on that
// says so.
var stricter = map[string]struct {
	status int
	row    string
}{
	"foreign host header":             {400, "or two"}, // two Host headers
	"origin header":                   {403, "any `Origin`"},
	"absolute-form target":            {421, "a `Host` other than"},
	"HEAD":                            {405, "another method"},
	"POST":                            {405, "another method"},
	"PUT":                             {405, "another method"},
	"OPTIONS":                         {405, "another method"},
	"PATCH":                           {405, "another method"},
	"lowercase method":                {405, "another method"},
	"made-up method":                  {405, "another method"},
	"HTTP/0.9 request":                {0, "takes longer than"}, // has no end
	"HTTP/2.0 request":                {505, "another version of HTTP"},
	"bad version":                     {400, "what is no request"},
	"garbage line":                    {400, "what is no request"},
	"four words":                      {400, "what is no request"},
	"no host header":                  {400, "or two"},
	"incomplete request, half closed": {400, "what is no request"},
	"incomplete request, left open":   {0, "takes longer than"},
	"nothing sent":                    {0, "takes longer than"},
	"show utf-8 raw bytes":            {400, "not printable ASCII"},
	"show bad escape":                 {400, "begins no escape"},
	"101 headers":                     {400, "or two"}, // without Host
	"100 headers":                     {400, "or two"},
	"request line over 65536 bytes":   {431, "a head of more than"},
	"header line over 65536 bytes":    {431, "a head of more than"},
	"two pipelined requests":          {200, ""}, // as "keep-alive works" says
}

func capturedControl(t *testing.T, name string) control.Control {
	t.Helper()
	one := &scripted{records: []control.Record{record("one")}}
	switch name {
	case "demo-server":
		return control.NewMemory(control.DemoRecords("mst-demo", time.Unix(now, 0))...)
	case "fake-host":
		twin := record("dup")
		twin.Kind = "codeact"
		one.records = []control.Record{record("dup"), twin, record("slash/id"), record("ünï"), record("plus+id"), record("pct%41"), record("one")}
	case "fake-list-raises":
		one.list = func(context.Context) error { return errSecret }
	case "fake-list-slow":
		one.list = untilEnd
	case "fake-dispose-raises":
		one.dispose = func(context.Context, string) (control.DisposalResult, error) {
			return control.DisposalResult{}, errSecret
		}
	case "fake-dispose-failed":
		one.dispose = func(_ context.Context, id string) (control.DisposalResult, error) {
			return control.DisposalResult{Status: control.DisposalFailed, InstanceID: id, Message: "scripted failure"}, nil
		}
	case "fake-dispose-slow":
		one.dispose = func(ctx context.Context, _ string) (control.DisposalResult, error) {
			return control.DisposalResult{}, untilEnd(ctx)
		}
	case "fake-purge-raises":
		one.purge = func(context.Context, string, string) (control.PurgeResult, error) {
			return control.PurgeResult{}, errSecret
		}
	case "fake-purge-partial":
		one.purge = func(_ context.Context, scope, thread string) (control.PurgeResult, error) {
			return control.PurgeResult{Status: control.PurgePartial, Scope: scope, ThreadID: thread, Disposed: 2, Message: "scripted purge"}, nil
		}
	case "fake-purge-slow":
		one.purge = func(ctx context.Context, _, _ string) (control.PurgeResult, error) {
			return control.PurgeResult{}, untilEnd(ctx)
		}
	default:
		t.Fatalf("no control for %s", name)
	}
	return one
}

func TestEveryCapturedExchangeIsAnsweredAsThePeerDid(t *testing.T) {
	files, err := filepath.Glob("testdata/captures/*.json")
	if err != nil || len(files) < 10 {
		t.Fatalf("captures: %v, %v", files, err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".json"), func(t *testing.T) {
			t.Parallel()
			data, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			var c capture
			if err := json.Unmarshal(data, &c); err != nil {
				t.Fatal(err)
			}
			replay(t, c)
		})
	}
}

func replay(t *testing.T, c capture) {
	ctl := capturedControl(t, c.Server)
	_, m := started(t, control.ServerConfig{
		Control: ctl, SourceID: c.Server,
		DisposeTimeout: time.Duration(c.Options.DisposeTimeout * float64(time.Second)),
	})
	for _, e := range c.Exchanges {
		want, differs := stricter[e.Case]
		if differs && want.status == 0 || strings.HasSuffix(e.Request, " bytes)") || e.Case == "two pipelined requests" {
			continue // in tests of their own
		}
		// The request as it was sent, but to this server.
		raw := latin1(strings.Replace(e.Request, "Host: 127.0.0.1\r\n", "Host: "+address(m)+"\r\n", 1))
		conn := dial(t, m)
		if _, err := conn.Write(raw); err != nil {
			t.Fatalf("%s: %v", e.Case, err)
		}
		if strings.HasSuffix(e.Case, "half closed") {
			_ = conn.(interface{ CloseWrite() error }).CloseWrite()
		}
		got := response(t, bufio.NewReader(conn), strings.Fields(e.Request + " x")[0])
		checkHeaders(t, e.Case, got)
		if s, is := ctl.(*scripted); is && !differs {
			if calls := s.taken(); len(calls)+len(e.ControlCalls) > 0 && !reflect.DeepEqual(calls, e.ControlCalls) {
				t.Errorf("%s: the control got %v, want %v", e.Case, calls, e.ControlCalls)
			}
		}
		if differs {
			if got.status != want.status {
				t.Errorf("%s: %d %s, want %d", e.Case, got.status, got.body, want.status)
			}
			continue
		}
		status := strings.Fields(e.Response.StatusLine)[1]
		if strconv.Itoa(got.status) != status || got.body != e.Response.Body {
			t.Errorf("%s:\ngot  %d %s\nwant %s %s", e.Case, got.status, got.body, status, e.Response.Body)
		}
	}
}

// checkHeaders is about what every answer has.
func checkHeaders(t *testing.T, name string, got reply) {
	t.Helper()
	for header, want := range map[string]string{
		"Content-Type": "application/json", "Cache-Control": "no-store", "X-Maf-Sandbox-Control-Version": "1",
	} {
		if values := got.header.Values(header); !slices.Equal(values, []string{want}) {
			t.Errorf("%s: %s is %q, want %q", name, header, values, want)
		}
	}
	if got.body != "" && !json.Valid([]byte(got.body)) {
		t.Errorf("%s: the body is no JSON: %q", name, got.body)
	}
	if got.status >= 400 && got.body != "" && !strings.HasPrefix(got.body, `{"error":"`) && !strings.HasPrefix(got.body, `{"status":"failed"`) {
		t.Errorf("%s: %d says %s", name, got.status, got.body)
	}
}

// latin1 gives the bytes that the capture has one character each for.
func latin1(s string) []byte {
	var b []byte
	for _, r := range s {
		b = append(b, byte(r))
	}
	return b
}
