package command

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/maf-sandbox/maf-sandbox-go/control"
)

// shortened is a host with ids that begin alike, one of which is the beginning
// of others.
func shortened(t *testing.T) (directory string, host *control.Memory) {
	t.Helper()
	directory = filepath.Join(t.TempDir(), "hosts")
	var records []control.Record
	for _, id := range []string{"job-1", "job-10", "job-11", "abcd1111", "abcd2222", "ünïq-7", "evil\x1b[31m"} {
		records = append(records, record(id, "one", func(r *control.Record) { r.ThreadID = "t-" + id }))
	}
	host = control.NewMemory(records...)
	serve(t, directory, "one", host)
	return directory, host
}

func left(t *testing.T, host *control.Memory) []string {
	t.Helper()
	records, err := host.List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var ids []string
	for _, r := range records {
		ids = append(ids, r.InstanceID)
	}
	return ids
}

func TestTheBeginningOfAnIDShowsTheOneSandboxThatItIsOf(t *testing.T) {
	dir, _ := shortened(t)
	p := player{directory: dir}
	for _, r := range []struct {
		typed, want string
		status      int
		complaint   string
	}{
		{"abcd1", "abcd1111", 0, ""},
		{"abcd1111", "abcd1111", 0, ""},
		{"job-1", "job-1", 0, ""}, // a whole id wins over two that are longer
		{"job-10", "job-10", 0, ""},
		{"ünïq", "ünïq-7", 0, ""},
		{"evil", `evil\x1b[31m`, 0, ""},
		{"job-", "", ExitUsage, "mst: job- is the beginning of 3 instance ids; give more of it\n  job-1   tenant-a/t-job-1/analyst/call-7\n"},
		{"abcd", "", ExitUsage, "abcd is the beginning of 2 instance ids"},
		{"abc", "", ExitAbsent, "abc is too short for the beginning of an id; give 4 characters of it or more"},
		{"ABCD1", "", ExitAbsent, sayAbsent},
		{"abcd11112", "", ExitAbsent, sayAbsent},
		{"bcd1", "", ExitAbsent, sayAbsent},
		{"", "", ExitAbsent, sayAbsent},
	} {
		got := p.run(t, "show", "--", r.typed)
		if got.status != r.status || r.want != "" && !strings.Contains(got.out, "instance     "+r.want+"\n") {
			t.Errorf("%q: got %+v, want %q and status %d", r.typed, got, r.want, r.status)
		}
		if !strings.Contains(got.errOut, r.complaint) || r.want == "" && got.out != "" || strings.Contains(got.errOut, "\x1b") {
			t.Errorf("%q: got %+v, want %q", r.typed, got, r.complaint)
		}
	}
	if got := p.run(t, "show", "abcd2", "--json"); got.status != 0 || !strings.Contains(got.out, `"instance_id": "abcd2222"`) {
		t.Errorf("as JSON: got %+v", got)
	}
	if got := p.run(t, "show", "abcd", "--json"); got.status != ExitUsage || got.out != "" {
		t.Errorf("ambiguous, as JSON: got %+v", got)
	}
}

func TestTheBeginningOfAnIDDeletesOnlyWhereTheWholeOneIsAgreedTo(t *testing.T) {
	dir, host := shortened(t)
	whole := left(t, host)
	asked := player{directory: dir, terminal: true, stdin: "n\n"}
	if got := asked.run(t, "delete", "abcd1"); got.status != ExitDeclined || !strings.HasPrefix(got.out, "Dispose tenant-a/t-abcd1111/analyst/call-7 (abcd1111)? [y/N] ") {
		t.Errorf("declined: got %+v", got)
	}
	if got := asked.run(t, "delete", "abcd"); got.status != ExitUsage || got.out != "" || !strings.Contains(got.errOut, "abcd2222") {
		t.Errorf("ambiguous: got %+v", got)
	}
	// The script's own sandbox is gone, and others begin with its id.
	for _, args := range [][]string{
		{"delete", "job-", "--yes"}, {"delete", "abcd1", "--yes"}, {"delete", "abcd1", "--yes", "--json"}, {"delete", "abcd1", "--json"},
	} {
		got := asked.run(t, args...)
		if got.status != ExitAbsent || !strings.Contains(got.errOut, "nobody is asked, so the id has to be whole") {
			t.Errorf("%q: got %+v", args, got)
		}
		if slices.Contains(args, "--json") != strings.Contains(got.out, `"status": "not_found"`) {
			t.Errorf("%q: got %+v", args, got)
		}
	}
	if got := (player{directory: dir}).run(t, "delete", "abcd1"); got.status != ExitAbsent {
		t.Errorf("without a terminal: got %+v", got)
	}
	if got := left(t, host); !slices.Equal(got, whole) {
		t.Fatalf("left are %q of %q", got, whole)
	}
	got := player{directory: dir, terminal: true, stdin: "y\n"}.run(t, "delete", "abcd1")
	if got.status != 0 || !strings.HasSuffix(got.out, " (abcd1111)\n") {
		t.Errorf("agreed: got %+v", got)
	}
	if got := (player{directory: dir}).run(t, "delete", "job-1", "--yes"); got.status != 0 {
		t.Errorf("a whole id: got %+v", got)
	}
	now := left(t, host)
	if slices.Contains(now, "abcd1111") || slices.Contains(now, "job-1") || len(now) != len(whole)-2 {
		t.Errorf("left are %q of %q", now, whole)
	}
}

