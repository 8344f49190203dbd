package sandbox_test

import (
	"errors"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/maf-sandbox/maf-sandbox-go/sandbox"
)

// The expectations are what Python's bytes.decode(errors="replace") gives.
func TestTextOfOutputReplacesAsPythonDoes(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ name, bytes, want string }{
		{"text", "Grüße \U0001F600", "Grüße \U0001F600"},
		{"nothing", "", ""},
		{"two stray bytes", "\xff\xfe", "??"},
		{"a cut character", "a\xe2\x82", "a?"},
		{"a cut character and more", "a\xe2\x82b", "a?b"},
		{"three quarters of one", "\xf0\x9f\x98", "?"},
		{"a surrogate", "\xed\xa0\x80", "???"},
		{"an overlong form", "\xc0\xaf", "??"},
		{"an overlong form of three", "\xe0\x80\xaf", "???"},
		{"beyond the last character", "\xf4\x90\x80\x80", "????"},
		{"continuations alone", "\x80\xbf", "??"},
		{"the replacement itself", "?", "?"},
	} {
		bytes, want := strings.ReplaceAll(c.bytes, "?", "\uFFFD"), strings.ReplaceAll(c.want, "?", "\uFFFD")
		result := sandbox.ExecResult{Stdout: []byte(bytes), Stderr: []byte(bytes)}
		if got := result.StdoutText(); got != want || result.StderrText() != want {
			t.Errorf("%s: %q became %q, want %q", c.name, bytes, got, want)
		}
	}
}

func FuzzResultText(f *testing.F) {
	f.Add([]byte("a\xe2\x82b\xff\xf0\x9f\x98\x80"))
	f.Fuzz(func(t *testing.T, output []byte) {
		text := sandbox.ExecResult{Stdout: output}.StdoutText()
		if !utf8.ValidString(text) || utf8.Valid(output) && text != string(output) {
			t.Errorf("%q became %q", output, text)
		}
	})
}

func TestLimitsHaveDefaultsAndCompare(t *testing.T) {
	t.Parallel()
	var zero sandbox.TransferLimits
	if zero.OrDefault() != (sandbox.TransferLimits{MaxBytesPerFile: 8 << 20, MaxTotalBytes: 32 << 20, MaxFiles: 64}) {
		t.Errorf("the defaults are %s", zero)
	}
	few := sandbox.TransferLimits{MaxFiles: 1}
	if !few.Within(zero) || zero.Within(few) || !zero.Within(zero.OrDefault()) {
		t.Error("limits do not compare")
	}
	if (sandbox.Limits{FilesIn: few}).Within(sandbox.Limits{FilesOut: few}) {
		t.Error("one direction was not compared")
	}
}

func TestDeclarationsSayWhatTheyDoNotServe(t *testing.T) {
	t.Parallel()
	declares := sandbox.Declarations{
		Capabilities:  sandbox.SetOf(sandbox.CapRunCode, sandbox.CapEgressMethods),
		EgressModes:   sandbox.SetOf(sandbox.EgressClosed, sandbox.EgressAllowlist),
		OSFamilies:    sandbox.SetOf(sandbox.OSPosix),
		EgressMethods: []string{"GET"},
	}
	for _, c := range []struct {
		name   string
		change func(*sandbox.Spec)
		want   error
	}{
		{"what it serves", func(s *sandbox.Spec) { s.Requires = sandbox.SetOf(sandbox.CapRunCode) }, nil},
		{"a method that it knows", allow(rule("a.example", "GET")), nil},
		{"a capability", func(s *sandbox.Spec) { s.Requires = sandbox.SetOf(sandbox.CapExec) }, sandbox.ErrCapabilityNotSupported},
		{"a method", allow(rule("a.example", "PUT")), sandbox.ErrEgressNotEnforced},
		{"an OS family", func(s *sandbox.Spec) { s.RequiresOSFamily = sandbox.OSWindows }, sandbox.ErrOSFamilyNotSupported},
		{"transfers", func(s *sandbox.Spec) { s.Limits.FilesIn.MaxFiles = 65 }, sandbox.ErrTransferLimitsNotPermitted},
		{"transfers out", func(s *sandbox.Spec) { s.Limits.FilesOut.MaxFiles = 65 }, sandbox.ErrTransferLimitsNotPermitted},
		{"an egress mode", func(s *sandbox.Spec) { s.Egress = sandbox.EgressUnrestricted }, sandbox.ErrEgressNotEnforced},
		{"an isolation scope", func(s *sandbox.Spec) { s.IsolationScope = sandbox.ScopeCall }, sandbox.ErrScopeNotEnforced},
	} {
		spec := sandbox.Spec{Kind: "k"}
		c.change(&spec)
		err := declares.Unserved("backend x", spec)
		if (err == nil) != (c.want == nil) || !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", c.name, err, c.want)
		}
		if err != nil && !strings.Contains(err.Error(), "backend x") {
			t.Errorf("%s: %v does not say who decides", c.name, err)
		}
	}
	if err := (sandbox.Declarations{}).Unserved("backend x", sandbox.Spec{Kind: "k"}); !errors.Is(err, sandbox.ErrEgressNotEnforced) {
		t.Errorf("a backend that declares nothing: %v", err)
	}
	if !(sandbox.Declarations{AnyEgressMethod: true}).AllowsMethod("PATCH") {
		t.Error("any method is not any")
	}
	if (sandbox.Declarations{IsolationScopes: sandbox.SetOf(sandbox.ScopeCall)}).Serves(sandbox.ScopeConversation) {
		t.Error("a declared scope does not replace the default")
	}
}

func TestAllowHostsReportsEveryBadName(t *testing.T) {
	t.Parallel()
	rules, err := sandbox.AllowHosts("a.example", "B.example")
	if err != nil || len(rules) != 2 || rules[1].Host.String() != "b.example" {
		t.Errorf("AllowHosts = %v, %v", rules, err)
	}
	if rules, err := sandbox.AllowHosts("a b", "c.example", "d/e"); rules != nil || err == nil ||
		!strings.Contains(err.Error(), "a b") || !strings.Contains(err.Error(), "d/e") {
		t.Errorf("AllowHosts = %v, %v", rules, err)
	}
}
