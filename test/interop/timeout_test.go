//go:build unix

package interop

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/maf-sandbox/maf-sandbox-go/control"
)

// get asks a host for what may be no URL.
func get(t *testing.T, m control.Manifest, target string) (status int, body string) {
	t.Helper()
	authority := strings.TrimPrefix(m.Endpoint, "http://")
	conn, err := net.Dial("tcp", authority)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	if err := conn.SetDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(conn, "GET "+target+" HTTP/1.1\r\nHost: "+authority+"\r\nConnection: close\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	response, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatalf("%s: %v", target, err)
	}
	defer func() { _ = response.Body.Close() }()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatalf("%s: %v", target, err)
	}
	return response.StatusCode, string(text)
}

// What is a time-out to one kind of host is one to the other, and what is none is
// refused by both.
func TestHostsOfBothKindsReadTheSameTimeOuts(t *testing.T) {
	eachPeer(t, func(t *testing.T, venv string) {
		dir := shortDir(t)
		serve(t, dir, "host", control.NewMemory())
		ours, err := control.Manifests(dir)
		if err != nil || len(ours) != 1 {
			t.Fatalf("announced %+v, %v", ours, err)
		}
		dir = shortDir(t)
		pythonHost(t, venv, dir, "host", "demo")
		theirs, err := control.Manifests(dir)
		if err != nil || len(theirs) != 1 {
			t.Fatalf("announced %+v, %v", theirs, err)
		}
		for _, query := range []string{
			"", "timeout=5", "timeout=5&a;b", "timeout=+5", "timeout=%20%201_0%20", "timeout=%2B5", "timeout=1e-300", "timeout=1e400", "timeout=inf",
			"timeout=1;timeout=2", "timeout=%zz", "timeout=1%", "timeout=1%3", "timeout=0x5", "timeout=5&timeout=%zz", "timeout=1=2",
			"%74imeout=abc", "%74imeout=5", "%zz=1&timeout=abc", "+timeout=abc", "timeout", "timeout=", "&&timeout=&", "=abc&timeout=2", "Timeout=abc",
			"timeout=-1", "timeout=0", "timeout=1_", "timeout=1e5", "timeout=nan",
		} {
			target := "/v1/health?" + query
			status, body := get(t, ours[0], target)
			if wantStatus, want := get(t, theirs[0], target); status != wantStatus || body != want {
				t.Errorf("%s: we say %d %s, they say %d %s", target, status, body, wantStatus, want)
			}
		}
	})
}
