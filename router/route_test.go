package router_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/maf-sandbox/maf-sandbox-go/router"
	"github.com/maf-sandbox/maf-sandbox-go/sandbox"
)

func TestSpecsAreRefusedWithWhatWasAskedWhatIsAllowedAndWhoDecides(t *testing.T) {
	spec := func(change func(*sandbox.Spec)) sandbox.Spec {
		s := pythonSpec
		change(&s)
		return s
	}
	host := sandbox.MustHost("api.example.com")
	attached := declared(sandbox.CapAttachedIdentity)
	attached.AttachedIdentity = sandbox.AttachedIdentity{Scope: sandbox.IdentityPerScope, AutoDelete: time.Hour}
	immortal, leaving := attached, attached
	immortal.AttachedIdentity.AutoDelete = 0
	leaving.AttachedIdentity.Channels = sandbox.SetOf(sandbox.ChannelEgressHeader)
	attachedFor := func(scope sandbox.IdentityScope, retention time.Duration) sandbox.Spec {
		return spec(func(s *sandbox.Spec) {
			s.Requires = s.Requires.With(sandbox.CapAttachedIdentity)
			s.MaxIdentityScope, s.MaxIdentityRetention = scope, retention
		})
	}
	conversations := declared()
	conversations.IsolationScopes = sandbox.Set[sandbox.IsolationScope]{}
	methods := declared(sandbox.CapEgressMethods)
	methods.EgressMethods = []string{"GET"}

	for name, row := range map[string]struct {
		config   router.Config
		declares sandbox.Declarations
		spec     sandbox.Spec
		want     error
		says     []string
	}{
		"the spec itself": {
			spec: sandbox.Spec{}, declares: declared(), want: sandbox.ErrInvalid, says: []string{"spec.kind"},
		},
		"a denied capability, though the backend has it": {
			config: router.Config{DeniedCapabilities: sandbox.SetOf(sandbox.CapRunCode)}, declares: declared(), spec: pythonSpec,
			want: sandbox.ErrCapabilityDenied, says: []string{"asked for run_code", "everything but run_code", "Config.DeniedCapabilities"},
		},
		"a capability denied that only a rule implies": {
			config:   router.Config{DeniedCapabilities: sandbox.SetOf(sandbox.CapEgressMethods)},
			declares: methods,
			spec: spec(func(s *sandbox.Spec) {
				s.Egress, s.EgressAllow = sandbox.EgressAllowlist, []sandbox.EgressRule{{Host: host, Methods: []string{"GET"}}}
			}),
			want: sandbox.ErrCapabilityDenied, says: []string{"egress_methods"},
		},
		"a denied identity": {
			config: router.Config{DeniedIdentities: sandbox.SetOf(sandbox.IdentityUser)}, declares: declared(),
			spec: spec(func(s *sandbox.Spec) {
				s.Egress, s.EgressAllow = sandbox.EgressAllowlist, []sandbox.EgressRule{{Host: host, Authority: sandbox.IdentityUser}}
			}),
			want: sandbox.ErrIdentityDenied, says: []string{"asked for user", "Config.DeniedIdentities"},
		},
		"an identity that was not asked for": {
			config: router.Config{MaxIdentityScope: sandbox.IdentityShared}, declares: attached, spec: pythonSpec,
			want: sandbox.ErrAttachedIdentityNotPermitted, says: []string{"none unless attached_identity is required"},
		},
		"an identity shared more widely than the spec allows": {
			config: router.Config{MaxIdentityScope: sandbox.IdentityShared}, declares: attached,
			spec: attachedFor(sandbox.IdentityPerSandbox, 0),
			want: sandbox.ErrAttachedIdentityNotPermitted, says: []string{"asked for per_scope", "at most per_sandbox"},
		},
		"an identity that lives longer than the spec allows": {
			config: router.Config{MaxIdentityScope: sandbox.IdentityShared}, declares: attached,
			spec: attachedFor(sandbox.IdentityPerScope, time.Minute),
			want: sandbox.ErrAttachedIdentityNotPermitted, says: []string{"asked for 1h0m0s", "at most 1m0s"},
		},
		"an identity without a bound on its life": {
			config: router.Config{MaxIdentityScope: sandbox.IdentityShared}, declares: immortal,
			spec: attachedFor(sandbox.IdentityShared, time.Minute),
			want: sandbox.ErrAttachedIdentityNotPermitted, says: []string{"asked for no bound", "at most 1m0s"},
		},
		"an identity that leaves by a way the spec has not": {
			config: router.Config{MaxIdentityScope: sandbox.IdentityShared}, declares: leaving,
			spec: attachedFor(sandbox.IdentityShared, 0),
			want: sandbox.ErrAttachedIdentityNotPermitted, says: []string{"asked for egress_header", "allowed is none"},
		},
		"the spec's own floor": {
			declares: declared(), spec: spec(func(s *sandbox.Spec) { s.MinIsolation = sandbox.IsolationVM }),
			want: sandbox.ErrIsolationNotPermitted, says: []string{"asked for microvm", "at least vm", "the spec, by its min_isolation"},
		},
		"a capability that the backend lacks": {
			declares: declared(), spec: spec(func(s *sandbox.Spec) { s.Requires = s.Requires.With(sandbox.CapExec) }),
			want: sandbox.ErrCapabilityNotSupported, says: []string{"asked for exec", "decided by backend memory"},
		},
		"a method that the backend lacks": {
			declares: methods,
			spec: spec(func(s *sandbox.Spec) {
				s.Egress, s.EgressAllow = sandbox.EgressAllowlist, []sandbox.EgressRule{{Host: host, Methods: []string{"PUT"}}}
			}),
			want: sandbox.ErrEgressNotEnforced, says: []string{"method PUT"},
		},
		"another OS family": {
			declares: declared(), spec: spec(func(s *sandbox.Spec) { s.RequiresOSFamily = sandbox.OSWindows }),
			want: sandbox.ErrOSFamilyNotSupported, says: []string{"asked for windows", "allowed is posix"},
		},
		"wider transfers": {
			declares: declared(), spec: spec(func(s *sandbox.Spec) { s.Limits.FilesIn.MaxFiles = 1000 }),
			want: sandbox.ErrTransferLimitsNotPermitted, says: []string{"1000 files"},
		},
		"egress that the backend cannot enforce": {
			declares: declared(), spec: spec(func(s *sandbox.Spec) { s.Egress = sandbox.EgressUnrestricted }),
			want: sandbox.ErrEgressNotEnforced, says: []string{"asked for unrestricted"},
		},
		"a scope that the backend cannot keep": {
			declares: conversations, spec: spec(func(s *sandbox.Spec) { s.IsolationScope = sandbox.ScopeCall }),
			want: sandbox.ErrScopeNotEnforced, says: []string{"asked for call"},
		},
		"a scope that the host wants": {
			config: router.Config{MinIsolationScope: sandbox.ScopeCall}, declares: conversations, spec: pythonSpec,
			want: sandbox.ErrScopeNotEnforced, says: []string{"asked for call"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := newFakeWith("memory", sandbox.IsolationMicroVM, row.declares)
			row.config.Backends = []sandbox.Backend{b}
			r := newRouter(t, row.config)
			is(t, r.EnsureCanServe(row.spec), row.want, row.says...)
			if served, err := r.BackendFor(row.spec); served != nil || !errors.Is(err, row.want) {
				t.Errorf("BackendFor = %v, %v", served, err)
			}
			if cleanup, err := r.EffectiveCleanup(row.spec); cleanup != sandbox.CleanupUnset || !errors.Is(err, row.want) {
				t.Errorf("EffectiveCleanup = %s, %v", cleanup, err)
			}
			_, err := r.Acquire(t.Context(), mainKey, row.spec)
			is(t, err, row.want)
			if !sandbox.Usable(err) {
				t.Errorf("a refusal says that something is unusable: %v", err)
			}
			_, err = r.Enter(t.Context(), mainKey, row.spec, router.CallOptions{})
			is(t, err, row.want)
			b.wantOps(t, "")
		})
	}
}

