package control

import (
	"encoding/json"
	"math"
	"net/url"
	"strings"
	"testing"
	"time"
	"unicode/utf8"
)

// Foreign announcements give an endpoint on this machine's loopback and a
// socket in their own folder, or nothing.
func FuzzManifest(f *testing.F) {
	f.Add([]byte(`{"source_id": "demo", "endpoint": "http://127.0.0.1:37313", "process_id": 1234, "protocol_version": 1}`))
	f.Add([]byte(`{"source_id":"x","endpoint":"http://[::1]:9/","process_id":null,"protocol_version":1,"unix_socket":"1-a.sock"}`))
	f.Add([]byte(`{"source_id":"x","endpoint":"http://u@127.0.0.1:9?","protocol_version":true,"unix_socket":"../../x.sock"}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		m, err := parseManifest(data, "/run/folder")
		_ = isOurs(data)
		if err != nil {
			return
		}
		address, err := parseEndpoint(m.Endpoint)
		if err != nil || !address.Addr().IsLoopback() || address.Port() == 0 {
			t.Fatalf("%q gives the endpoint %q: %v", data, m.Endpoint, err)
		}
		if m.Socket != "" && (strings.Count(m.Socket, "/") != 3 || !strings.HasPrefix(m.Socket, "/run/folder/")) {
			t.Fatalf("%q gives the socket %q", data, m.Socket)
		}
		if m.SourceID == "" {
			t.Fatalf("%q gives no name", data)
		}
		again, err := parseManifest(m.marshal(), "/run/folder")
		if err != nil || again.SourceID != m.SourceID || again.Endpoint != m.Endpoint || again.ProcessID != m.ProcessID {
			t.Fatalf("%+v was written and read as %+v: %v", m, again, err)
		}
	})
}

// Foreign records and results are read into what can be written again.
func FuzzRecord(f *testing.F) {
	for _, r := range DemoRecords("s", time.Unix(1_800_000_000, 5)) {
		text, err := r.MarshalJSON()
		if err != nil {
			f.Fatal(err)
		}
		f.Add(text)
	}
	f.Add([]byte(`{"status":"disposed","instance_id":"i","message":"\ud800"}`))
	f.Add([]byte(`{"status":"partial","scope":"s","thread_id":"t","disposed":3,"message":""}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		var r Record
		if r.UnmarshalJSON(data) == nil {
			text, err := r.MarshalJSON()
			var again Record
			if err != nil || again.UnmarshalJSON(text) != nil || again.Compare(r) != 0 || again.State != r.State || again.CreatedAt != r.CreatedAt {
				t.Fatalf("%q was read as %+v and written as %s: %v", data, r, text, err)
			}
			if year := r.CreatedAt.Time().Year(); year < 1 || year > 9999 {
				t.Fatalf("%q is from the year %d", data, year)
			}
		}
		var d DisposalResult
		if d.UnmarshalJSON(data) == nil {
			checkAgain(t, d, &DisposalResult{})
		}
		var p PurgeResult
		if p.UnmarshalJSON(data) == nil {
			checkAgain(t, p, &PurgeResult{})
			if p.Disposed < 0 {
				t.Fatalf("%q disposed of %d", data, p.Disposed)
			}
		}
	})
}

// checkAgain writes, reads and writes, and the two texts must be the same.
func checkAgain(t *testing.T, value, again any) {
	t.Helper()
	text, err := json.Marshal(value)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(text, again); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	second, err := json.Marshal(again)
	if err != nil || string(second) != string(text) {
		t.Fatalf("%s became %s: %v", text, second, err)
	}
}

