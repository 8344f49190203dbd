package test

import (
	"bytes"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// documents are those that name tests and scripts.
var documents = []string{"SPECIFICATION.md", "RATIONALE.md", "docs/restore-contract.md", "docs/threat-model.md", "docs/control-protocol.md"}

// Every test, subtest and script that the documents name is there.
func TestDocumentsNameTestsThatExist(t *testing.T) {
	var sources bytes.Buffer
	err := filepath.WalkDir("..", func(p string, _ fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(p, "_test.go") {
			return err
		}
		b, err := os.ReadFile(p)
		sources.Write(b)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, doc := range documents {
		b, err := os.ReadFile(filepath.Join("..", doc))
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range regexp.MustCompile("`((?:Test|Fuzz)[A-Za-z0-9]+)(?:/([^`]+))?`").FindAllSubmatch(b, -1) {
			if !bytes.Contains(sources.Bytes(), append([]byte("func "), append(m[1], '(')...)) {
				t.Errorf("%s names %s, which does not exist", doc, m[1])
			}
			// The name of a subtest is a string of the source.
			if len(m[2]) > 0 && !bytes.Contains(sources.Bytes(), append([]byte{'"'}, append(m[2], '"')...)) {
				t.Errorf("%s names %s, which does not exist", doc, m[0])
			}
		}
		for _, m := range regexp.MustCompile("`(test/script/[a-z_]+\\.txtar)`").FindAllSubmatch(b, -1) {
			if _, err := os.Stat(filepath.Join("..", string(m[1]))); err != nil {
				t.Errorf("%s: %v", doc, err)
			}
		}
	}
}
