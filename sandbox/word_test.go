package sandbox_test

import (
	"encoding"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/maf-sandbox/maf-sandbox-go/sandbox"
)

// enumeration is one of the protocol's, for tables.
type enumeration struct {
	// words in the order of the values; an empty one is "not set"
	words string
	value func(n uint8) fmt.Stringer
	parse func() encoding.TextUnmarshaler
}

func enum[W interface {
	~uint8
	fmt.Stringer
}, P interface {
	*W
	encoding.TextUnmarshaler
}](words string) enumeration {
	return enumeration{
		words: words,
		value: func(n uint8) fmt.Stringer { return W(n) },
		parse: func() encoding.TextUnmarshaler { return P(new(W)) },
	}
}

// The words are those of the originals' enumerations.
func enumerations() map[string]enumeration {
	return map[string]enumeration{
		"Isolation":         enum[sandbox.Isolation](" none runtime os_process container hardened_container microvm vm"),
		"IsolationScope":    enum[sandbox.IsolationScope]("conversation call"),
		"Cleanup":           enum[sandbox.Cleanup](" reclaim reset dispose"),
		"Egress":            enum[sandbox.Egress]("closed allowlist unrestricted"),
		"IdentityScope":     enum[sandbox.IdentityScope]("none per_sandbox per_scope shared"),
		"AuthorityChannel":  enum[sandbox.AuthorityChannel]("egress_header"),
		"SourceIntegrity":   enum[sandbox.SourceIntegrity]("untrusted trusted"),
		"Identity":          enum[sandbox.Identity](" app user"),
		"OSFamily":          enum[sandbox.OSFamily](" posix windows"),
		"EntryKind":         enum[sandbox.EntryKind]("file directory symlink other"),
		"OutputDisposition": enum[sandbox.OutputDisposition]("land consume"),
		"SourceChannel":     enum[sandbox.SourceChannel]("file_store egress host_tools"),
		"Capability": enum[sandbox.Capability]("exec run_code host_tools files_in files_out files_list files_delete " +
			"snapshot attached_identity reclaim egress_methods"),
		"DisposalCode": enum[sandbox.DisposalCode]("unknown unreachable timeout refused unlisted"),
	}
}

func TestWordsAreTheOriginalsAndComeBack(t *testing.T) {
	t.Parallel()
	for name, e := range enumerations() {
		words := strings.Split(e.words, " ")
		for n, word := range words {
			value := e.value(uint8(n))
			if value.String() != word {
				t.Errorf("%s(%d) is %q, want %q", name, n, value, word)
			}
			text, err := value.(encoding.TextMarshaler).MarshalText()
			if err != nil || string(text) != word {
				t.Errorf("%s(%d).MarshalText() = %q, %v", name, n, text, err)
			}
			parsed := e.parse()
			if err := parsed.UnmarshalText(text); err != nil || reflect.ValueOf(parsed).Elem().Interface() != any(value) {
				t.Errorf("%s: %q was parsed as %v, %v", name, text, parsed, err)
			}
		}
		beyond := e.value(uint8(len(words)))
		if text, err := beyond.(encoding.TextMarshaler).MarshalText(); err == nil {
			t.Errorf("%s(%d) is no value, and was written as %q", name, len(words), text)
		}
		if beyond.String() == "" {
			t.Errorf("%s(%d) has no text for an error message", name, len(words))
		}
	}
}

func TestAnUnknownWordIsRefusedWithThoseThatExist(t *testing.T) {
	t.Parallel()
	rung := sandbox.IsolationVM
	err := rung.UnmarshalText([]byte("process"))
	var unknown *sandbox.UnknownWordError
	if !errors.As(err, &unknown) || unknown.Word != "process" || !errors.Is(err, sandbox.ErrInvalid) {
		t.Fatalf("UnmarshalText = %v", err)
	}
	if !strings.Contains(err.Error(), "os_process") || rung != sandbox.IsolationVM {
		t.Errorf("the error is %q, the value is now %q", err, rung)
	}
	if err := rung.UnmarshalText([]byte(strings.Repeat("x", 1<<20))); len(err.Error()) > 500 {
		t.Errorf("the error repeats %d bytes of foreign text", len(err.Error()))
	}
}

func TestLaddersCompare(t *testing.T) {
	t.Parallel()
	if !sandbox.IsolationMicroVM.Meets(sandbox.IsolationContainer) || sandbox.IsolationProcess.Meets(sandbox.IsolationMicroVM) {
		t.Error("isolation does not compare by rank")
	}
	if !sandbox.IsolationNone.Meets(sandbox.IsolationUnset) || sandbox.IsolationUnset.Meets(sandbox.IsolationNone) {
		t.Error("unset is not below every rung")
	}
	if sandbox.CleanupReclaim >= sandbox.CleanupReset || sandbox.CleanupReset >= sandbox.CleanupDispose {
		t.Error("cleanup does not compare by rank")
	}
}

func TestSetsAreValues(t *testing.T) {
	t.Parallel()
	set := sandbox.SetOf(sandbox.CapSnapshot, sandbox.CapRunCode)
	if set != sandbox.SetOf(sandbox.CapRunCode).With(sandbox.CapSnapshot) {
		t.Error("equal sets differ")
	}
	if got := set.String(); got != "run_code, snapshot" {
		t.Errorf("String = %q", got)
	}
	if got := sandbox.DefaultCapabilities().Minus(set).String(); got != "exec, files_in" {
		t.Errorf("Minus = %q", got)
	}
	if !set.Intersect(sandbox.DefaultCapabilities()).IsEmpty() || set.Len() != 2 || !set.Has(sandbox.CapRunCode) {
		t.Error("Intersect, Len or Has is wrong")
	}
	if got := (sandbox.Capabilities{}).String(); got != "none" {
		t.Errorf("the empty set is %q", got)
	}
	data, err := json.Marshal(set)
	if err != nil || string(data) != `["run_code","snapshot"]` {
		t.Errorf("Marshal = %s, %v", data, err)
	}
	var back sandbox.Capabilities
	if err := json.Unmarshal(data, &back); err != nil || back != set {
		t.Errorf("Unmarshal = %v, %v", back, err)
	}
	if err := json.Unmarshal([]byte(`["fly"]`), &back); err == nil || back != set {
		t.Errorf("an unknown word gave %v, %v", back, err)
	}
}

func FuzzUnmarshalText(f *testing.F) {
	for name, e := range enumerations() {
		for word := range strings.SplitSeq(e.words, " ") {
			f.Add(name, []byte(word))
		}
		f.Add(name, []byte("process\x00"))
	}
	all := enumerations()
	f.Fuzz(func(t *testing.T, name string, text []byte) {
		e, ok := all[name]
		if !ok {
			return
		}
		parsed := e.parse()
		if err := parsed.UnmarshalText(text); err != nil {
			if len(err.Error()) > 1000 {
				t.Errorf("the error has %d bytes", len(err.Error()))
			}
			return
		}
		back, err := reflect.ValueOf(parsed).Elem().Interface().(encoding.TextMarshaler).MarshalText()
		// Codes of a newer peer fold to unknown.
		if err != nil || string(back) != string(text) && name != "DisposalCode" {
			t.Errorf("%s: %q came back as %q, %v", name, text, back, err)
		}
	})
}
