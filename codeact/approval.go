package codeact

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
// before whether it will. This package asks nobody; the framework does.
func (t *Tool) ApprovalMode() ApprovalMode {
	if t.ApprovalRequired() {
		return ApprovalAlways
	}
	return ApprovalNever
}

// ApprovalRequired says the same as ApprovalMode, as Microsoft Agent Framework for
// Go asks for it.
func (t *Tool) ApprovalRequired() bool {
	return t.spec.HostTools != nil && t.spec.HostTools.RequiresApproval
}