// Every target leads to a route or to none, and what a client escapes comes
// out as it was.
func FuzzRequestTarget(f *testing.F) {
	for _, target := range []string{
		"/v1/health?timeout=5.0", "//v1/health", "/v1/sandboxes/a%2Fb?timeout=1&timeout=2", "http://127.0.0.1:1/v1/sandboxes#x",
		"/v1/scopes/a/threads/b%zz", "*", "", "/v1/scopes//threads/", "/v1/sandboxes/%ff%",
		"/v1/health?timeout=1;timeout=2", "/v1/health?%74imeout=%zz&timeout&=1&&+timeout=5",
	} {
		f.Add(target, "slash/ä+%41", "1e1")
	}
	f.Fuzz(func(t *testing.T, requestURI, id, seconds string) {
		path, query := splitTarget(requestURI)
		if !strings.HasPrefix(path, "/") {
			t.Fatalf("the path of %q is %q", requestURI, path)
		}
		got := parsePath(path)
		for _, text := range []string{got.instanceID, got.scope, got.threadID} {
			if !utf8.ValidString(text) {
				t.Fatalf("%q names %q", requestURI, text)
			}
		}
		for _, values := range [][]string{queryTimeouts(query), {seconds}} {
			timeout, err := parseTimeout(values, DefaultTimeout)
			if err == nil && (timeout <= 0 || timeout > DefaultTimeout) {
				t.Fatalf("%q gives %v", values, timeout)
			}
			if err != nil && strings.ContainsFunc(err.Error(), func(r rune) bool { return r < ' ' || r > '~' }) {
				t.Fatalf("%q is refused as %q", values, err)
			}
		}
		if !utf8.ValidString(id) {
			return
		}
		path, _ = splitTarget(pathInstance + escape(id) + "?timeout=1.0")
		if got := parsePath(path); got.route != routeInstance || got.instanceID != id {
			t.Fatalf("%q came out as %+v", id, got)
		}
		path, _ = splitTarget(pathScopes + escape(id) + "/threads/" + escape(id))
		if got := parsePath(path); got.route != routeConversation || got.scope != id || got.threadID != id {
			t.Fatalf("%q came out as %+v", id, got)
		}
		if _, err := url.ParseRequestURI(pathInstance + escape(id)); err != nil {
			t.Fatalf("%q is escaped as no URL: %v", id, err)
		}
	})
}

func TestTimeOutsAreReadAsPythonReadsNumbers(t *testing.T) {
	const longest = 10 * time.Second
	for _, tt := range []struct {
		text string
		want time.Duration // 0 for an error
		says string
	}{
		{text: "5.0", want: 5 * time.Second}, {text: "1e1", want: longest}, {text: "1_0", want: longest}, {text: " 2 ", want: 2 * time.Second},
		{text: "99", want: longest}, {text: "1e999", says: "finite"}, {text: ".5", want: time.Second / 2}, {text: "5.", want: 5 * time.Second},
		{text: "+3", want: 3 * time.Second}, {text: "1e-300", want: time.Nanosecond}, {text: "1_0.5e-1", want: 1050 * time.Millisecond},
		{text: "0", says: "finite"}, {text: "-1", says: "finite"}, {text: "inf", says: "finite"}, {text: "-Infinity", says: "finite"}, {text: "nan", says: "finite"},
		{text: "", says: "could not convert string to float: ''"}, {text: "abc", says: "could not convert string to float: 'abc'"},
		{text: "0x10", says: "could not"}, {text: "1__0", says: "could not"}, {text: "_1", says: "could not"}, {text: "1e", says: "could not"},
		{text: "1,5", says: "could not"}, {text: "1\x1b[31m'", says: "'1?[31m?'"}, {text: strings.Repeat("1", 1000), says: "..."},
	} {
		got, err := parseTimeout([]string{tt.text}, longest)
		if got != tt.want || (err != nil) != (tt.want == 0) || err != nil && !strings.Contains(err.Error(), tt.says) {
			t.Errorf("%q gives %v, %v", tt.text, got, err)
		}
	}
	if got, err := parseTimeout(nil, longest); got != longest || err != nil {
		t.Errorf("none gives %v, %v", got, err)
	}
	if _, err := parseTimeout([]string{"1", "1"}, longest); err == nil || err.Error() != "timeout must be specified once" {
		t.Errorf("two give %v", err)
	}
	for _, d := range []time.Duration{time.Nanosecond, time.Millisecond, 1500 * time.Millisecond, time.Hour} {
		seconds, err := parseSeconds(formatTimeout(d))
		if err != nil || math.Abs(seconds-d.Seconds()) > 1e-9 {
			t.Errorf("%v is sent as %s", d, formatTimeout(d))
		}
	}
}
