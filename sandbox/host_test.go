package sandbox_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/maf-sandbox/maf-sandbox-go/sandbox"
)

func TestHostGrammar(t *testing.T) {
	t.Parallel()
	label := strings.Repeat("a", 63)
	long := strings.Join([]string{label, label, label, strings.Repeat("b", 61)}, ".")
	for _, c := range []struct{ name, text, want string }{
		{"a name", "example.com", "example.com"},
		{"upper case becomes lower", "API.Example.COM", "api.example.com"},
		{"one label", "localhost", "localhost"},
		{"one letter", "a", "a"},
		{"digits and hyphens inside", "a-1.b--2.3", "a-1.b--2.3"},
		{"an IPv4 address is a name here", "127.0.0.1", "127.0.0.1"},
		{"numbers alone", "1.2", "1.2"},
		{"a wildcard", "*.Example.com", "*.example.com"},
		{"a wildcard over one label", "*.com", "*.com"},
		{"a label of 63", label + ".com", label + ".com"},
		{"a name of 253", long, long},
		{"punycode", "xn--bcher-kva.example", "xn--bcher-kva.example"},

		{"nothing", "", ""},
		{"a bare wildcard", "*", ""},
		{"a wildcard over nothing", "*.", ""},
		{"two wildcards", "*.*.com", ""},
		{"a wildcard inside", "a.*.com", ""},
		{"a wildcard at the end", "example.*", ""},
		{"half a wildcard", "*example.com", ""},
		{"a label of 64", label + "a.com", ""},
		{"a name of 254", long + "c", ""},
		{"a trailing dot", "example.com.", ""},
		{"a leading dot", ".example.com", ""},
		{"two dots", "example..com", ""},
		{"a hyphen first", "-example.com", ""},
		{"a hyphen last", "example-.com", ""},
		{"an underscore", "_dmarc.example.com", ""},
		{"a scheme", "https://example.com", ""},
		{"a port", "example.com:443", ""},
		{"a path", "example.com/x", ""},
		{"a user", "me@example.com", ""},
		{"a space", "example .com", ""},
		{"a space around", " example.com", ""},
		{"a newline", "example.com\n", ""},
		{"a NUL", "example.com\x00", ""},
		{"a comma", "a.com,b.com", ""},
		{"an IPv6 address", "::1", ""},
		{"an IPv6 address in brackets", "[::1]", ""},
		{"beyond ASCII", "bücher.example", ""},
		{"a letter that lowers to ASCII", "\u212aelvin.example", ""},
		{"a full stop of another script", "example\u3002com", ""},
		{"no UTF-8", "ex\xffample.com", ""},
		{"very long", strings.Repeat("a.", 1<<20), ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			host, err := sandbox.ParseHost(c.text)
			if c.want != "" {
				if err != nil || host.String() != c.want {
					t.Fatalf("ParseHost(%q) = %q, %v", c.text, host, err)
				}
				return
			}
			var refusal *sandbox.RefusalError
			if !errors.As(err, &refusal) || !errors.Is(err, sandbox.ErrInvalid) || !host.IsZero() {
				t.Fatalf("ParseHost(%.100q) = %q, %v; want a refusal", c.text, host, err)
			}
			if len(err.Error()) > 500 {
				t.Errorf("the error has %d bytes", len(err.Error()))
			}
		})
	}
}

func TestEqualHostsAreEqualValues(t *testing.T) {
	t.Parallel()
	if sandbox.MustHost("A.example") != sandbox.MustHost("a.EXAMPLE") {
		t.Error("case makes a difference")
	}
	if !sandbox.MustHost("*.a.example").IsWildcard() || sandbox.MustHost("a.example").IsWildcard() {
		t.Error("wildcards are not told apart")
	}
	if _, err := (sandbox.Host{}).MarshalText(); err == nil {
		t.Error("no host was written")
	}
	defer func() {
		if recover() == nil {
			t.Error("MustHost took what is no host")
		}
	}()
	sandbox.MustHost("no host")
}

func TestABareWildcardHasItsOwnMessage(t *testing.T) {
	t.Parallel()
	_, bare := sandbox.ParseHost("*")
	_, other := sandbox.ParseHost("a b")
	if bare == nil || other == nil || !strings.Contains(bare.Error(), "unrestricted") || strings.Contains(other.Error(), "unrestricted") {
		t.Errorf("messages: %v; %v", bare, other)
	}
}

func TestHostsInJSONAreChecked(t *testing.T) {
	t.Parallel()
	var rule sandbox.EgressRule
	if err := json.Unmarshal([]byte(`{"host":"API.example","methods":["GET"],"authority":"app"}`), &rule); err != nil {
		t.Fatal(err)
	}
	if rule.Host != sandbox.MustHost("api.example") || rule.Authority != sandbox.IdentityApp || rule.Validate() != nil {
		t.Errorf("rule = %+v", rule)
	}
	if err := json.Unmarshal([]byte(`{"host":"http://api.example"}`), &rule); !errors.Is(err, sandbox.ErrInvalid) {
		t.Errorf("a URL gave %v", err)
	}
}

func FuzzHost(f *testing.F) {
	for _, seed := range []string{
		"example.com", "*.example.com", "*", "127.0.0.1", "localhost", "a..b", "-a", "a-", "[::1]", "bücher.example",
		"example.com.", "http://a", "a_b", strings.Repeat("a", 64), strings.Repeat("a.", 127), "\u212aelvin", "a\x00b",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		var host sandbox.Host
		if err := host.UnmarshalText(text); err != nil {
			if !errors.Is(err, sandbox.ErrInvalid) || !host.IsZero() || len(err.Error()) > 1000 {
				t.Errorf("%q was refused with %.100q and left %q", text, err, host)
			}
			return
		}
		name := host.String()
		if name != strings.ToLower(string(text)) || len(name) > sandbox.MaxHostBytes {
			t.Errorf("%q became %q", text, name)
		}
		if strings.Trim(name, "*.-0123456789abcdefghijklmnopqrstuvwxyz") != "" {
			t.Errorf("%q holds what no host holds", name)
		}
		again, err := sandbox.ParseHost(name)
		if err != nil || again != host {
			t.Errorf("%q is not its own normal form: %q, %v", name, again, err)
		}
	})
}
