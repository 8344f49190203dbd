package mcp_test

import (
	"slices"
	"sync"
	"testing"

	"github.com/maf-sandbox/maf-sandbox-go/codeact"
	"github.com/maf-sandbox/maf-sandbox-go/internal/mcp"
	"github.com/maf-sandbox/maf-sandbox-go/router"
	"github.com/maf-sandbox/maf-sandbox-go/sandbox"
)

func TestTheRoutersObserverHearsOfToolCalls(t *testing.T) {
	for name, keep := range map[string]bool{"with names that stay": true, "anew each time": false} {
		t.Run(name, func(t *testing.T) {
			b := memory()
			var mu sync.Mutex
			var failures []string
			r, err := router.New(router.Config{
				Backends: []sandbox.Backend{b}, MinCleanup: sandbox.CleanupReset,
				Observer: router.ObserverFunc(func(e router.Event) {
					mu.Lock()
					defer mu.Unlock()
					if ended, ok := e.(router.ToolCallEnded); ok && ended.Tool == codeact.Name && ended.Key.ThreadID != "" && ended.Duration > 0 {
						failures = append(failures, ended.Failure)
					}
				}),
			})
			if err != nil {
				t.Fatal(err)
			}
			cs, _ := connect(t, serve(t, b, func(c *mcp.Config) { c.Router, c.KeepState = r, keep }), nil)
			run(t, cs, `print "x"`)
			run(t, cs, "no such word")
			run(t, cs, "")
			mu.Lock()
			defer mu.Unlock()
			if !slices.Equal(failures, []string{"", "", ""}) {
				t.Errorf("the observer heard of %q", failures)
			}
		})
	}
}
