package mcp

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
)

// here is a loopback address of this test's own: programs reach port 80 only,
// which other tests serve too.
const here = "127.0.0.77"

// website serves here until the test ends.
func website(t *testing.T) {
	t.Helper()
	l, err := net.Listen("tcp", here+":80")
	if err != nil {
		t.Skipf("needs to serve at %s:80: %v", here, err)
	}
	s := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body) // a lost body is an empty one
		w.Header().Set("X-Test", "yes")
		w.Header().Set("Location", "http://192.0.2.1/")
		if r.URL.Path == "/moved" {
			w.WriteHeader(http.StatusFound)
		}
		_, _ = fmt.Fprintf(w, "%s|%s|%s", r.Method, r.Header.Get("Content-Type"), body)
	})}
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(l) }()
	t.Cleanup(func() {
		_ = s.Close()
		if err := <-ended; !errors.Is(err, http.ErrServerClosed) {
			t.Error(err)
		}
	})
}

// What the instructions say of the network is true.
func TestProgramsReachTheHostsThatAreAllowedOnly(t *testing.T) {
	requireSandboxes(t)
	website(t)
	cs := stdio(t, "--allow", here, "--log", "info")
	tools, err := cs.ListTools(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, tool := range tools.Tools {
		if tool.Name == "execute_code" && (!strings.Contains(tool.Description, "HTTP and HTTPS reach these hosts and nothing else: "+here) || !*tool.Annotations.OpenWorldHint) {
			t.Errorf("described as %s", tool.Description)
		}
	}
	const site = `"http://` + here + `/"`
	for _, r := range []struct{ code, want string }{
		{`r = http_get(` + site + `); print(r["status"], r["headers"]["X-Test"], r["body"])`, "stdout:\n200 yes GET||"},
		{`print(http_post(` + site + `, body="b", content_type="text/x")["body"])`, "stdout:\nPOST|text/x|b"},
		{`print(http_get("http://` + here + `/moved")["status"])`, "stdout:\n302"},
		{`import urllib.request; print(urllib.request.urlopen(` + site + `).status)`, "stdout:\n200"},
		{"try: http_get('http://example.com/')\nexcept PermissionError: print('refused')", "stdout:\nrefused"},
		{"import socket\ntry: socket.create_connection(('" + here + "', 80))\nexcept OSError: print('refused')", "stdout:\nrefused"},
	} {
		wants(t, cs, r.code, r.want)
	}
	if err := cs.Close(); err != nil {
		t.Error(err)
	}

	closed := stdio(t)
	wants(t, closed, "try: http_get("+site+")\nexcept PermissionError: print('refused')", "stdout:\nrefused")
	if err := closed.Close(); err != nil {
		t.Error(err)
	}
	nothingLeft(t)
}