func TestABeginningIsLookedForOnTheHostsThatAnswer(t *testing.T) {
	dir, host := shortened(t)
	serve(t, dir, "broken", &scripted{mode: "list_raises"})
	before := left(t, host)
	got := player{directory: dir}.run(t, "show", "abcd1")
	if got.status != ExitFailed || !strings.Contains(got.out, "abcd1111") || strings.Count(got.errOut, "warning: broken") != 1 {
		t.Errorf("show: got %+v", got)
	}
	got = player{directory: dir, terminal: true, stdin: "y\n"}.run(t, "delete", "abcd1")
	if got.status != ExitFailed || !strings.Contains(got.errOut, "warning: broken") || !strings.Contains(got.errOut, "nothing was disposed of") || !slices.Equal(left(t, host), before) {
		t.Errorf("delete: got %+v", got)
	}
	if got := (player{directory: dir}).run(t, "delete", "abcd1111", "--yes", "--json"); got.status != ExitFailed || got.out != "" || strings.Contains(got.errOut, "nothing was") {
		t.Errorf("delete for a program: got %+v", got)
	}
}

// announceMute announces a host that has no sandbox that it is asked for, and
// does not say which it has.
func announceMute(t *testing.T, directory string) {
	t.Helper()
	mux := http.NewServeMux()
	mux.HandleFunc("GET /v1/health", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, `{"protocol_version": 1, "source_id": "mute"}`)
	})
	mux.HandleFunc("GET /v1/sandboxes", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusInternalServerError) })
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	manifest := fmt.Sprintf(`{"source_id": "mute", "endpoint": %q, "process_id": 12, "protocol_version": 1}`, server.URL)
	if err := os.WriteFile(filepath.Join(directory, "mute.json"), []byte(manifest), 0o600); err != nil {
		t.Fatal(err)
	}
}

// moody is a host that does not answer the first question.
type moody struct {
	*control.Memory
	asked atomic.Bool
}

func (m *moody) List(ctx context.Context) ([]control.Record, error) {
	if !m.asked.Swap(true) {
		return nil, errScripted
	}
	return m.Memory.List(ctx)
}

func TestABeginningStandsForNothingWhenAHostDoesNotSayWhichIDsItHas(t *testing.T) {
	dir, host := shortened(t)
	announceMute(t, dir)
	before := left(t, host)
	p := player{directory: dir, terminal: true, stdin: "y\n"}
	for _, args := range [][]string{{"show", "abcd1"}, {"delete", "abcd1"}} {
		got := p.run(t, args...)
		if got.status != ExitFailed || got.out != "" || strings.Count(got.errOut, "warning: mute: ") != 1 ||
			!strings.Contains(got.errOut, "abcd1 is the beginning of abcd1111, and maybe of others; give the whole id") {
			t.Errorf("%q: got %+v", args, got)
		}
	}
	if got := p.run(t, "show", "zzzz", "--json"); got.status != ExitFailed || !strings.Contains(got.out, `"status": "unavailable"`) {
		t.Errorf("an id that nobody is known to have: got %+v", got)
	}
	if got := p.run(t, "show", "abcd1111"); got.status != 0 || got.errOut != "" {
		t.Errorf("a whole id: got %+v", got)
	}
	if got := left(t, host); !slices.Equal(got, before) {
		t.Errorf("left are %q of %q", got, before)
	}
}

func TestABeginningDeletesNothingThatWasChosenWithoutAHost(t *testing.T) {
	dir, host := shortened(t)
	serve(t, dir, "moody", &moody{Memory: control.NewMemory(record("abcd1222", "moody", nil))})
	before := left(t, host)
	got := player{directory: dir, terminal: true, stdin: "y\n"}.run(t, "delete", "abcd1")
	if got.status != ExitFailed || got.out != "" || !strings.Contains(got.errOut, "warning: moody: ") || !strings.Contains(got.errOut, "nothing was disposed of") {
		t.Errorf("got %+v", got)
	}
	if got := left(t, host); !slices.Equal(got, before) {
		t.Errorf("left are %q of %q", got, before)
	}
}

func TestWhoDeletesByAWholeIDThatOthersBeginWithIsTold(t *testing.T) {
	dir, _ := shortened(t)
	asked := player{directory: dir, terminal: true, stdin: "n\n"}
	const want = "warning: job-1 is the whole id of one sandbox, which you are asked about, and the beginning of job-10 and 1 more\n"
	if got := asked.run(t, "delete", "job-1"); got.status != ExitDeclined || !strings.Contains(got.errOut, want) || !strings.Contains(got.out, "(job-1)?") {
		t.Errorf("got %+v", got)
	}
	if got := asked.run(t, "delete", "job-10"); got.status != ExitDeclined || strings.Contains(got.errOut, "warning") {
		t.Errorf("an id that is the beginning of none: got %+v", got)
	}
	if got := asked.run(t, "delete", "job-1", "--yes"); got.status != 0 || got.errOut != "" {
		t.Errorf("a script: got %+v", got)
	}
}

func TestAnAmbiguousBeginningListsNoEndOfCandidates(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "hosts")
	var records []control.Record
	for i := range maxCandidates + 5 {
		records = append(records, record(fmt.Sprintf("same%02d", i), "one", nil))
	}
	serve(t, dir, "one", control.NewMemory(records...))
	got := player{directory: dir}.run(t, "show", "same")
	if got.status != ExitUsage || strings.Count(got.errOut, "\n  same") != maxCandidates || !strings.HasSuffix(got.errOut, "\n  and 5 more\n") {
		t.Errorf("got %+v", got)
	}
}