// before checks that the parts come in this order.
func before(t *testing.T, err error, parts ...string) {
	t.Helper()
	rest := err.Error()
	for _, part := range parts {
		_, after, found := strings.Cut(rest, part)
		if !found {
			t.Errorf("%q does not come in its turn in %q", part, err)
			return
		}
		rest = after
	}
}

func TestRefusalsComeInTheProtocolsOrder(t *testing.T) {
	declares := declared()
	declares.AttachedIdentity.Scope = sandbox.IdentityPerScope
	declares.IsolationScopes = sandbox.SetOf(sandbox.ScopeConversation)
	b := newFakeWith("memory", sandbox.IsolationMicroVM, declares)
	spec := pythonSpec
	spec.Requires = spec.Requires.With(sandbox.CapExec)
	spec.MinIsolation = sandbox.IsolationVM
	spec.RequiresOSFamily = sandbox.OSWindows
	spec.Limits.FilesOut.MaxFiles = 1000
	spec.Egress = sandbox.EgressUnrestricted
	spec.IsolationScope = sandbox.ScopeCall

	config := router.Config{Backends: []sandbox.Backend{b}, MaxIdentityScope: sandbox.IdentityShared}
	before(t, newRouter(t, config).EnsureCanServe(spec),
		"attached identity not permitted", "isolation not permitted", "capability not supported",
		"OS family not supported", "transfer limits not permitted", "egress not enforced", "isolation scope not enforced")

	config.DeniedCapabilities = sandbox.SetOf(sandbox.CapExec)
	denied := newRouter(t, config).EnsureCanServe(spec)
	is(t, denied, sandbox.ErrCapabilityDenied)
	if errors.Is(denied, sandbox.ErrIsolationNotPermitted) {
		t.Errorf("a backend was asked about what the host denies: %v", denied)
	}
}

