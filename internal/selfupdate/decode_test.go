package selfupdate

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/maf-sandbox/maf-sandbox-go/internal/wheel/pep440"
)

func TestOptionsOfAReceiptBecomeAConfiguration(t *testing.T) {
	for name, c := range map[string]struct{ receipt, want string }{
		"none":  {"[tool]\nrequirements = [{ name = \"x\" }]\nentrypoints = [\n    { name = \"x\", from = \"x\" },\n]\n", ""},
		"index": {"[tool]\nrequirements = []\n\n[tool.options]\nindex-url = \"http://127.0.0.1/\"\n", "index-url = \"http://127.0.0.1/\"\n"},
		"nested": {
			"[tool]\n[tool.options]\nprerelease = \"allow\"\n[[tool.options.index]]\nurl = \"u\"\n[tool.options.exclude-newer-package]\nx = \"d\"\n[tool.other]\ny = 1\n",
			"prerelease = \"allow\"\n[[index]]\nurl = \"u\"\n[exclude-newer-package]\nx = \"d\"\n",
		},
		"a list over several lines": {
			"[tool.options]\nindex = [\n    { url = \"u\" },\n]\n[[tool.entrypoints]]\nname = \"n\"\n",
			"index = [\n    { url = \"u\" },\n]\n",
		},
	} {
		t.Run(name, func(t *testing.T) {
			if got := string(receiptOptions([]byte(c.receipt))); got != c.want {
				t.Errorf("%q\nwant %q", got, c.want)
			}
		})
	}
}

func TestWhatResolversAnswerIsRead(t *testing.T) {
	const name = "maf-sandbox-mst"
	read := map[string]func([]byte) (string, error){
		"uv":  func(b []byte) (string, error) { return resolved(b, name) },
		"pip": func(b []byte) (string, error) { return reported(b, name) },
		"go":  func(b []byte) (string, error) { return newest(b, "m", false) },
	}
	for label, c := range map[string]struct{ by, in, want string }{
		"pinned line":        {"uv", "maf-sandbox-mst==1.2.3\n", "1.2.3"},
		"marker and spaces":  {"uv", "# note\nother==9\n Maf_Sandbox.mst == 1.0-rc.1 ; python_version > '3'\n", "1.0rc1"},
		"no line":            {"uv", "", ""},
		"no version":         {"uv", "maf-sandbox-mst==\x1b[2J\n", ""},
		"report":             {"pip", `{"install":[{"metadata":{"name":"other","version":"9"}},{"metadata":{"name":"maf_sandbox_mst","version":"1.0"}}]}`, "1.0"},
		"empty report":       {"pip", `{"install":[]}`, ""},
		"no JSON":            {"pip", `Collecting`, ""},
		"report, no version": {"pip", `{"install":[{"metadata":{"name":"maf-sandbox-mst","version":"--help"}}]}`, ""},
		"versions":           {"go", `{"Versions":["v1.2.0","v1.10.0","v1.11.0-rc.1"]}`, "v1.10.0"},
		"pre-releases alone": {"go", `{"Versions":["v1.11.0-rc.1"]}`, ""},
		"no versions":        {"go", `{}`, ""},
		"wrong type":         {"go", `{"Versions":{}}`, ""},
	} {
		t.Run(label, func(t *testing.T) {
			got, err := read[c.by]([]byte(c.in))
			if got != c.want || (err == nil) != (c.want != "") {
				t.Errorf("%q, %v", got, err)
			}
		})
	}
	if _, err := newest([]byte(`{}`), "m", true); !errors.Is(err, ErrNoRelease) {
		t.Error(err)
	}
}

func FuzzAnswers(f *testing.F) {
	for _, s := range []string{"maf-sandbox-mst==1.2.3\n", `{"install":[{"metadata":{"name":"maf-sandbox-mst","version":"1.0"}}]}`, `{"Versions":["v1.2.0"]}`, "[tool.options]\nx = 1\n[[tool.options.index]]\n"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		for _, read := range []func([]byte, string) (string, error){resolved, reported} {
			v, err := read(b, "maf-sandbox-mst")
			if err != nil {
				continue
			}
			if p, err := pep440.Parse(v); err != nil || p.String() != v {
				t.Errorf("%q is no version in normal form: %v", v, err)
			}
		}
		if v, err := newest(b, "m", true); err == nil {
			if p, err := (golang{}).parse(v); err != nil || p != v {
				t.Errorf("%q is no version in normal form: %v", v, err)
			}
		}
		if out := receiptOptions(b); len(out) > len(b)+1 {
			t.Errorf("%d bytes of options from %d", len(out), len(b))
		}
	})
}

func TestQuotedWordsReachTheShellUnchanged(t *testing.T) {
	sh, err := exec.LookPath("sh")
	if err != nil {
		t.Skip("needs sh")
	}
	for _, word := range []string{"", "plain", "two words", "it's", `"$(id)" \ ;&|<>*?~#!` + "`", "-n", "ü", "a\nb"} {
		out, err := exec.Command(sh, "-c", "printf %s. "+quote(word)).Output()
		if err != nil || string(out) != word+"." {
			t.Errorf("%q came as %q, %v", word, out, err)
		}
	}
	if got := quoteFor("windows", `C:\Program Files\it's`); got != `'C:\Program Files\it''s'` {
		t.Error(got)
	}
	if got := quoteFor("windows", `C:\bin`); got != `C:\bin` {
		t.Error(got)
	}
}

func TestAProgramIsReplacedInOneStepOrTheOldOneStays(t *testing.T) {
	for _, goos := range []string{"linux", "windows"} {
		t.Run(goos, func(t *testing.T) {
			dir := t.TempDir()
			target, file := filepath.Join(dir, "mst"), filepath.Join(dir, "new")
			for path, text := range map[string]string{target: "old", file: "new", target + "~": "older"} {
				if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			if err := replace(target, file, goos); err != nil {
				t.Fatal(err)
			}
			if b, err := os.ReadFile(target); err != nil || string(b) != "new" {
				t.Errorf("%q, %v", b, err)
			}
			if err := replace(target, filepath.Join(dir, "gone"), goos); err == nil {
				t.Error("replaced by nothing")
			}
			if b, err := os.ReadFile(target); err != nil || string(b) != "new" {
				t.Errorf("after a failure: %q, %v", b, err)
			}
		})
	}
}

func TestOutputIsBounded(t *testing.T) {
	var h head
	var e end
	chunk := []byte(strings.Repeat("x", 1000) + "y")
	for range maxOutput/len(chunk) + 2 {
		for _, w := range []interface{ Write([]byte) (int, error) }{&h, &e} {
			if n, err := w.Write(chunk); n != len(chunk) || err != nil {
				t.Fatal(n, err)
			}
		}
	}
	if len(h.b) != maxOutput || !h.cut || len(e.b) != maxTail || e.b[len(e.b)-1] != 'y' {
		t.Errorf("kept %d and %d bytes, cut %v", len(h.b), len(e.b), h.cut)
	}
}
