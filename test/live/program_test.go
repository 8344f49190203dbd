//go:build linux && amd64

package live

import (
	"bytes"
	"context"
	"errors"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/maf-sandbox/maf-sandbox-go/internal/cli"
	"github.com/maf-sandbox/maf-sandbox-go/internal/egress/egresstest"
	"github.com/maf-sandbox/maf-sandbox-go/internal/image"
	"github.com/maf-sandbox/maf-sandbox-go/internal/platform/host/hosttest"
)

// program runs the command line program, which this test program is under its
// name (TestMain), and gives its exit status and what it wrote.
func program(t *testing.T, args ...string) (status int, stdout, stderr string) {
	t.Helper()
	dir, err := cache()
	if errors.Is(err, image.ErrNoPython) {
		t.Skipf("needs a Python: %v", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience(60*time.Second))
	defer cancel()
	c := exec.CommandContext(ctx, self, args...)
	c.Args[0] = cli.Program
	c.Env = append(os.Environ(), cli.CacheEnv+"="+dir)
	var out, errs bytes.Buffer
	c.Stdout, c.Stderr = &out, &errs
	var exit *exec.ExitError
	if err := c.Run(); err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return c.ProcessState.ExitCode(), out.String(), errs.String()
}

// TestTheProgramReachesTheHostsThatItsUserNames runs the command that the README
// shows, against a server.
func TestTheProgramReachesTheHostsThatItsUserNames(t *testing.T) {
	_ = hosttest.Open(t)
	web := newSite(t)
	loopback := netip.MustParseAddr("127.0.0.1")
	serve(t, netip.AddrPortFrom(loopback, 80).String(), web, nil)
	rows := []struct {
		name, flag, url string
		// stderr is what the refusal says; empty for an answer.
		stderr string
	}{
		{"an address", "--allow=" + here, "http://" + here + "/", ""},
		{"without a permission", "", "http://" + here + "/", "PermissionError: [Errno 13] network access is not allowed in this sandbox"},
		{"with another one", "--allow=" + elsewhere, "http://" + here + "/", "PermissionError: [Errno 13] " + here + " is not on this sandbox's list of hosts (" + elsewhere + ")"},
		{"localhost", "--allow-private=localhost", "http://localhost/", ""},
		{"localhost as a public name", "--allow=localhost", "http://localhost/", "PermissionError: [Errno 13] localhost has no public address but one of the kind loopback"},
	}
	if name, addr, found := egresstest.HostsFileName(t, netip.Addr.IsLoopback); found {
		if addr != loopback {
			serve(t, net.JoinHostPort(addr.String(), "80"), web, nil)
		}
		rows = append(rows, rows[3], rows[4])
		for i := range rows[5:] {
			row := &rows[5+i]
			row.name = "a name of the hosts file instead of " + row.name
			for _, text := range []*string{&row.flag, &row.url, &row.stderr} {
				*text = strings.ReplaceAll(*text, "localhost", name)
			}
		}
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			args := []string{"run", "--engine=" + hosttest.Engine(), "-c", `print(http_get("` + row.url + `")["status"])`}
			if row.flag != "" {
				args = append(args, row.flag)
			}
			if name := os.Getenv(imageEnv); name != "" {
				args = append(args, "--image="+name)
			}
			status, stdout, stderr := program(t, args...)
			if row.stderr == "" && (status != 0 || stdout != "200\n") || row.stderr != "" && (status != 1 || stdout != "" || !strings.Contains(stderr, row.stderr)) {
				t.Errorf("exit %d, printed %q, said %s", status, stdout, stderr)
			}
			if hits := web.took(); len(hits) > 0 != (row.stderr == "") {
				t.Errorf("the server was asked %q", hits)
			}
		})
	}
}
