package router

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/maf-sandbox/maf-sandbox-go/sandbox"
)

// What a configuration gets that does not say otherwise; the originals' values.
const (
	// DefaultMinIsolation is the isolation floor.
	DefaultMinIsolation = sandbox.IsolationMicroVM
	// DefaultMinCleanup is the cleanup floor.
	DefaultMinCleanup = sandbox.CleanupDispose
	// DefaultReclaimTimeout bounds each step of cleaning up.
	DefaultReclaimTimeout = 30 * time.Second
	// DefaultQueueTimeout bounds the wait for each call ahead.
	DefaultQueueTimeout = 120 * time.Second
)

// Config is the host's policy. The zero value has no backend: such a router is
// not enabled and refuses everything.
type Config struct {
	// Backends in the order of preference. All of them are asked when a key or
	// a conversation is disposed of, also those that serve nothing.
	Backends []sandbox.Backend
	// Selection says which of them serves a spec.
	Selection Selection
	// Selected is the name of the backend that serves, with SelectFixed; the
	// first one when empty.
	Selected string

	// MinIsolation is the weakest isolation that is good enough; unset means
	// DefaultMinIsolation. A spec can ask for more, never for less.
	MinIsolation sandbox.Isolation
	// MinIsolationScope is the widest sharing that is good enough.
	MinIsolationScope sandbox.IsolationScope
	// MinCleanup is the least that happens to a sandbox after a call; unset
	// means DefaultMinCleanup. A spec can ask for more, never for less.
	MinCleanup sandbox.Cleanup
	// MaxIdentityScope bounds how widely an identity that a backend attaches
	// to its sandboxes may be shared; zero allows none.
	MaxIdentityScope sandbox.IdentityScope
	// DeniedCapabilities are refused whatever a backend offers.
	DeniedCapabilities sandbox.Capabilities
	// DeniedIdentities are refused as whom a sandbox acts.
	DeniedIdentities sandbox.Set[sandbox.Identity]

	// Reclaim says how calls are cleaned up.
	Reclaim ReclaimConfig
	// QueueTimeout bounds how long a call waits for each call ahead of it, the
	// cleanup included; zero means DefaultQueueTimeout.
	QueueTimeout time.Duration

	// Observer is told what happens; nil for nobody.
	Observer Observer
}

// ReclaimConfig says how sandboxes are cleaned up after calls.
type ReclaimConfig struct {
	// Timeout bounds each step, a reset or a disposal; zero means
	// DefaultReclaimTimeout. It counts whether or not the caller gave up.
	Timeout time.Duration
	// Policy is what becomes of a sandbox that could not be cleaned.
	Policy ReclaimPolicy
	// OnFailure, if set, is called after each cleanup that did not go as it
	// should, when everything is done. Its context is the call's without its
	// cancellation.
	OnFailure func(ctx context.Context, failure *CleanupError)
}

// The deciders of refusals.
const (
	usage     = "package router"
	hostFloor = "the host's policy, by router.Config."
)

func misuse(subject, asked, allowed string) *sandbox.RefusalError {
	return &sandbox.RefusalError{Reason: sandbox.ErrInvalid, Subject: subject, Asked: asked, Allowed: allowed, Decider: usage}
}

// orDefaults puts the defaults in place of zeros and copies the lists.
func (c Config) orDefaults() Config {
	c.Backends = slices.Clone(c.Backends)
	if c.MinIsolation == sandbox.IsolationUnset {
		c.MinIsolation = DefaultMinIsolation
	}
	if c.MinCleanup == sandbox.CleanupUnset {
		c.MinCleanup = DefaultMinCleanup
	}
	if c.Reclaim.Timeout == 0 {
		c.Reclaim.Timeout = DefaultReclaimTimeout
	}
	if c.QueueTimeout == 0 {
		c.QueueTimeout = DefaultQueueTimeout
	}
	return c
}

// validate reports every problem that has nothing to do with a backend.
func (c Config) validate() error {
	var problems []error
	check := func(field string, word interface{ MarshalText() ([]byte, error) }) {
		if _, err := word.MarshalText(); err != nil {
			problems = append(problems, fmt.Errorf("config.%s: %w", field, err))
		}
	}
	check("Selection", c.Selection)
	check("MinIsolation", c.MinIsolation)
	check("MinIsolationScope", c.MinIsolationScope)
	check("MinCleanup", c.MinCleanup)
	check("MaxIdentityScope", c.MaxIdentityScope)
	check("Reclaim.Policy", c.Reclaim.Policy)
	for _, capability := range c.DeniedCapabilities.Members() {
		check("DeniedCapabilities", capability)
	}
	for _, identity := range c.DeniedIdentities.Members() {
		check("DeniedIdentities", identity)
	}
	for _, bound := range [...]struct {
		field string
		value time.Duration
	}{{"Reclaim.Timeout", c.Reclaim.Timeout}, {"QueueTimeout", c.QueueTimeout}} {
		if bound.value < 0 {
			problems = append(problems, misuse("config."+bound.field, bound.value.String(), "zero for the default, or more"))
		}
	}
	if c.Selection == SelectPerSpec && c.Selected != "" {
		problems = append(problems, misuse("config.Selected", fmt.Sprintf("%q with selection per_spec", c.Selected),
			"a name with selection fixed only: with per_spec the order of the backends is the preference"))
	}
	return errors.Join(problems...)
}

