package sandbox

import (
	"slices"
)

// Declarations are what a backend says it offers. The zero value offers
// nothing and therefore serves no spec.
type Declarations struct {
	// Capabilities that its sandboxes have.
	Capabilities Capabilities
	// Limits are the widest transfers it serves; zero fields are the defaults.
	Limits Limits
	// EgressModes that it enforces.
	EgressModes Set[Egress]
	// OSFamilies that its sandboxes look like.
	OSFamilies Set[OSFamily]
	// IsolationScopes that it keeps; the empty set means conversation only.
	IsolationScopes Set[IsolationScope]
	// ObservesEgress says that it reports what sandboxes reached for.
	ObservesEgress bool
	// EgressMethods are the HTTP methods that a rule may name.
	EgressMethods []string
	// AnyEgressMethod lets a rule name every method; EgressMethods is ignored.
	AnyEgressMethod bool
	// AttachedIdentity is the identity that its sandboxes carry.
	AttachedIdentity AttachedIdentity
	// ExclusiveAdmission has calls of one sandbox follow each other, cleanup
	// included, whatever a spec says.
	ExclusiveAdmission bool
}

// Serves says whether the isolation scope is kept.
func (d Declarations) Serves(scope IsolationScope) bool {
	if d.IsolationScopes.IsEmpty() {
		return scope == ScopeConversation
	}
	return d.IsolationScopes.Has(scope)
}

// AllowsMethod says whether an egress rule may name the HTTP method.
func (d Declarations) AllowsMethod(method string) bool {
	return d.AnyEgressMethod || slices.Contains(d.EgressMethods, method)
}