func TestSelectionChoosesTheBackend(t *testing.T) {
	needs := func(c sandbox.Capability) sandbox.Spec {
		return sandbox.Spec{Kind: "x", Requires: sandbox.SetOf(c)}
	}
	weak := newFakeWith("weak", sandbox.IsolationContainer, declared(sandbox.CapExec))
	first, second := newFake("first", sandbox.CapSnapshot), newFake("second", sandbox.CapSnapshot, sandbox.CapFilesIn)
	all := []sandbox.Backend{weak, first, second}
	for name, row := range map[string]struct {
		config router.Config
		spec   sandbox.Spec
		want   string // empty when refused
	}{
		"fixed takes the selected one":         {router.Config{Selected: "second"}, needs(sandbox.CapRunCode), "second"},
		"fixed never takes another":            {router.Config{Selected: "first"}, needs(sandbox.CapFilesIn), ""},
		"per_spec takes the first that can":    {router.Config{Selection: router.SelectPerSpec}, needs(sandbox.CapRunCode), "first"},
		"per_spec passes over one that cannot": {router.Config{Selection: router.SelectPerSpec}, needs(sandbox.CapFilesIn), "second"},
		"per_spec never goes below the floor":  {router.Config{Selection: router.SelectPerSpec}, needs(sandbox.CapExec), ""},
	} {
		t.Run(name, func(t *testing.T) {
			row.config.Backends = all
			served, err := newRouter(t, row.config).BackendFor(row.spec)
			if row.want == "" {
				is(t, err, sandbox.ErrCapabilityNotSupported)
				return
			}
			if err != nil || served.Name() != row.want {
				t.Errorf("BackendFor = %v, %v; want %s", served, err, row.want)
			}
		})
	}
	t.Run("when nobody can, all are named in order", func(t *testing.T) {
		err := newRouter(t, router.Config{Backends: all, Selection: router.SelectPerSpec}).EnsureCanServe(needs(sandbox.CapExec))
		is(t, err, sandbox.ErrNoBackend)
		is(t, err, sandbox.ErrIsolationNotPermitted)
		before(t, err, "backend weak", "backend first", "backend second")
	})
}

func TestTheScopeIsTheNarrowerOfHostAndSpec(t *testing.T) {
	for _, row := range []struct{ host, spec, want sandbox.IsolationScope }{
		{sandbox.ScopeConversation, sandbox.ScopeConversation, sandbox.ScopeConversation},
		{sandbox.ScopeConversation, sandbox.ScopeCall, sandbox.ScopeCall},
		{sandbox.ScopeCall, sandbox.ScopeConversation, sandbox.ScopeCall},
		{sandbox.ScopeCall, sandbox.ScopeCall, sandbox.ScopeCall},
	} {
		r := newRouter(t, router.Config{MinIsolationScope: row.host})
		spec := pythonSpec
		spec.IsolationScope = row.spec
		if got := r.EffectiveIsolationScope(spec); got != row.want {
			t.Errorf("host %s, spec %s: %s, want %s", row.host, row.spec, got, row.want)
		}
		key := r.CallKey(mainKey, spec)
		if key.IsolationScope() != row.want || r.CallKey(key, spec) != key {
			t.Errorf("host %s, spec %s: key %s", row.host, row.spec, key)
		}
		if row.want == sandbox.ScopeCall && r.CallKey(mainKey, spec) == key {
			t.Errorf("two calls got the key %s", key)
		}
	}
}

