package selfupdate

import (
	"errors"
	"strings"

	"golang.org/x/mod/semver"

	"github.com/maf-sandbox/maf-sandbox-go/internal/wheel/pep440"
)

// scheme is how an index writes and orders versions.
type scheme interface {
	// parse gives the normal form.
	parse(s string) (string, error)
	// compare takes normal forms; anything else is before all of them.
	compare(a, b string) int
	// show gives the form for people and JSON.
	show(v string) string
}

// python is the scheme of wheels.
type python struct{}

func (python) parse(s string) (string, error) {
	v, err := pep440.Parse(s)
	return v.String(), err
}

func (python) compare(a, b string) int {
	v, errA := pep440.Parse(a)
	w, errB := pep440.Parse(b)
	switch {
	case errA != nil && errB != nil:
		return 0
	case errA != nil:
		return -1
	case errB != nil:
		return 1
	}
	return v.Compare(w)
}

func (python) show(v string) string { return v }

// golang is the scheme of Go modules. Its normal form has the leading "v".
type golang struct{}

var errSemver = errors.New("a version is written 1.2.3 or 1.2.3-rc.1 (https://semver.org)")

func (golang) parse(s string) (string, error) {
	s = "v" + strings.TrimPrefix(strings.TrimSpace(s), "v")
	// The go command understands v1 and v1.2 as queries, not as versions. Build
	// metadata is no part of a released version.
	if len(s) > pep440.MaxLength || !semver.IsValid(s) || semver.Canonical(s) != s {
		return "", errSemver
	}
	return s, nil
}

func (golang) compare(a, b string) int { return semver.Compare(a, b) }

func (golang) show(v string) string {
	if !semver.IsValid(v) {
		return v
	}
	return strings.TrimPrefix(v, "v")
}
