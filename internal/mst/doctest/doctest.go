// Package doctest keeps the parts of a document that a program can make equal
// to what it makes.
package doctest

import (
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// Block fails unless the part of a document between the lines
//
//	<!-- begin NAME -->
//	<!-- end NAME -->
//
// is want; with update it is written anew.
func Block(t *testing.T, path, name, want string, update bool) {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	begin, end := "<!-- begin "+name+" -->\n", "<!-- end "+name+" -->\n"
	before, rest, found := strings.Cut(string(b), begin)
	got, after, ended := strings.Cut(rest, end)
	if !found || !ended {
		t.Fatalf("%s has no lines %q and %q", path, begin, end)
	}
	if update && got != want {
		if err := os.WriteFile(path, []byte(before+begin+want+end+after), 0o600); err != nil {
			t.Fatal(err)
		}
		return
	}
	if diff := cmp.Diff(got, want); diff != "" {
		t.Errorf("%s: %q is not what the program makes (-document +program); go test -update mends it:\n%s", path, name, diff)
	}
}
