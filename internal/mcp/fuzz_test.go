package mcp_test

import (
	"io"
	"strings"
	"testing"

	"github.com/maf-sandbox/maf-sandbox-go/codeact"
	"github.com/maf-sandbox/maf-sandbox-go/internal/mcp"
	"github.com/maf-sandbox/maf-sandbox-go/router"
	"github.com/maf-sandbox/maf-sandbox-go/sandbox"
)

// Whatever a client writes, its session ends with its input, and nothing is
// left.
func FuzzStreams(f *testing.F) {
	for _, seed := range []string{
		initialize, initialize + "\n" + initialized,
		`{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"execute_code","arguments":{"code":"print \"x\""},"_meta":{"progressToken":1}}}`,
		`{"jsonrpc":"2.0","id":"3","method":"tools/call","params":{"name":"reset_sandbox","arguments":[]}}`,
		`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":2}}`,
		`{"jsonrpc":"2.0","id":2,"result":{}}`, `[]`, `[{}]`, "\x00", `{"jsonrpc":"2.0","id":4,"method":"server/discover"}`, `{"id":null}`,
	} {
		f.Add(seed)
	}
	b := memory()
	r, err := router.New(router.Config{Backends: []sandbox.Backend{b}, MinCleanup: sandbox.CleanupReset})
	if err != nil {
		f.Fatal(err)
	}
	s, err := mcp.New(mcp.Config{Router: r, KeepState: true, Tool: codeact.Config{Timeout: patience}})
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, input string) {
		if strings.Contains(input, "forever") || strings.Contains(input, "sleep") {
			t.Skip("it would only take time")
		}
		if err := s.ServeStreams(t.Context(), strings.NewReader(initialize+"\n"+initialized+"\n"+input), io.Discard); err != nil {
			t.Errorf("the session ended before its input: %v", err)
		}
		if left := b.Registered(); left != 0 {
			t.Errorf("%d sandboxes are left", left)
		}
	})
}
