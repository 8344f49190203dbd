package router

import (
	"errors"

	"github.com/maf-sandbox/maf-sandbox-go/sandbox"
)

// Router decides which backend serves a spec, keeps calls of one sandbox apart,
// and cleans up after them. It starts no goroutine and holds nothing to close;
// its backends stay the host's to close. All methods may be called at the same
// time.
type Router struct {
	config     Config
	providers  []*provider // every backend
	candidates []*provider // those that may serve

	admission admission
	// acquires has one acquire, or one cleanup, of a sandbox at a time;
	// disposals one disposal of a key at a time. Who holds a turn of acquires
	// may wait for one of disposals, never the other way round.
	acquires  turns[place]
	disposals turns[sandbox.Key]

	known  instances
	ledger ledger
}

// place is where at most one sandbox of a backend lives.
type place struct {
	key  sandbox.Key
	kind string
}

// New makes a router. It reports every problem of the configuration at once:
// problems of usage match sandbox.ErrInvalid, a backend below a floor matches
// sandbox.ErrNotPermitted, and a selected name that nobody has
// sandbox.ErrNoBackend.
func New(config Config) (*Router, error) {
	config = config.orDefaults()
	providers, unregistered := register(config.Backends)
	var candidates []*provider
	var unfit error
	if unregistered == nil {
		candidates, unfit = config.candidates(providers)
	}
	if err := errors.Join(config.validate(), unregistered, unfit); err != nil {
		return nil, err
	}
	r := &Router{config: config, providers: providers, candidates: candidates}
	// Last, since this changes the backends: a router that was refused must
	// not be the one they report to.
	r.observeEgress()
	return r, nil
}

// Enabled says whether the router has a backend at all. Hosts that can do
// without a sandbox ask before they offer its tools.
func (r *Router) Enabled() bool { return len(r.candidates) > 0 }

// EnsureCanServe says why the spec cannot be served; nil when it can. Nothing
// is started. The order is: the spec itself, denied capabilities, denied
// identities; then for each backend attached identity, isolation floor,
// capabilities, egress methods, OS family, transfer limits, egress mode and
// isolation scope. Everything that one party refuses is reported at once.
func (r *Router) EnsureCanServe(spec sandbox.Spec) error {
	_, err := r.route(spec)
	return err
}

// BackendFor is the backend that would serve the spec, or the refusal that
// EnsureCanServe gives. The answer depends on the spec alone.
func (r *Router) BackendFor(spec sandbox.Spec) (sandbox.Backend, error) {
	p, err := r.route(spec)
	if err != nil {
		return nil, err
	}
	return p.backend, nil
}

// EffectiveIsolationScope is the narrower of the host's and the spec's.
func (r *Router) EffectiveIsolationScope(spec sandbox.Spec) sandbox.IsolationScope {
	return max(r.config.MinIsolationScope, spec.IsolationScope)
}

// EffectiveCleanup is what happens to a sandbox of the spec after a call:
// dispose for a sandbox of its own for each call, else the weakest rung that
// the backend has and that is not below the host's and the spec's floor. A
// spec that cannot be served is refused as by EnsureCanServe.
func (r *Router) EffectiveCleanup(spec sandbox.Spec) (sandbox.Cleanup, error) {
	p, err := r.route(spec)
	if err != nil {
		return sandbox.CleanupUnset, err
	}
	return r.rung(p, spec), nil
}
