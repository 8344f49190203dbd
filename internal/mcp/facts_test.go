package mcp_test

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/maf-sandbox/maf-sandbox-go/codeact"
	"github.com/maf-sandbox/maf-sandbox-go/internal/mcp"
	"github.com/maf-sandbox/maf-sandbox-go/sandbox"
)

const (
	listTools = `{"jsonrpc":"2.0","id":2,"method":"tools/list"}`
	unknown   = "a stock CPython 3 in a sandbox"
	known     = "a stock CPython 3.13.0 in a sandbox"
)

func TestAListOfToolsWaitsForTheFactsForAWhileOnly(t *testing.T) {
	var there atomic.Bool
	var asked atomic.Int32
	r := newRaw(t, serve(t, memory(), func(c *mcp.Config) {
		c.FactsTime = time.Millisecond
		c.Facts = func(ctx context.Context) sandbox.Facts {
			asked.Add(1)
			if there.Load() {
				return sandbox.Facts{Python: "3.13.0"}
			}
			<-ctx.Done()
			return sandbox.Facts{}
		}
	}))
	r.says(initialize)
	r.send(initialized)
	if got := r.says(listTools); !strings.Contains(got, unknown) {
		t.Errorf("before they are known: %s", got)
	}
	there.Store(true)
	for range 2 { // and then they are not asked for again
		if got := r.says(listTools); !strings.Contains(got, known) || strings.Count(got, `"name":"execute_code"`) != 1 {
			t.Errorf("when they are known: %s", got)
		}
	}
	if asked := asked.Load(); asked != 2 {
		t.Errorf("asked %d times", asked)
	}
	end(t, r)
}

func TestFactsOfTheConfigurationAreNotAskedFor(t *testing.T) {
	r := newRaw(t, serve(t, memory(), func(c *mcp.Config) {
		c.Tool = codeact.Config{Facts: sandbox.Facts{Python: "3.13.0"}}
		c.Facts = func(context.Context) sandbox.Facts {
			t.Error("they are known")
			return sandbox.Facts{}
		}
	}))
	r.says(initialize)
	if got := r.says(listTools); !strings.Contains(got, known) {
		t.Errorf("got %s", got)
	}
	end(t, r)
}

func TestFactsThatCannotBeToldAreLeftOut(t *testing.T) {
	r := newRaw(t, serve(t, memory(), func(c *mcp.Config) {
		c.Facts = func(context.Context) sandbox.Facts { return sandbox.Facts{Python: "\x1b[2J"} }
	}))
	r.says(initialize)
	if got := r.says(listTools); !strings.Contains(got, unknown) {
		t.Errorf("got %s", got)
	}
	end(t, r)
}

func TestAServerEndsThoughAListWaitsForTheFacts(t *testing.T) {
	waiting := make(chan error)
	s := serve(t, memory(), func(c *mcp.Config) {
		c.FactsTime = time.Hour
		c.Facts = func(ctx context.Context) sandbox.Facts {
			close(waiting)
			<-ctx.Done()
			return sandbox.Facts{}
		}
	})
	r := newRaw(t, s)
	r.says(initialize)
	r.send(listTools)
	_ = await(t, waiting)
	go func() {
		for r.lines.Scan() { // whoever reads its answers
		}
	}()
	s.Close()
	_ = await(t, r.ended) // how it ends is the transport's affair
}

// end closes a client's end, and waits for that of its session.
func end(t *testing.T, r *raw) {
	t.Helper()
	_ = r.to.Close()
	if err := await(t, r.ended); err != nil {
		t.Errorf("the session ended with %v", err)
	}
}
