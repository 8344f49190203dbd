package control_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/maf-sandbox/maf-sandbox-go/control"
)

// folder is a discovery folder with files.
func folder(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := shortDir(t)
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// variant is the announcement of a host that is gone, with changes; nil drops a
// key.
func variant(t *testing.T, changes map[string]any) string {
	t.Helper()
	m := map[string]any{"source_id": "gone", "endpoint": "http://127.0.0.1:9", "process_id": 12, "protocol_version": 1}
	for key, value := range changes {
		if value == nil {
			delete(m, key)
		} else {
			m[key] = value
		}
	}
	text, err := json.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// The files are those with which the protocol's first implementation was
// probed, and it took the same ones.
func TestAnnouncementsThatMeanNothingAreLeftOut(t *testing.T) {
	dir := folder(t, map[string]string{
		"a-garbage.json": "{", "b-list.json": "[]",
		"c-v2.json":      variant(t, map[string]any{"protocol_version": 2}),
		"d-vtrue.json":   variant(t, map[string]any{"protocol_version": true}),
		"e-https.json":   variant(t, map[string]any{"endpoint": "https://127.0.0.1:9"}),
		"f-host.json":    variant(t, map[string]any{"endpoint": "http://localhost:9"}),
		"g-pub.json":     variant(t, map[string]any{"endpoint": "http://10.0.0.1:9"}),
		"h-path.json":    variant(t, map[string]any{"endpoint": "http://127.0.0.1:9/x"}),
		"i-noport.json":  variant(t, map[string]any{"endpoint": "http://127.0.0.1"}),
		"j-nullpid.json": strings.Replace(variant(t, nil), "12", "null", 1),
		"k-strpid.json":  variant(t, map[string]any{"process_id": "1"}),
		"l-empty.json":   variant(t, map[string]any{"source_id": ""}),
		"m-v6.json":      variant(t, map[string]any{"source_id": "six", "endpoint": "http://[::1]:9"}),
		"n-127.2.json":   variant(t, map[string]any{"source_id": "two", "endpoint": "http://127.0.0.2:9/"}),
		"o-extra.json":   variant(t, map[string]any{"source_id": "extra", "more": 1}),
		"p-user.json":    variant(t, map[string]any{"endpoint": "http://u:p@127.0.0.1:9"}),
		"q-missing.json": variant(t, map[string]any{"process_id": nil}),
		"q-zero.json":    variant(t, map[string]any{"source_id": "zero", "process_id": 0}),
		"q-long.json":    variant(t, map[string]any{"source_id": strings.Repeat("x", control.MaxTextBytes+1)}),
		"r-path.json":    variant(t, map[string]any{"source_id": "elsewhere", "unix_socket": "../x.sock"}),
		"z.txt":          variant(t, nil),
		".hidden.json":   variant(t, map[string]any{"source_id": "hidden"}),
	})
	manifests, err := control.Manifests(dir)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, m := range manifests {
		names = append(names, m.SourceID)
		if m.Socket != "" {
			t.Errorf("%s leads to %s", m.SourceID, m.Socket)
		}
	}
	if want := []string{"hidden", "six", "two", "extra", "zero", "elsewhere"}; !slices.Equal(names, want) {
		t.Errorf("read %v, want %v", names, want)
	}
	if manifests[2].Endpoint != "http://127.0.0.2:9/" {
		t.Errorf("the endpoint became %s", manifests[2].Endpoint)
	}
}

func TestAMissingFolderHasNoHostsAndAnOpenOneIsRefused(t *testing.T) {
	ctx := context.Background()
	dir := shortDir(t)
	if hosts, err := control.Discover(ctx, dir); err != nil || len(hosts) != 0 {
		t.Errorf("Discover = %v, %v", hosts, err)
	}
	t.Setenv("MAF_SANDBOX_TUI_RUNTIME_DIR", dir)
	if hosts, err := control.Discover(ctx, ""); err != nil || len(hosts) != 0 {
		t.Errorf("Discover = %v, %v", hosts, err)
	}
	if runtime.GOOS == "windows" {
		t.Skip("needs a system with file modes")
	}
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	_, err := control.Discover(ctx, "")
	if !errors.Is(err, control.ErrUnsafeDirectory) || err.Error() != "sandbox discovery directory is not private: "+dir {
		t.Errorf("Discover: %v", err)
	}
}

func TestDiscoveryTellsHostsThatAnswerFromThoseThatAreGone(t *testing.T) {
	dir := folder(t, map[string]string{"0-gone.json": variant(t, nil)})
	_, first := started(t, control.ServerConfig{Control: having("one"), SourceID: "first", Directory: dir})
	started(t, control.ServerConfig{Control: having("two"), SourceID: "second", Directory: dir, Socket: true})
	// The first host's port under another name: as after a reuse of the port.
	for name, pid := range map[string]int{"impostor": 9, "impostor-0": 0} {
		text := variant(t, map[string]any{"source_id": name, "endpoint": first.Endpoint, "process_id": pid})
		if err := os.WriteFile(filepath.Join(dir, name+".json"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	hosts, err := control.Discover(context.Background(), dir)
	if err != nil {
		t.Fatal(err)
	}
	answered := map[string]bool{}
	for _, host := range hosts {
		answered[host.Client.Manifest().SourceID] = host.Err == nil
		var failure *control.HostError
		if host.Err != nil && (!errors.As(host.Err, &failure) || failure.SourceID != host.Client.Manifest().SourceID) {
			t.Errorf("%v is no failure of a host", host.Err)
		}
	}
	if len(answered) != 5 || !answered["first"] || !answered["second"] || answered["gone"] || answered["impostor"] || answered["impostor-0"] {
		t.Errorf("answered: %v", answered)
	}
	records, err := control.Unite(hosts).List(context.Background())
	var partial *control.PartialError
	if len(records) != 2 || !errors.As(err, &partial) || len(partial.Hosts) != 3 {
		t.Errorf("List = %+v, %v", records, err)
	}
}

// A host that was killed leaves its announcement, and its port to whoever binds
// it next, another user too.
func TestThePortOfAHostThatIsGoneIsNotAskedWhoeverAnswersThere(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("needs a system whose file locks tell whether a host lives")
	}
	var asked atomic.Int32
	impostor := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		asked.Add(1)
		_, _ = io.WriteString(w, `{"protocol_version":1,"source_id":"gone"}`)
	}))
	t.Cleanup(impostor.Close)
	dir := folder(t, map[string]string{"12-a.json": variant(t, map[string]any{"endpoint": impostor.URL, "implementation": "go"})})
	hosts, err := control.Discover(context.Background(), dir)
	if err != nil || len(hosts) != 1 {
		t.Fatalf("Discover = %+v, %v", hosts, err)
	}
	if err := hosts[0].Err; !errors.Is(err, control.ErrGone) || !strings.Contains(err.Error(), "12-a.json") {
		t.Errorf("the host is no dead one: %v", err)
	}
	if result, err := hosts[0].Client.Dispose(context.Background(), "one", 0); err != nil || result.Status != control.DisposalFailed {
		t.Errorf("Dispose = %+v, %v", result, err)
	}
	if n := asked.Load(); n != 0 {
		t.Errorf("whoever has the port was asked %d times", n)
	}
}

// Nor is it taken for dead. That an announcement is missing proves nothing: the
// server may have been closed, started again, or have lost its folder.
func TestAHostThatGoesAfterItWasFoundIsNotAskedAnyMore(t *testing.T) {
	for _, tt := range []struct {
		name     string
		withdraw func(server *control.Server, folder string) error
	}{
		{"its server was closed", func(server *control.Server, _ string) error { return server.Close() }},
		{"its server was started again", func(server *control.Server, _ string) error { return errors.Join(server.Close(), server.Start()) }},
		{"its folder was removed", func(_ *control.Server, folder string) error { return os.RemoveAll(folder) }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			host := having("one")
			server, m := started(t, control.ServerConfig{Control: host, SourceID: "first"})
			client, err := control.NewClient(m)
			if err != nil {
				t.Fatal(err)
			}
			if err := client.Health(t.Context()); err != nil {
				t.Errorf("Health of a host that is announced: %v", err)
			}
			if err := tt.withdraw(server, filepath.Dir(m.Announcement)); err != nil {
				t.Fatal(err)
			}
			if err := client.Health(t.Context()); err == nil || errors.Is(err, control.ErrGone) || !strings.Contains(err.Error(), "not announced any more") {
				t.Errorf("Health: %v", err)
			}
			c := control.NewComposite([]control.Member{{SourceID: "first", Control: client}, {SourceID: "other", Control: having("two")}}, nil)
			for _, id := range []string{"one", "two"} {
				if result, err := c.Dispose(t.Context(), id, 0); err != nil || result.Status != control.DisposalFailed {
					t.Errorf("Dispose = %+v, %v", result, err)
				}
			}
			if result, err := c.Purge(t.Context(), "s", "t", 0); err != nil || result.Status != control.PurgePartial {
				t.Errorf("Purge = %+v, %v", result, err)
			}
			if calls := host.taken(); len(calls) != 0 {
				t.Errorf("the host got %v", calls)
			}
		})
	}
}

