package sandbox_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/maf-sandbox/maf-sandbox-go/sandbox"
)

func rule(host string, methods ...string) sandbox.EgressRule {
	return sandbox.EgressRule{Host: sandbox.MustHost(host), Methods: methods}
}

func allow(rules ...sandbox.EgressRule) func(*sandbox.Spec) {
	return func(s *sandbox.Spec) { s.Egress, s.EgressAllow = sandbox.EgressAllowlist, rules }
}

func TestSpecsThatAreFine(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*sandbox.Spec){
		"a kind alone":              func(*sandbox.Spec) {},
		"the defaults":              func(s *sandbox.Spec) { *s = sandbox.DefaultSpec("python") },
		"hosts":                     allow(rule("a.example"), rule("*.b.example", "GET", "POST"), rule("127.0.0.1")),
		"an allow-list without any": allow(),
		"equal duplicates":          allow(rule("a.example", "GET", "PUT"), rule("A.example", "PUT", "GET")),
		"a method of one's own":     allow(rule("a.example", "M-SEARCH")),
		"authority":                 allow(sandbox.EgressRule{Host: sandbox.MustHost("a.example"), Authority: sandbox.IdentityUser}),
		"tools with the capability": func(s *sandbox.Spec) {
			s.HostTools, s.Requires = &sandbox.HostTools{}, sandbox.SetOf(sandbox.CapHostTools)
		},
		"an identity with a bound": func(s *sandbox.Spec) {
			s.Requires = sandbox.SetOf(sandbox.CapAttachedIdentity)
			s.MaxIdentityScope, s.MaxIdentityRetention = sandbox.IdentityPerScope, time.Hour
		},
		"floors": func(s *sandbox.Spec) {
			s.MinIsolation, s.MinCleanup = sandbox.IsolationVM, sandbox.CleanupDispose
		},
	} {
		spec := sandbox.Spec{Kind: "python"}
		change(&spec)
		if err := spec.Validate(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestSpecsThatAreRefusedNameTheField(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change  func(*sandbox.Spec)
		subject string
	}{
		"no kind":                    {func(s *sandbox.Spec) { s.Kind = "" }, "spec.kind"},
		"a long kind":                {func(s *sandbox.Spec) { s.Kind = strings.Repeat("k", sandbox.MaxNameBytes+1) }, "spec.kind"},
		"a blank contract":           {func(s *sandbox.Spec) { s.ExecutionContract = " " }, "spec.execution_contract"},
		"hosts while closed":         {func(s *sandbox.Spec) { s.EgressAllow = []sandbox.EgressRule{rule("a.example")} }, "spec.egress_allow"},
		"hosts while unrestricted":   {func(s *sandbox.Spec) { allow(rule("a.example"))(s); s.Egress = sandbox.EgressUnrestricted }, "spec.egress_allow"},
		"no host":                    {allow(sandbox.EgressRule{}), "spec.egress_allow[0].host"},
		"contradicting rules":        {allow(rule("a.example", "GET"), rule("b.example"), rule("A.example")), "spec.egress_allow"},
		"no methods":                 {allow(sandbox.EgressRule{Host: sandbox.MustHost("a.example"), Methods: []string{}}), "spec.egress_allow[0].methods"},
		"a method in lower case":     {allow(rule("a.example", "GET", "post")), "spec.egress_allow[0].methods[1]"},
		"a method twice":             {allow(rule("a.example", "GET", "GET")), "spec.egress_allow[0].methods[1]"},
		"a method with a space":      {allow(rule("a.example", "GET /")), "spec.egress_allow[0].methods[0]"},
		"authority under a wildcard": {allow(sandbox.EgressRule{Host: sandbox.MustHost("*.example"), Authority: sandbox.IdentityApp}), "spec.egress_allow[0].authority"},
		"too many hosts":             {allow(make([]sandbox.EgressRule, sandbox.MaxEgressRules+1)...), "spec.egress_allow"},
		"reclaim":                    {func(s *sandbox.Spec) { s.Requires = sandbox.SetOf(sandbox.CapReclaim) }, "spec.requires"},
		"no such capability":         {func(s *sandbox.Spec) { s.Requires = sandbox.SetOf(sandbox.Capability(40)) }, "spec.requires"},
		"tools without capability":   {func(s *sandbox.Spec) { s.HostTools = &sandbox.HostTools{} }, "spec.host_tools"},
		"a bound without identity":   {func(s *sandbox.Spec) { s.MaxIdentityScope = sandbox.IdentityShared }, "spec.max_identity_scope"},
		"retention without identity": {func(s *sandbox.Spec) { s.MaxIdentityRetention = 1 }, "spec.max_identity_scope"},
		"identity without a bound":   {func(s *sandbox.Spec) { s.Requires = sandbox.SetOf(sandbox.CapAttachedIdentity) }, "spec.max_identity_scope"},
		"no such rung":               {func(s *sandbox.Spec) { s.MinIsolation = 99 }, "spec.min_isolation"},
		"no such egress":             {func(s *sandbox.Spec) { s.Egress = 99 }, "spec.egress"},
		"a limit below zero":         {func(s *sandbox.Spec) { s.Limits.FilesOut.MaxFiles = -1 }, "limits.files_out.max_files"},
		"an output without a path":   {func(s *sandbox.Spec) { s.DeclaredOutputs = make([]sandbox.DeclaredOutput, 1) }, "spec.declared_outputs[0].path"},
		"a work folder with NUL":     {func(s *sandbox.Spec) { s.WorkDir = "/a\x00" }, "spec.work_dir"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			spec := sandbox.Spec{Kind: "python"}
			c.change(&spec)
			err := spec.Validate()
			var refusal *sandbox.RefusalError
			if !errors.As(err, &refusal) || !errors.Is(err, sandbox.ErrInvalid) {
				t.Fatalf("Validate = %v", err)
			}
			if refusal.Subject != c.subject || refusal.Asked == "" || refusal.Allowed == "" || refusal.Decider == "" {
				t.Errorf("the first refusal is %+v, want one about %s", refusal, c.subject)
			}
		})
	}
}

