package mcp_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/maf-sandbox/maf-sandbox-go/internal/mcp"
)

func TestTokensComeFromAFileOfTheirOwnersAlone(t *testing.T) {
	for _, r := range []struct {
		name, text string
		mode       os.FileMode
		want, err  string
	}{
		{"a token", token, 0o600, token, ""},
		{"a line", token + "\n", 0o400, token, ""},
		{"a line of Windows", token + "\r\n", 0o600, token, ""},
		{"readable by a group", token, 0o640, "", "open to other users (mode 640): chmod 600 it"},
		{"readable by all", token, 0o604, "", "open to other users"},
		{"short", "0123456789abcde\n", 0o600, "", "want 16 to 1024 characters"},
		{"empty", "", 0o600, "", "openssl rand -hex 32"},
		{"long", strings.Repeat("x", mcp.MaxToken+5), 0o600, "", "want 16 to 1024 characters"},
		{"two lines", token + "\n" + token, 0o600, "", "printable ASCII"},
		{"a space", token + " ", 0o600, "", "printable ASCII"},
		{"beyond ASCII", token + "ü", 0o600, "", "printable ASCII"},
	} {
		t.Run(r.name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "token")
			if err := os.WriteFile(file, []byte(r.text), 0o600); err != nil {
				t.Fatal(err)
			}
			if err := os.Chmod(file, r.mode); err != nil {
				t.Fatal(err)
			}
			got, err := mcp.ReadToken(file)
			if got != r.want || (err == nil) != (r.err == "") || err != nil && !strings.Contains(err.Error(), r.err) {
				t.Errorf("got %q, %v; want %q, %q", got, err, r.want, r.err)
			}
		})
	}
	for _, file := range []string{t.TempDir(), filepath.Join(t.TempDir(), "none")} {
		if got, err := mcp.ReadToken(file); err == nil {
			t.Errorf("%s: got %q", file, got)
		}
	}
}
