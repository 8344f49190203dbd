package mcp

import (
	"bufio"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
)

const token = "0123456789abcdef0123456789abcdef"

// served starts the program over HTTP and gives its address and its end.
func served(t *testing.T, args ...string) (address string, stop func()) {
	t.Helper()
	c := command(t, "mcp", append([]string{"--http", "127.0.0.1:0"}, args...)...)
	stderr, err := c.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(stderr)
	if !lines.Scan() {
		t.Fatal("it does not say where it serves")
	}
	_, address, found := strings.Cut(lines.Text(), "serving MCP at ")
	if !found {
		t.Fatalf("it says %q", lines.Text())
	}
	logged := make(chan struct{})
	go func() {
		defer close(logged)
		for lines.Scan() {
			_, _ = t.Output().Write([]byte(lines.Text() + "\n")) // for whoever reads a failure
		}
	}()
	stop = func() {
		_ = c.Process.Signal(syscall.SIGTERM)
		<-logged
		_ = c.Wait()
	}
	t.Cleanup(stop)
	return address, stop
}

type bearer struct{}

func (bearer) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+token)
	return http.DefaultTransport.RoundTrip(r)
}

func dial(t *testing.T, address string) *sdk.ClientSession {
	t.Helper()
	transport := &sdk.StreamableClientTransport{Endpoint: address, MaxRetries: -1, HTTPClient: &http.Client{Transport: bearer{}}}
	cs, err := sdk.NewClient(&sdk.Implementation{Name: "test", Version: "1"}, nil).Connect(t.Context(), transport, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cs.Close() }) // some tests have closed it
	return cs
}

func TestSessionsOverHTTPHaveSandboxesOfTheirOwn(t *testing.T) {
	requireSandboxes(t)
	file := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(file, []byte(token+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	address, stop := served(t, "--token-file", file)
	one, two := dial(t, address), dial(t, address)
	wants(t, one, "mine = 'one'; print(mine)", "stdout:\none")
	wants(t, two, "mine = 'two'; print(mine)", "stdout:\ntwo")
	wants(t, one, "print(mine)", "stdout:\none")

	eventually(t, "the spare worker is ready", func() bool { return processes(t) >= 5 })
	both := processes(t) // server, supervisor, two workers and a spare one
	if err := one.Close(); err != nil {
		t.Error(err)
	}
	eventually(t, "the ended session's worker is gone", func() bool { return processes(t) < both })
	wants(t, two, "print(mine)", "stdout:\ntwo")

	response, err := http.Post(address, "application/json", strings.NewReader(initialize))
	if err != nil {
		t.Fatal(err)
	}
	_ = response.Body.Close()
	if response.StatusCode != http.StatusUnauthorized {
		t.Errorf("without the token: status %d", response.StatusCode)
	}
	stop()
	nothingLeft(t)
}
