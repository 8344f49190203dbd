package sandbox

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"
)

// DefaultWorkDir is the work folder of [DefaultSpec].
const DefaultWorkDir = "/maf-sandbox/work"

// Bounds of a spec's lists, so that a mistake does not become a memory problem.
const (
	// MaxEgressRules bounds the rules of one spec; backends may allow fewer.
	MaxEgressRules = 4096
	// MaxDeclaredOutputs bounds the outputs of one spec.
	MaxDeclaredOutputs = 1024
	// MaxLabels bounds the labels of one spec.
	MaxLabels = 256
)

// Spec says what a sandbox must be. Besides a kind, the zero value asks for
// nothing: no capability, no network, no floor, no folder.
//
// Use a literal for what you need, or start from [DefaultSpec]. Validate, which
// backends and the router call first, reports everything that is wrong.
type Spec struct {
	// Kind is the sort of sandbox within a key, such as "codeact". A key has
	// at most one live sandbox of each kind.
	Kind string
	// Image names what the sandbox is made of, in the backend's terms; empty
	// means the backend's own choice.
	Image string
	// ImageID pins the image's content.
	ImageID string

	// Egress is what may be reached; zero is closed.
	Egress Egress
	// EgressAllow are the hosts, with EgressAllowlist only.
	EgressAllow []EgressRule

	// WorkDir is the folder of a call's files in the sandbox; empty for none.
	WorkDir string
	// Labels are the host's own notes, for operators.
	Labels map[string]string

	// Requires are the capabilities that are needed.
	Requires Capabilities
	// MinIsolation is the floor that this spec adds to the host's.
	MinIsolation Isolation
	// RequiresOSFamily is the family that programs are written for.
	RequiresOSFamily OSFamily
	// HostTools are the tools that programs may call; needs CapHostTools. The
	// functions behind them are those of the spec of the latest acquire.
	HostTools *HostTools

	// Limits bound the files in and out; zero fields are the defaults.
	Limits Limits
	// DeclaredOutputs are the files that programs leave.
	DeclaredOutputs []DeclaredOutput
	// OutputsNamedAtCallTime says that a call names its outputs itself.
	OutputsNamedAtCallTime bool

	// IsolationScope is how long the sandbox may be shared.
	IsolationScope IsolationScope
	// ConfinedToGuestCallPath says that a call's files stay under a folder of
	// its own.
	ConfinedToGuestCallPath bool
	// MinCleanup is the floor that this spec adds to the host's.
	MinCleanup Cleanup
	// ExclusiveAdmission lets one call in at a time.
	ExclusiveAdmission bool

	// MaxIdentityScope bounds who may share an attached identity; needs
	// CapAttachedIdentity.
	MaxIdentityScope IdentityScope
	// MaxIdentityRetention bounds how long it may outlive the sandbox; zero
	// for no bound.
	MaxIdentityRetention time.Duration

	// ExecutionContract is an opaque text that stands for what programs are
	// told about the sandbox. A live sandbox is never used under another one.
	ExecutionContract string
}

// DefaultSpec is a spec with the protocol's defaults: it requires exec and
// files_in and has a work folder.
func DefaultSpec(kind string) Spec {
	return Spec{Kind: kind, WorkDir: DefaultWorkDir, Requires: DefaultCapabilities()}
}

// RequiredCapabilities are the capabilities in Requires and those that other
// fields imply: a rule that names methods needs CapEgressMethods.
func (s Spec) RequiredCapabilities() Capabilities {
	for _, rule := range s.EgressAllow {
		if rule.Methods != nil {
			return s.Requires.With(CapEgressMethods)
		}
	}
	return s.Requires
}

// Identities are on whose behalf the sandbox acts, by its rules and tools.
func (s Spec) Identities() Set[Identity] {
	var identities Set[Identity]
	for _, rule := range s.EgressAllow {
		if rule.Authority != IdentityUnset {
			identities = identities.With(rule.Authority)
		}
	}
	if s.HostTools != nil {
		identities = identities.Union(s.HostTools.Identities)
	}
	return identities
}

// AuthorityChannels are the ways by which rules let authority out.
func (s Spec) AuthorityChannels() Set[AuthorityChannel] {
	for _, rule := range s.EgressAllow {
		if rule.Authority != IdentityUnset {
			return SetOf(ChannelEgressHeader)
		}
	}
	return Set[AuthorityChannel]{}
}

// EgressRules are the rules sorted by host, each host once. Precondition:
// Validate found nothing.
func (s Spec) EgressRules() []EgressRule {
	rules, _ := foldRules(s.EgressAllow)
	return rules
}

// Clone copies the spec with its lists and maps, for whoever keeps it.
func (s Spec) Clone() Spec {
	s.EgressAllow = slices.Clone(s.EgressAllow)
	for i := range s.EgressAllow {
		s.EgressAllow[i].Methods = slices.Clone(s.EgressAllow[i].Methods)
	}
	s.Labels = maps.Clone(s.Labels)
	s.DeclaredOutputs = slices.Clone(s.DeclaredOutputs)
	s.HostTools = s.HostTools.clone()
	return s
}