func TestValidateReportsEveryProblemAtOnce(t *testing.T) {
	t.Parallel()
	spec := sandbox.Spec{
		Requires:    sandbox.SetOf(sandbox.CapReclaim),
		EgressAllow: []sandbox.EgressRule{rule("a.example", "get")},
		HostTools:   &sandbox.HostTools{},
	}
	err := spec.Validate()
	for _, subject := range []string{"spec.kind", "spec.requires", "spec.egress_allow:", "spec.egress_allow[0].methods[0]", "spec.host_tools"} {
		if err == nil || !strings.Contains(err.Error(), subject) {
			t.Errorf("%v does not name %s", err, subject)
		}
	}
}

func TestSpecDerivesWhatItsRulesNeed(t *testing.T) {
	t.Parallel()
	spec := sandbox.Spec{Kind: "k", Egress: sandbox.EgressAllowlist, HostTools: &sandbox.HostTools{Identities: sandbox.SetOf(sandbox.IdentityUser)}}
	spec.EgressAllow = []sandbox.EgressRule{rule("b.example"), rule("a.example"), rule("B.example")}
	if !spec.RequiredCapabilities().IsEmpty() || !spec.AuthorityChannels().IsEmpty() {
		t.Error("plain rules need nothing")
	}
	if rules := spec.EgressRules(); len(rules) != 2 || rules[0].Host.String() != "a.example" {
		t.Errorf("EgressRules = %v", rules)
	}
	spec.EgressAllow = append(spec.EgressAllow, rule("c.example", "GET"),
		sandbox.EgressRule{Host: sandbox.MustHost("d.example"), Authority: sandbox.IdentityApp})
	if got := spec.RequiredCapabilities(); got != sandbox.SetOf(sandbox.CapEgressMethods) {
		t.Errorf("RequiredCapabilities = %s", got)
	}
	if got := spec.Identities(); got != sandbox.SetOf(sandbox.IdentityApp, sandbox.IdentityUser) {
		t.Errorf("Identities = %s", got)
	}
	if got := spec.AuthorityChannels(); got != sandbox.SetOf(sandbox.ChannelEgressHeader) {
		t.Errorf("AuthorityChannels = %s", got)
	}
}

