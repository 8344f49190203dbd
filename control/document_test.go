package control_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/maf-sandbox/maf-sandbox-go/control"
)

// documented is the control of the examples: in memory, but for one sandbox that
// does not go.
type documented struct{ *control.Memory }

func (d documented) Dispose(ctx context.Context, id string, timeout time.Duration) (control.DisposalResult, error) {
	if id == "stuck" {
		return control.DisposalResult{Status: control.DisposalFailed, InstanceID: id, Message: "Disposal timed out and was not confirmed."}, nil
	}
	return d.Memory.Dispose(ctx, id, timeout)
}

func document(t *testing.T) string {
	t.Helper()
	b, err := os.ReadFile("../docs/control-protocol.md")
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// blocks are the fenced examples of a language.
func blocks(t *testing.T, language string) []string {
	t.Helper()
	var found []string
	for _, m := range regexp.MustCompile("(?ms)^```"+language+"\n(.*?)^```$").FindAllStringSubmatch(document(t), -1) {
		found = append(found, strings.TrimSuffix(m[1], "\n"))
	}
	if len(found) == 0 {
		t.Fatalf("no example of %s", language)
	}
	return found
}

// The examples are one conversation: what one removes, the next does not find.
func TestTheExamplesOfTheProtocolAreTrue(t *testing.T) {
	record := func(thread, call, id string, state control.State, created, signal control.Timestamp) control.Record {
		return control.Record{
			SourceID: "desk", Backend: "microvm", Scope: "mcp", ThreadID: thread, AgentID: "claude", CallID: call, Kind: "codeact",
			InstanceID: id, State: state, CreatedAt: created, LastActivityAt: signal,
		}
	}
	one := record("session-7x2k", "", "9f15a25d", control.StateRunning, 1_800_000_000, 1_800_000_060.5)
	one.ProcessID, one.ExecutionContract, one.EgressTargets = 28440, "codeact:run_code:69", []string{"api.example"}
	two := record("session-9w1p", "call-1", "f2ec/47", control.StateReady, 1_800_000_100.25, 1_800_000_100.25)
	_, m := started(t, control.ServerConfig{Control: documented{control.NewMemory(one, two)}, SourceID: "desk"})
	for _, block := range blocks(t, "http") {
		lines := strings.Split(block, "\n")
		method, target, _ := strings.Cut(lines[0], " ")
		status, body, _ := strings.Cut(lines[len(lines)-1], " ")
		got := ask(t, m, method, target, lines[1:len(lines)-1]...)
		if strconv.Itoa(got.status) != status || got.body != body {
			t.Errorf("%s\nis answered with\n%d %s", block, got.status, got.body)
		}
	}
}

func TestTheExampleOfAnAnnouncementIsTrue(t *testing.T) {
	dir := shortDir(t)
	_, m := started(t, control.ServerConfig{Control: control.NewMemory(), SourceID: "desk", Directory: dir, Socket: true})
	files, err := filepath.Glob(filepath.Join(dir, "*.json"))
	if err != nil || len(files) != 1 {
		t.Fatalf("announced %v, %v", files, err)
	}
	written, err := os.ReadFile(files[0])
	if err != nil {
		t.Fatal(err)
	}
	want := blocks(t, "json")[0]
	stem := strings.TrimSuffix(filepath.Base(m.Socket), ".sock")
	example := strings.NewReplacer(stem, "4711-0123456789ab", strconv.Itoa(m.ProcessID), "4711", address(m), "127.0.0.1:37313")
	if got := example.Replace(string(written)); got != want {
		t.Errorf("announced\n%s\nthe example is\n%s", got, want)
	}
	if filepath.Base(files[0]) != stem+".json" {
		t.Errorf("the file is named %s", files[0])
	}
	// A console reads the example.
	folder := shortDir(t)
	if err := os.Mkdir(folder, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(folder, "example.json"), []byte(want), 0o600); err != nil {
		t.Fatal(err)
	}
	read, err := control.Manifests(folder)
	wanted := control.Manifest{SourceID: "desk", Endpoint: "http://127.0.0.1:37313", ProcessID: 4711, Socket: filepath.Join(folder, "4711-0123456789ab.sock"), Announcement: filepath.Join(folder, "example.json")}
	if err != nil || len(read) != 1 || read[0] != wanted {
		t.Errorf("read %+v, %v", read, err)
	}
}

func TestTheNumbersOfTheProtocolsDocumentAreThoseOfTheProgram(t *testing.T) {
	text := document(t)
	for _, want := range []string{
		fmt.Sprintf("bound of %d s", control.DefaultTimeout/time.Second),
		fmt.Sprintf("waits %d s for an inventory", control.DefaultHostTimeout/time.Second),
		fmt.Sprintf("at most %d MiB and %d records", control.MaxResponseBytes>>20, control.MaxInventory),
		fmt.Sprintf("more than %d connections", control.DefaultMaxConnections),
		fmt.Sprintf("texts of at most %d KiB", control.MaxTextBytes>>10),
	} {
		if !strings.Contains(text, want) {
			t.Errorf("the document does not say %q", want)
		}
	}
	for _, state := range control.States() {
		if !strings.Contains(text, "`"+string(state)+"`") {
			t.Errorf("the document does not name the state %s", state)
		}
	}
}

// What the document says of each refusal, beside its examples.
func TestTheRefusalsOfTheProtocolsDocumentAreTrue(t *testing.T) {
	_, m := started(t, control.ServerConfig{Control: control.NewMemory()})
	for _, r := range []struct {
		row, request string
		status       int
	}{
		{"a `Host` other than", "GET /v1/health HTTP/1.1\r\nHost: pages.example\r\n\r\n", 421},
		{"none in HTTP/1.0", "GET /v1/health HTTP/1.0\r\n\r\n", 421},
		{"no `Host`", "GET /v1/health HTTP/1.1\r\n\r\n", 400},
		{"or two", request(m, "GET", "/v1/health", "Host: "+address(m)), 400},
		{"any `Origin`", request(m, "GET", "/v1/health", "Sec-Fetch-Site: cross-site"), 403},
		{"another method", request(m, "PUT", "/v1/sandboxes/x"), 405},
		{"not printable ASCII", request(m, "GET", "/v1/sandboxes/\xe4"), 400},
		{"begins no escape", request(m, "DELETE", "/v1/sandboxes/%zz"), 400},
		{"begins no escape", request(m, "DELETE", "/v1/scopes/s/threads/t%"), 400},
		{"what is no request", "GET /v1/health\r\n\r\n", 400},
		{"another version of HTTP", "GET /v1/health HTTP/2.0\r\nHost: x\r\n\r\n", 505},
		{"a body of more than", request(m, "GET", "/v1/health", "Content-Length: 65537"), 413},
		{"a head of more than", request(m, "GET", "/v1/health", "X-Long: "+string(bytes.Repeat([]byte("x"), 24<<10))), 431},
	} {
		if got := exchange(t, m, r.request); got.status != r.status {
			t.Errorf("%s: %d, want %d", r.row, got.status, r.status)
		}
		hasRow(t, r.row, r.status)
	}
	for _, exchange := range stricter {
		if exchange.row != "" {
			hasRow(t, exchange.row, exchange.status)
		}
	}
}

// hasRow looks for a row of the document's table of refusals. Status 0 is no answer.
func hasRow(t *testing.T, says string, status int) {
	t.Helper()
	word := "none"
	if status > 0 {
		word = strconv.Itoa(status)
	}
	row := regexp.MustCompile(`(?m)^\|.*` + regexp.QuoteMeta(says) + `.*\|[^|]*\b` + word + `\b[^|]*\|$`)
	if !row.MatchString(document(t)) {
		t.Errorf("the document has no row %q with %s", says, word)
	}
}
