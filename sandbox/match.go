package sandbox

import (
	"errors"
	"fmt"
	"slices"
)

// Unserved says why a backend with these declarations cannot serve the spec,
// every reason at once, in the order in which the protocol checks them:
// capabilities, egress methods, OS family, transfer limits, egress mode,
// isolation scope. It is nil when it can. Each reason is a [*RefusalError] and
// names the decider. Floors and denials are the router's matter.
func (d Declarations) Unserved(decider string, s Spec) error {
	var problems []error
	refuse := func(reason error, subject, asked, allowed string) {
		problems = append(problems, &RefusalError{Reason: reason, Subject: subject, Asked: asked, Allowed: allowed, Decider: decider})
	}
	if missing := s.RequiredCapabilities().Minus(d.Capabilities); !missing.IsEmpty() {
		refuse(ErrCapabilityNotSupported, "spec.requires", missing.String(), d.Capabilities.String())
	} else if method := d.unknownMethod(s); method != "" {
		refuse(ErrEgressNotEnforced, "spec.egress_allow", "method "+method, fmt.Sprint(d.EgressMethods))
	}
	if family := s.RequiresOSFamily; family != OSUnset && !d.OSFamilies.Has(family) {
		refuse(ErrOSFamilyNotSupported, "spec.requires_os_family", family.String(), d.OSFamilies.String())
	}
	if !s.Limits.FilesIn.Within(d.Limits.FilesIn) {
		refuse(ErrTransferLimitsNotPermitted, "spec.limits.files_in", s.Limits.FilesIn.String(), d.Limits.FilesIn.String())
	}
	if !s.Limits.FilesOut.Within(d.Limits.FilesOut) {
		refuse(ErrTransferLimitsNotPermitted, "spec.limits.files_out", s.Limits.FilesOut.String(), d.Limits.FilesOut.String())
	}
	if !d.EgressModes.Has(s.Egress) {
		refuse(ErrEgressNotEnforced, "spec.egress", s.Egress.String(), d.EgressModes.String())
	}
	if !d.Serves(s.IsolationScope) {
		refuse(ErrScopeNotEnforced, "spec.isolation_scope", s.IsolationScope.String(), d.scopes().String())
	}
	return errors.Join(problems...)
}

func (d Declarations) unknownMethod(s Spec) string {
	for _, rule := range s.EgressAllow {
		for _, method := range rule.Methods {
			if !d.AllowsMethod(method) {
				return method
			}
		}
	}
	return ""
}

func (d Declarations) scopes() Set[IsolationScope] {
	if d.IsolationScopes.IsEmpty() {
		return SetOf(ScopeConversation)
	}
	return d.IsolationScopes
}

// Changed says in what the spec differs from that of a live sandbox, as far as
// the sandbox itself was made by it: network policy, execution contract, image,
// work folder, what tools declare, and identity bounds. It is nil when the
// sandbox may be used as it is; otherwise it is a [*RefusalError] that matches
// [ErrConfigurationChanged].
func (s Spec) Changed(live Spec, decider string) error {
	refuse := func(field string, asked, allowed any) error {
		return &RefusalError{
			Reason: ErrConfigurationChanged, Subject: "spec." + field,
			Asked:   fmt.Sprint(asked),
			Allowed: fmt.Sprintf("what the live sandbox has (%v), until it is disposed", allowed),
			Decider: decider,
		}
	}
	switch rules, had := s.EgressRules(), live.EgressRules(); {
	case s.Egress != live.Egress:
		return refuse("egress", s.Egress, live.Egress)
	case !slices.EqualFunc(rules, had, EgressRule.Equal):
		return refuse("egress_allow", fmt.Sprintf("%d hosts", len(rules)), fmt.Sprintf("%d hosts", len(had)))
	}
	for _, field := range [...]struct{ name, asked, had string }{
		{"execution_contract", s.ExecutionContract, live.ExecutionContract},
		{"image", s.Image, live.Image},
		{"image_id", s.ImageID, live.ImageID},
		{"work_dir", s.WorkDir, live.WorkDir},
	} {
		if field.asked != field.had {
			return refuse(field.name, fmt.Sprintf("%q", cut(field.asked)), fmt.Sprintf("%q", cut(field.had)))
		}
	}
	if !s.HostTools.sameAs(live.HostTools) {
		return refuse("host_tools", s.HostTools, live.HostTools)
	}
	if s.MaxIdentityScope != live.MaxIdentityScope || s.MaxIdentityRetention != live.MaxIdentityRetention {
		return refuse("max_identity_scope", s.MaxIdentityScope, live.MaxIdentityScope)
	}
	return nil
}
