package mcp

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/maf-sandbox/maf-sandbox-go/internal/platform/host"
	"github.com/maf-sandbox/maf-sandbox-go/internal/platform/host/hosttest"
)

// officialEnv names a folder in which npm has installed the official programs:
// ./check does so.
const officialEnv = "MAF_SANDBOX_MCP_OFFICIAL"

// official gives what runs one of the official programs and returns its output.
func official(t *testing.T, program string) func(t *testing.T, args ...string) string {
	t.Helper()
	dir := os.Getenv(officialEnv)
	if dir == "" {
		t.Skipf("needs the official programs, which ./check fetches, in a folder that %s names", officialEnv)
	}
	return func(t *testing.T, args ...string) string {
		t.Helper()
		c := exec.CommandContext(t.Context(), filepath.Join(dir, "node_modules", ".bin", program), args...)
		c.Dir = t.TempDir()
		out, err := c.CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %v\n%s", args, err, out)
		}
		return string(out)
	}
}

// The scenarios that need no tools, prompts or resources of the suite's own.
func TestTheOfficialConformanceSuitePasses(t *testing.T) {
	conformance := official(t, "conformance")
	address, stop := served(t)
	for _, scenario := range []string{"server-initialize", "ping", "tools-list", "server-sse-multiple-streams", "dns-rebinding-protection"} {
		t.Run(scenario, func(t *testing.T) {
			out := conformance(t, "server", "--url", address, "--scenario", scenario)
			if !strings.Contains(out, ", 0 failed, 0 warnings") || strings.Contains(out, "Passed: 0/0") {
				t.Errorf("got %s", out)
			}
		})
	}
	stop()
	nothingLeft(t)
}

func TestTheOfficialInspectorComputes(t *testing.T) {
	inspector := official(t, "mcp-inspector")
	requireSandboxes(t)
	program, err := exec.LookPath("maf-sandbox")
	if err != nil {
		t.Fatal(err)
	}
	t.Run("over standard streams", func(t *testing.T) {
		if hosttest.Engine() != host.KVM {
			t.Skipf("needs KVM: the inspector takes options of ours for its own, and the tests run on %s", hosttest.Engine())
		}
		out := inspector(t, "--cli", "-e", "MAF_SANDBOX_CACHE="+cache, program, "mcp",
			"--method", "tools/call", "--tool-name", "execute_code", "--tool-arg", "code=print(6*7)")
		if !strings.Contains(out, `"text": "stdout:\n42"`) {
			t.Errorf("got %s", out)
		}
	})
	address, stop := served(t)
	out := inspector(t, "--cli", address, "--transport", "http", "--method", "tools/call", "--tool-name", "execute_code", "--tool-arg", "code=print(6*7)")
	if !strings.Contains(out, `"text": "stdout:\n42"`) {
		t.Errorf("over HTTP: %s", out)
	}
	stop()
	nothingLeft(t)
}