func TestACloneSharesNothing(t *testing.T) {
	t.Parallel()
	spec := sandbox.Spec{Kind: "k", Labels: map[string]string{"a": "1"}, EgressAllow: []sandbox.EgressRule{rule("a.example", "GET")},
		HostTools: &sandbox.HostTools{Names: []string{"tool"}}}
	clone := spec.Clone()
	spec.Labels["a"], spec.EgressAllow[0].Methods[0], spec.HostTools.Names[0] = "2", "PUT", "other"
	if clone.Labels["a"] != "1" || clone.EgressAllow[0].Methods[0] != "GET" || clone.HostTools.Names[0] != "tool" {
		t.Errorf("the clone is now %+v", clone)
	}
}

func TestAChangedConfigurationIsRefused(t *testing.T) {
	t.Parallel()
	live := sandbox.Spec{Kind: "k", Egress: sandbox.EgressAllowlist, EgressAllow: []sandbox.EgressRule{rule("a.example"), rule("b.example")}}
	same := live
	same.EgressAllow = []sandbox.EgressRule{rule("B.example"), rule("a.example"), rule("b.example")}
	same.Labels = map[string]string{"note": "new"}
	if err := same.Changed(live, "backend x"); err != nil {
		t.Errorf("the same policy in another order: %v", err)
	}
	for name, change := range map[string]func(*sandbox.Spec){
		"mode":     func(s *sandbox.Spec) { s.Egress = sandbox.EgressClosed },
		"hosts":    allow(rule("a.example")),
		"methods":  allow(rule("a.example", "GET"), rule("b.example")),
		"contract": func(s *sandbox.Spec) { s.ExecutionContract = "c" },
		"image":    func(s *sandbox.Spec) { s.Image = "i" },
		"image id": func(s *sandbox.Spec) { s.ImageID = "i" },
		"folder":   func(s *sandbox.Spec) { s.WorkDir = "/w" },
		"identity": func(s *sandbox.Spec) { s.MaxIdentityScope = sandbox.IdentityShared },
	} {
		spec := live
		change(&spec)
		if err := spec.Changed(live, "backend x"); !errors.Is(err, sandbox.ErrConfigurationChanged) || !sandbox.Usable(err) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestKeysAreValuesWithUnambiguousTexts(t *testing.T) {
	t.Parallel()
	a := sandbox.Key{Scope: "a/b", ThreadID: "c", AgentID: "d"}
	b := sandbox.Key{Scope: "a", ThreadID: "b/c", AgentID: "d"}
	if a.String() == b.String() || a == b {
		t.Errorf("%s and %s look alike", a, b)
	}
	if a.IsolationScope() != sandbox.ScopeConversation || (sandbox.Key{CallID: "x"}).IsolationScope() != sandbox.ScopeCall {
		t.Error("a call id does not make the scope")
	}
	if err := a.Validate(); err != nil {
		t.Error(err)
	}
	err := sandbox.Key{Scope: "\t", ThreadID: "a\x00", CallID: strings.Repeat("x", 2000)}.Validate()
	for _, part := range []string{"key.scope", "key.thread_id", "key.agent_id", "key.call_id"} {
		if err == nil || !strings.Contains(err.Error(), part) {
			t.Errorf("%v does not name %s", err, part)
		}
	}
}