// Two hosts may have the same name: nothing is identified by it.
func TestTwoHostsWithOneNameAreTwoHosts(t *testing.T) {
	dir := shortDir(t)
	for _, id := range []string{"one", "two"} {
		started(t, control.ServerConfig{Control: having(id), SourceID: "same", Directory: dir})
	}
	hosts, err := control.Discover(context.Background(), dir)
	if err != nil || len(hosts) != 2 {
		t.Fatalf("Discover = %v, %v", hosts, err)
	}
	c := control.Unite(hosts)
	if result, err := c.Dispose(context.Background(), "two", 0); err != nil || result.Status != control.Disposed {
		t.Errorf("Dispose = %+v, %v", result, err)
	}
	if records := inventory(t, c); len(records) != 2 {
		t.Errorf("listed %+v", records)
	}
}

func TestOneIDOnTwoHostsIsDisposedOfOnNeither(t *testing.T) {
	dir := shortDir(t)
	hosts := []*scripted{having("one"), having("one")}
	for i, host := range hosts {
		started(t, control.ServerConfig{Control: host, SourceID: string(rune('a' + i)), Directory: dir})
	}
	found, err := control.Discover(context.Background(), dir)
	if err != nil {
		t.Fatal(err)
	}
	if result, err := control.Unite(found).Dispose(context.Background(), "one", 0); !errors.Is(err, control.ErrDuplicate) {
		t.Errorf("Dispose = %+v, %v", result, err)
	}
	for i, host := range hosts {
		if calls := host.taken(); len(calls) != 0 {
			t.Errorf("host %d got %v", i, calls)
		}
	}
}

func TestTimestampsKeepWhatTheWireSays(t *testing.T) {
	moment := time.Unix(1_800_000_000, 123_456_000)
	if got := control.At(moment).Time(); got.Sub(moment).Abs() > time.Microsecond {
		t.Errorf("%v became %v", moment, got)
	}
	for _, odd := range []control.Timestamp{-1e300, 1e300, -62135596801} {
		if year := odd.Time().Year(); year < 1 || year > 9999 {
			t.Errorf("%g is in the year %d", float64(odd), year)
		}
	}
	if age := control.At(moment).Age(moment.Add(-time.Hour)); age != 0 {
		t.Errorf("after the clock was set back, the age is %v", age)
	}
	if age := control.Timestamp(1e300).Age(moment); age != 0 {
		t.Errorf("what lies ahead is %v old", age)
	}
	if age := control.At(moment).Age(moment.Add(time.Minute)).Round(time.Millisecond); age != time.Minute {
		t.Errorf("the age is %v", age)
	}
}
