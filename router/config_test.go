package router_test

import (
	"encoding/json"
	"errors"
	"testing"
	"time"

	"github.com/maf-sandbox/maf-sandbox-go/router"
	"github.com/maf-sandbox/maf-sandbox-go/sandbox"
)

func TestNewReportsEveryProblemAtOnce(t *testing.T) {
	_, err := router.New(router.Config{
		Backends:           []sandbox.Backend{nil, newFake(" "), newFake("twin"), newFake("twin"), newFakeWith("odd", 200, declared())},
		Selection:          9,
		MinIsolation:       99,
		MinIsolationScope:  99,
		MinCleanup:         99,
		MaxIdentityScope:   99,
		DeniedCapabilities: sandbox.SetOf(sandbox.Capability(60)),
		DeniedIdentities:   sandbox.SetOf(sandbox.Identity(60)),
		Reclaim:            router.ReclaimConfig{Timeout: -time.Second, Policy: 9},
		QueueTimeout:       -1,
	})
	is(t, err, sandbox.ErrInvalid,
		"Backends[0]", "Backends[1].Name", `"twin" again`, "Backends[4].Isolation", "Selection", "MinIsolation",
		"MinIsolationScope", "MinCleanup", "MaxIdentityScope", "DeniedCapabilities", "DeniedIdentities",
		"Reclaim.Timeout", "Reclaim.Policy", "QueueTimeout")
}

// rungless is a backend that can run nothing.
type rungless struct{ *fake }

func (rungless) Isolation() sandbox.Isolation { return sandbox.IsolationUnset }

func TestNewRefusesWhatCouldServeNothing(t *testing.T) {
	container := func(name string) *fake { return newFakeWith(name, sandbox.IsolationContainer, declared()) }
	attached := declared(sandbox.CapAttachedIdentity)
	attached.AttachedIdentity.Scope = sandbox.IdentityPerScope
	for name, row := range map[string]struct {
		config router.Config
		want   error // nil when New succeeds
		says   string
	}{
		"no backend at all":                        {router.Config{}, nil, ""},
		"no backend with per_spec":                 {router.Config{Selection: router.SelectPerSpec}, nil, ""},
		"the default floor is microvm":             {lenient(container("c")), sandbox.ErrIsolationNotPermitted, "at least microvm"},
		"unset isolation meets no floor":           {lenient(rungless{snapshots()}), sandbox.ErrIsolationNotPermitted, "its Acquire says why"},
		"a vm is above a microvm":                  {lenient(newFakeWith("v", sandbox.IsolationVM, declared())), nil, ""},
		"the first backend serves, not the best":   {lenient(container("c"), snapshots()), sandbox.ErrIsolationNotPermitted, "backend c"},
		"a selected one that is strong enough":     {router.Config{Backends: []sandbox.Backend{container("c"), snapshots()}, Selected: "memory"}, nil, ""},
		"a selected one that nobody has":           {router.Config{Backends: []sandbox.Backend{snapshots()}, Selected: "other"}, sandbox.ErrNoBackend, "memory"},
		"a selected one without any":               {router.Config{Selected: "other"}, sandbox.ErrNoBackend, "none registered"},
		"per_spec with one that is strong enough":  {router.Config{Backends: []sandbox.Backend{container("c"), snapshots()}, Selection: router.SelectPerSpec}, nil, ""},
		"per_spec with none that is strong enough": {router.Config{Backends: []sandbox.Backend{container("c"), container("d")}, Selection: router.SelectPerSpec}, sandbox.ErrIsolationNotPermitted, "backend d"},
		"per_spec with a selected one":             {router.Config{Backends: []sandbox.Backend{snapshots()}, Selection: router.SelectPerSpec, Selected: "memory"}, sandbox.ErrInvalid, "per_spec"},
		"a floor that is lowered by name":          {router.Config{Backends: []sandbox.Backend{container("c")}, MinIsolation: sandbox.IsolationNone}, nil, ""},
		"an identity wider than allowed":           {lenient(newFakeWith("a", sandbox.IsolationVM, attached)), sandbox.ErrAttachedIdentityNotPermitted, "at most none"},
		"an identity that is allowed": {router.Config{
			Backends: []sandbox.Backend{newFakeWith("a", sandbox.IsolationVM, attached)}, MaxIdentityScope: sandbox.IdentityPerScope,
		}, nil, ""},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := router.New(row.config)
			if row.want == nil {
				isNil(t, "New", err)
				return
			}
			is(t, err, row.want, row.says)
		})
	}
}

func TestARouterWithoutBackendsRefusesEverything(t *testing.T) {
	r := newRouter(t, router.Config{})
	if r.Enabled() {
		t.Error("the router says that it is enabled")
	}
	is(t, r.EnsureCanServe(pythonSpec), sandbox.ErrNoBackend)
	_, err := r.Acquire(t.Context(), mainKey, pythonSpec)
	is(t, err, sandbox.ErrNoBackend, "decided by")
	isNil(t, "Dispose", r.Dispose(t.Context(), mainKey))
	if !newRouter(t, lenient(snapshots())).Enabled() {
		t.Error("a router with a backend says that it is not enabled")
	}
}

func TestTheRouterKeepsItsOwnListOfBackends(t *testing.T) {
	backends := []sandbox.Backend{snapshots()}
	r := newRouter(t, lenient(backends...))
	backends[0] = nil
	acquire(t, r, pythonSpec)
	isNil(t, "Dispose", r.Dispose(t.Context(), mainKey))
}

func TestWordsAreThoseOfTheProtocol(t *testing.T) {
	var config struct {
		Selection router.Selection
		Policy    router.ReclaimPolicy
	}
	text := `{"Selection":"per_spec","Policy":"keep"}`
	if err := json.Unmarshal([]byte(text), &config); err != nil {
		t.Fatal(err)
	}
	if config.Selection != router.SelectPerSpec || config.Policy != router.ReclaimKeep {
		t.Errorf("%s is read as %+v", text, config)
	}
	if again, err := json.Marshal(config); err != nil || string(again) != text {
		t.Errorf("written again it is %s, %v", again, err)
	}
	err := json.Unmarshal([]byte(`{"Selection":"cheapest"}`), &config)
	is(t, err, sandbox.ErrInvalid, "cheapest", "fixed, per_spec")
	if _, err := router.Selection(7).MarshalText(); err == nil {
		t.Error("a selection that does not exist has a word")
	}
	if got := router.OutcomeKept.String() + " " + router.AdoptionFresh.String() + " " + router.Outcome(9).String(); got != "kept fresh no outcome" {
		t.Errorf("words are %q", got)
	}
}

func FuzzWords(f *testing.F) {
	for _, word := range []string{"fixed", "per_spec", "dispose", "keep", "", "Fixed", "\xff\x00"} {
		f.Add([]byte(word))
	}
	f.Fuzz(func(t *testing.T, word []byte) {
		var selection router.Selection
		if err := selection.UnmarshalText(word); err == nil && selection.String() != string(word) {
			t.Errorf("%q is read as %s", word, selection)
		}
		var policy router.ReclaimPolicy
		err := policy.UnmarshalText(word)
		if err == nil && policy.String() != string(word) {
			t.Errorf("%q is read as %s", word, policy)
		}
		var unknown *sandbox.UnknownWordError
		if errors.As(err, &unknown) && len(unknown.Word) > 100 {
			t.Errorf("an error repeats %d bytes", len(unknown.Word))
		}
	})
}
