package router

import (
	"context"
	"encoding/json"
	"sync"
	"time"

	"github.com/maf-sandbox/maf-sandbox-go/sandbox"
)

// told is the spec for a backend, with tools whose calls the observer hears of.
func (r *Router) told(spec sandbox.Spec, p *provider) sandbox.Spec {
	if r.config.Observer == nil || spec.HostTools == nil {
		return spec
	}
	spec.HostTools = spec.HostTools.Decorated(func(t sandbox.Tool) sandbox.ToolFunc {
		return func(ctx context.Context, arguments json.RawMessage) (any, error) {
			return r.callTool(ctx, arguments, t, p)
		}
	})
	return spec
}

// callTool calls the tool and tells the observer, once: when it has ended or when
// its context has, which is when nobody waits any more.
func (r *Router) callTool(ctx context.Context, arguments json.RawMessage, t sandbox.Tool, p *provider) (result any, err error) {
	event := HostToolCalled{Backend: p.name, Tool: t.Name, Outcome: ToolPanicked}
	event.ToolCaller, _ = sandbox.ToolCallerOf(ctx)
	started := time.Now()
	var once sync.Once
	tell := func(outcome ToolOutcome) {
		once.Do(func() {
			event.Outcome, event.Duration = outcome, time.Since(started)
			r.observe(event)
		})
	}
	// A panic goes on to the backend, which keeps it from the program.
	outcome := ToolPanicked
	defer func() { tell(outcome) }()
	defer context.AfterFunc(ctx, func() {
		// Nobody is above this goroutine: an observer's panic would end the host.
		defer func() { _ = recover() }()
		tell(ToolAbandoned)
	})()
	result, err = t.Call(ctx, arguments)
	switch {
	case ctx.Err() != nil:
		outcome = ToolAbandoned
	case err != nil:
		outcome = ToolFailed
	default:
		outcome = ToolReturned
	}
	return result, err
}
