package microvm

import (
	"context"

	"github.com/maf-sandbox/maf-sandbox-go/internal/hosttool"
	"github.com/maf-sandbox/maf-sandbox-go/internal/wire"
	"github.com/maf-sandbox/maf-sandbox-go/sandbox"
)

// offer has programs call the tools of a spec from their next run on. The tools
// of a live sandbox and of the spec that acquires it again declare the same; the
// functions are those of the latest, since they may hold what belongs to a
// request of the host.
func (s *Sandbox) offer(spec sandbox.Spec) {
	if spec.HostTools == nil {
		return
	}
	s.tools.Store(hosttool.NewSet(spec.HostTools, s.calls, s.backend.config.Logger))
}

// asking is the context in which what a run asks is answered.
func (s *Sandbox) asking(ctx context.Context, tools *hosttool.Set) context.Context {
	if tools == nil {
		return ctx
	}
	return tools.Context(ctx, sandbox.ToolCaller{Key: s.place.Key, Kind: s.place.Kind, InstanceID: s.ID()})
}

// serve answers what a program asks.
func (s *Sandbox) serve(ctx context.Context, name string, request []byte) wire.Answer {
	if name != hosttool.Name {
		return s.network.serve(ctx, name, request)
	}
	answer, offered := hosttool.Serve(ctx, request)
	return wire.Answer{Payload: answer, Unknown: !offered}
}

// unknownTools says which tools of a spec have no function.
func (b *Backend) unknownTools(spec sandbox.Spec) error {
	h := spec.HostTools
	if h == nil || len(h.Names) == len(h.Tools()) {
		return nil
	}
	return &sandbox.RefusalError{
		Reason: sandbox.ErrNotSupported, Subject: "spec.host_tools", Asked: h.String(),
		Allowed: "tools with their functions, as sandbox.NewHostTools makes them", Decider: b.decider(),
	}
}