// Validate reports every problem of the spec, joined: each is a
// [*RefusalError] that matches [ErrInvalid] and names its field.
func (s Spec) Validate() error {
	var problems []error
	add := func(err error) {
		if err != nil {
			problems = append(problems, err)
		}
	}
	add(checkName("spec.kind", s.Kind, true))
	add(checkName("spec.image", s.Image, false))
	add(checkName("spec.image_id", s.ImageID, false))
	add(checkName("spec.execution_contract", s.ExecutionContract, false))
	if s.WorkDir != "" {
		add(checkPath("spec.work_dir", s.WorkDir))
	}
	add(s.validateWords())
	add(s.validateEgress())
	add(s.validateCapabilities())
	add(s.HostTools.validate())
	add(s.validateLists())
	add(s.Limits.Validate())
	return errors.Join(problems...)
}

func (s Spec) validateWords() error {
	var problems []error
	for _, field := range []struct {
		name  string
		words *words
		value uint8
	}{
		{"egress", &egressWords, uint8(s.Egress)},
		{"min_isolation", &isolationWords, uint8(s.MinIsolation)},
		{"requires_os_family", &osWords, uint8(s.RequiresOSFamily)},
		{"isolation_scope", &scopeWords, uint8(s.IsolationScope)},
		{"min_cleanup", &cleanupWords, uint8(s.MinCleanup)},
		{"max_identity_scope", &identityScopeWords, uint8(s.MaxIdentityScope)},
	} {
		if !field.words.has(field.value) {
			problems = append(problems, invalid("spec."+field.name, field.words.text(field.value), "a word of the protocol"))
		}
	}
	for _, capability := range s.Requires.Members() {
		if !capabilityWords.has(uint8(capability)) {
			problems = append(problems, invalid("spec.requires", capability.String(), "a capability of the protocol"))
		}
	}
	return errors.Join(problems...)
}

func (s Spec) validateEgress() error {
	if len(s.EgressAllow) > MaxEgressRules {
		return invalid("spec.egress_allow", fmt.Sprintf("%d rules", len(s.EgressAllow)), fmt.Sprintf("up to %d", MaxEgressRules))
	}
	var problems []error
	if s.Egress != EgressAllowlist && len(s.EgressAllow) > 0 {
		problems = append(problems, invalid("spec.egress_allow",
			fmt.Sprintf("%d rules with egress %s", len(s.EgressAllow), s.Egress), "rules with egress allowlist only"))
	}
	for i, rule := range s.EgressAllow {
		if err := rule.validate(fmt.Sprintf("spec.egress_allow[%d]", i)); err != nil {
			problems = append(problems, err)
		}
	}
	if _, err := foldRules(s.EgressAllow); err != nil {
		problems = append(problems, err)
	}
	return errors.Join(problems...)
}

func (s Spec) validateCapabilities() error {
	var problems []error
	refuse := func(field, asked, allowed string) {
		problems = append(problems, invalid("spec."+field, asked, allowed))
	}
	if s.Requires.Has(CapReclaim) {
		refuse("requires", CapReclaim.String(), "a cleanup floor instead: how to clean up is the host's choice")
	}
	if s.HostTools != nil && !s.Requires.Has(CapHostTools) {
		refuse("host_tools", "tools without the capability host_tools", "tools together with the capability")
	}
	bounded := s.MaxIdentityScope != IdentityNone || s.MaxIdentityRetention != 0
	identity := s.Requires.Has(CapAttachedIdentity)
	switch {
	case bounded && !identity:
		refuse("max_identity_scope", "identity bounds without the capability attached_identity", "bounds together with the capability")
	case identity && s.MaxIdentityScope == IdentityNone:
		refuse("max_identity_scope", "the capability attached_identity without a bound", "a bound on who shares the identity")
	}
	if s.MaxIdentityRetention < 0 {
		refuse("max_identity_retention_seconds", s.MaxIdentityRetention.String(), "zero or more")
	}
	return errors.Join(problems...)
}

func (s Spec) validateLists() error {
	var problems []error
	if len(s.Labels) > MaxLabels {
		problems = append(problems, invalid("spec.labels", fmt.Sprintf("%d labels", len(s.Labels)), fmt.Sprintf("up to %d", MaxLabels)))
	}
	if len(s.DeclaredOutputs) > MaxDeclaredOutputs {
		return errors.Join(append(problems, invalid("spec.declared_outputs",
			fmt.Sprintf("%d outputs", len(s.DeclaredOutputs)), fmt.Sprintf("up to %d", MaxDeclaredOutputs)))...)
	}
	for i, output := range s.DeclaredOutputs {
		if err := output.validate(fmt.Sprintf("spec.declared_outputs[%d]", i)); err != nil {
			problems = append(problems, err)
		}
	}
	return errors.Join(problems...)
}