func TestCleanupIsTheWeakestRungThatTheBackendHasAndTheFloorsAllow(t *testing.T) {
	const (
		unset   = sandbox.CleanupUnset
		reclaim = sandbox.CleanupReclaim
		reset   = sandbox.CleanupReset
		dispose = sandbox.CleanupDispose
	)
	both := []sandbox.Capability{sandbox.CapReclaim, sandbox.CapSnapshot}
	for name, row := range map[string]struct {
		has        []sandbox.Capability
		host, spec sandbox.Cleanup
		scope      sandbox.IsolationScope
		want       sandbox.Cleanup
	}{
		"the default is dispose":                     {both, unset, unset, sandbox.ScopeConversation, dispose},
		"reclaim":                                    {both, reclaim, unset, sandbox.ScopeConversation, reclaim},
		"reset":                                      {both, reset, unset, sandbox.ScopeConversation, reset},
		"a spec asks for more":                       {both, reclaim, reset, sandbox.ScopeConversation, reset},
		"a spec cannot ask for less":                 {both, dispose, reclaim, sandbox.ScopeConversation, dispose},
		"reclaim where only reset exists":            {both[1:], reclaim, unset, sandbox.ScopeConversation, reset},
		"reclaim where neither exists":               {nil, reclaim, unset, sandbox.ScopeConversation, dispose},
		"reset where only reclaim exists":            {both[:1], reset, unset, sandbox.ScopeConversation, dispose},
		"a sandbox for each call is always disposed": {both, reclaim, unset, sandbox.ScopeCall, dispose},
	} {
		t.Run(name, func(t *testing.T) {
			b := newFake("memory", row.has...)
			spec := pythonSpec
			spec.MinCleanup, spec.IsolationScope = row.spec, row.scope
			got, err := newRouter(t, router.Config{Backends: []sandbox.Backend{b}, MinCleanup: row.host}).EffectiveCleanup(spec)
			if err != nil || got != row.want {
				t.Errorf("EffectiveCleanup = %s, %v; want %s", got, err, row.want)
			}
		})
	}
}

func TestKeysMustFitTheScope(t *testing.T) {
	perCall := pythonSpec
	perCall.IsolationScope = sandbox.ScopeCall
	for name, row := range map[string]struct {
		host sandbox.IsolationScope
		key  sandbox.Key
		spec sandbox.Spec
		want string // what the refusal says; empty when served
	}{
		"a conversation's key":                    {sandbox.ScopeConversation, mainKey, pythonSpec, ""},
		"a call's key for a spec that shares":     {sandbox.ScopeConversation, callKey("1"), pythonSpec, `asked for "1", allowed is none`},
		"a call's key":                            {sandbox.ScopeConversation, callKey("1"), perCall, ""},
		"a conversation's key for calls":          {sandbox.ScopeConversation, mainKey, perCall, "the spec, by its isolation_scope"},
		"a conversation's key on a host of calls": {sandbox.ScopeCall, mainKey, pythonSpec, "Config.MinIsolationScope"},
		"a call's key on a host of calls":         {sandbox.ScopeCall, callKey("1"), pythonSpec, ""},
		"a blank key":                             {sandbox.ScopeConversation, sandbox.Key{}, pythonSpec, "key.scope"},
	} {
		t.Run(name, func(t *testing.T) {
			b := snapshots()
			r := newRouter(t, router.Config{Backends: []sandbox.Backend{b}, MinIsolationScope: row.host})
			_, err := r.Acquire(t.Context(), row.key, row.spec)
			if row.want == "" {
				isNil(t, "Acquire", err)
				isNil(t, "Dispose", r.Dispose(t.Context(), row.key))
				return
			}
			is(t, err, sandbox.ErrInvalid, row.want)
			b.wantOps(t, "")
		})
	}
}

func TestAnIdentityWithinEveryBoundIsServed(t *testing.T) {
	declares := declared(sandbox.CapAttachedIdentity)
	declares.AttachedIdentity = sandbox.AttachedIdentity{
		Scope: sandbox.IdentityPerScope, AutoDelete: time.Minute, Channels: sandbox.SetOf(sandbox.ChannelEgressHeader),
	}
	b := newFakeWith("memory", sandbox.IsolationMicroVM, declares)
	r := newRouter(t, router.Config{Backends: []sandbox.Backend{b}, MaxIdentityScope: sandbox.IdentityPerScope})
	spec := pythonSpec
	spec.Requires = spec.Requires.With(sandbox.CapAttachedIdentity)
	spec.MaxIdentityScope, spec.MaxIdentityRetention = sandbox.IdentityPerScope, time.Minute
	spec.Egress = sandbox.EgressAllowlist
	spec.EgressAllow = []sandbox.EgressRule{{Host: sandbox.MustHost("api.example.com"), Authority: sandbox.IdentityApp}}
	isNil(t, "EnsureCanServe", r.EnsureCanServe(spec))
}
