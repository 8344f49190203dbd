package codeact

import "context"

// FuncTool is how frameworks know a tool: the interface of that name of Microsoft
// Agent Framework for Go.
type FuncTool interface {
	Name() string
	Description() string
	Schema() any
	ReturnSchema() any
	Call(ctx context.Context, args string) (any, error)
}

// ApprovalMode is whether a person must agree before a program runs, in the words
// of Microsoft Agent Framework.
type ApprovalMode string

// The modes.
const (
	// ApprovalNever: nobody is asked.
	ApprovalNever ApprovalMode = "never_require"
	// ApprovalAlways: somebody is asked before every call.
	ApprovalAlways ApprovalMode = "always_require"
)

// ApprovalMode is ApprovalAlways when one of the host's tools acts for the user
// or asks for approval itself: the program is what calls it, and nobody knows
// before whether it will. This package asks nobody; [Tools] gives frameworks a
// tool that says so.
func (t *Tool) ApprovalMode() ApprovalMode {
	if t.spec.HostTools != nil && t.spec.HostTools.RequiresApproval {
		return ApprovalAlways
	}
	return ApprovalNever
}

// ApprovalTool is a tool whose framework must ask a person before it calls it.
type ApprovalTool struct{ *Tool }

// ApprovalRequired marks the tool, as Microsoft Agent Framework for Go wants it.
func (*ApprovalTool) ApprovalRequired() {}

var (
	_ FuncTool = (*Tool)(nil)
	_ FuncTool = (*ApprovalTool)(nil)
)