// provider is a registered backend with what it declared. Declarations are the
// same at every call, so that they are read once.
type provider struct {
	backend   sandbox.Backend
	name      string
	isolation sandbox.Isolation
	declares  sandbox.Declarations
	admitter  CallAdmitter // nil for none
}

func (p *provider) has(c sandbox.Capability) bool { return p.declares.Capabilities.Has(c) }

func (p *provider) decider() string { return "backend " + p.name }

// register reads every backend once and reports what is wrong with any.
func register(backends []sandbox.Backend) ([]*provider, error) {
	var problems []error
	providers := make([]*provider, 0, len(backends))
	for i, backend := range backends {
		subject := fmt.Sprintf("config.Backends[%d]", i)
		if backend == nil {
			problems = append(problems, misuse(subject, "nil", "a backend"))
			continue
		}
		p := &provider{
			backend: backend, name: backend.Name(), isolation: backend.Isolation(), declares: backend.Declarations(),
			admitter: admitterOf(backend),
		}
		p.declares.EgressMethods = slices.Clone(p.declares.EgressMethods)
		named := slices.ContainsFunc(providers, func(other *provider) bool { return other.name == p.name })
		switch {
		case strings.TrimSpace(p.name) == "":
			problems = append(problems, misuse(subject+".Name", fmt.Sprintf("%q", p.name), "a name that is not blank"))
		case named:
			problems = append(problems, misuse(subject+".Name", fmt.Sprintf("%q again", p.name), "each name once"))
		}
		// A number beyond the ladder would otherwise meet every floor.
		if _, err := p.isolation.MarshalText(); err != nil {
			problems = append(problems, fmt.Errorf("%s.Isolation: %w", subject, err))
		}
		if _, err := p.declares.AttachedIdentity.Scope.MarshalText(); err != nil {
			problems = append(problems, fmt.Errorf("%s.Declarations.AttachedIdentity.Scope: %w", subject, err))
		}
		if err := p.declares.Limits.Validate(); err != nil {
			problems = append(problems, fmt.Errorf("%s.Declarations: %w", subject, err))
		}
		providers = append(providers, p)
	}
	return providers, errors.Join(problems...)
}

// candidates are the providers that may serve, in the order of preference.
func (c Config) candidates(providers []*provider) ([]*provider, error) {
	if c.Selection == SelectPerSpec {
		return c.eligible(providers)
	}
	if len(providers) == 0 && c.Selected == "" {
		return nil, nil
	}
	chosen := 0
	if c.Selected != "" {
		chosen = slices.IndexFunc(providers, func(p *provider) bool { return p.name == c.Selected })
	}
	if chosen < 0 {
		return nil, &sandbox.RefusalError{
			Reason: sandbox.ErrNoBackend, Subject: "config.Selected", Asked: fmt.Sprintf("%q", c.Selected),
			Allowed: "one of: " + names(providers), Decider: usage,
		}
	}
	if err := c.refuseFloors(providers[chosen], c.MinIsolation); err != nil {
		return nil, err
	}
	return providers[chosen : chosen+1], nil
}

// eligible are all providers, if at least one of them can serve anything: a
// host where none can should not start as if it could.
func (c Config) eligible(providers []*provider) ([]*provider, error) {
	var refusals []error
	for _, p := range providers {
		if err := c.refuseFloors(p, c.MinIsolation); err != nil {
			refusals = append(refusals, err)
		}
	}
	if len(providers) > 0 && len(refusals) == len(providers) {
		return nil, errors.Join(refusals...)
	}
	return providers, nil
}

// refuseFloors says why a provider is below what the host accepts.
func (c Config) refuseFloors(p *provider, isolation sandbox.Isolation) error {
	var problems []error
	if scope := p.declares.AttachedIdentity.Scope; scope > c.MaxIdentityScope {
		problems = append(problems, &sandbox.RefusalError{
			Reason: sandbox.ErrAttachedIdentityNotPermitted, Subject: "the identity attached by backend " + p.name,
			Asked: scope.String(), Allowed: "at most " + c.MaxIdentityScope.String(), Decider: hostFloor + "MaxIdentityScope",
		})
	}
	if !p.isolation.Meets(isolation) {
		decider := hostFloor + "MinIsolation"
		if isolation > c.MinIsolation {
			decider = "the spec, by its min_isolation"
		}
		problems = append(problems, &sandbox.RefusalError{
			Reason: sandbox.ErrIsolationNotPermitted, Subject: "the isolation of backend " + p.name,
			Asked: wordOr(p.isolation.String(), "none declared, as by a backend that can run nothing on this machine (its Acquire says why)"), Allowed: "at least " + isolation.String(), Decider: decider,
		})
	}
	return errors.Join(problems...)
}

func wordOr(word, instead string) string {
	if word == "" {
		return instead
	}
	return word
}

func names(providers []*provider) string {
	list := make([]string, len(providers))
	for i, p := range providers {
		list[i] = p.name
	}
	return wordOr(strings.Join(list, ", "), "none registered")
}
