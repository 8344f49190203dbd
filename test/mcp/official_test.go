package mcp

import (
	"os"
	"os/exec"
	"strings"
	"testing"
)

// officialEnv switches the official programs on: npx fetches them.
const officialEnv = "MAF_SANDBOX_MCP_OFFICIAL"

// The official programs, at versions that run on Node.js 20.
const (
	conformance = "@modelcontextprotocol/conformance@0.1.13"
	inspector   = "@modelcontextprotocol/inspector@0.17.2"
)

// npx runs a program of the registry's and gives its output.
func npx(t *testing.T, args ...string) string {
	t.Helper()
	if os.Getenv(officialEnv) == "" {
		t.Skipf("fetches programs: set %s=1", officialEnv)
	}
	if _, err := exec.LookPath("npx"); err != nil {
		t.Skipf("needs npx: %v", err)
	}
	c := exec.CommandContext(t.Context(), "npx", append([]string{"--yes"}, args...)...)
	c.Dir = t.TempDir()
	out, err := c.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %v\n%s", args, err, out)
	}
	return string(out)
}

// The scenarios that need no tools, prompts or resources of the suite's own.
func TestTheOfficialConformanceSuitePasses(t *testing.T) {
	if os.Getenv(officialEnv) == "" {
		t.Skipf("fetches programs: set %s=1", officialEnv)
	}
	address, stop := served(t)
	for _, scenario := range []string{"server-initialize", "ping", "tools-list", "server-sse-multiple-streams", "dns-rebinding-protection"} {
		t.Run(scenario, func(t *testing.T) {
			out := npx(t, conformance, "server", "--url", address, "--scenario", scenario)
			if !strings.Contains(out, ", 0 failed, 0 warnings") || strings.Contains(out, "Passed: 0/0") {
				t.Errorf("got %s", out)
			}
		})
	}
	stop()
	nothingLeft(t)
}

func TestTheOfficialInspectorComputes(t *testing.T) {
	if os.Getenv(officialEnv) == "" {
		t.Skipf("fetches programs: set %s=1", officialEnv)
	}
	requireSandboxes(t)
	program, err := exec.LookPath("maf-sandbox")
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("MAF_SANDBOX_CACHE", cache)
	out := npx(t, inspector, "--cli", "-e", "MAF_SANDBOX_CACHE="+cache, program, "mcp",
		"--method", "tools/call", "--tool-name", "execute_code", "--tool-arg", "code=print(6*7)")
	if !strings.Contains(out, `"text": "stdout:\n42"`) {
		t.Errorf("over standard streams: %s", out)
	}
	address, stop := served(t)
	out = npx(t, inspector, "--cli", address, "--transport", "http", "--method", "tools/call", "--tool-name", "execute_code", "--tool-arg", "code=print(6*7)")
	if !strings.Contains(out, `"text": "stdout:\n42"`) {
		t.Errorf("over HTTP: %s", out)
	}
	stop()
	nothingLeft(t)
}
