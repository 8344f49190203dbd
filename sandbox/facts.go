package sandbox

import (
	"fmt"
	"strings"
)

// Bounds of Facts.
const (
	// MaxPackages bounds Facts.Packages.
	MaxPackages = 4096
	// MaxPackageBytes bounds a package's name, and its version.
	MaxPackageBytes = 100
)

// Facts are what can be said of the Python of a backend's sandboxes before there
// is one. The zero value is for those who know nothing.
type Facts struct {
	// ImageID is the image that they are true of, in the backend's terms.
	ImageID string
	// Python is the version, such as "3.13.0"; empty when nothing is known.
	Python string
	// Packages are the distributions beside the standard library, the more
	// interesting first.
	Packages []Package
	// MorePackages counts those that are there and cannot be named, such as one
	// whose name is none.
	MorePackages int
}

// Package is an installed distribution. Its name may not be the one that programs
// import.
type Package struct {
	// Name is normal in the sense of PEP 503, such as "scikit-learn".
	Name string
	// Version is one of PEP 440, such as "1.7.2".
	Version string
}

// Known says whether anything is known.
func (f Facts) Known() bool { return f.Python != "" }

// Validate reports the first problem of the facts: a [*RefusalError] that matches
// [ErrInvalid]. What is valid has no spaces, lines or quotation marks, so that it
// stays a list of names in a text for a model, whoever made the packages.
func (f Facts) Validate() error {
	switch {
	case f.Python == "" && (len(f.Packages) > 0 || f.MorePackages != 0):
		return invalid("facts.python", "none beside packages", "a version, or nothing at all")
	case f.Python != "" && !isVersion(f.Python):
		return invalid("facts.python", fmt.Sprintf("%q", cut(f.Python)), "a version such as 3.13.0")
	case len(f.Packages) > MaxPackages:
		return invalid("facts.packages", fmt.Sprintf("%d of them", len(f.Packages)), fmt.Sprintf("up to %d", MaxPackages))
	case f.MorePackages < 0:
		return invalid("facts.more_packages", fmt.Sprint(f.MorePackages), "zero or more")
	}
	for i, p := range f.Packages {
		if err := p.Validate(); err != nil {
			return fmt.Errorf("package %d: %w", i, err)
		}
	}
	return checkName("facts.image_id", f.ImageID, false)
}

// Validate says what is wrong with a package: a [*RefusalError] that matches
// [ErrInvalid].
func (p Package) Validate() error {
	switch {
	case !isDistribution(p.Name):
		return invalid("package.name", fmt.Sprintf("%q", cut(p.Name)), "a name as PEP 503 makes it normal, such as scikit-learn")
	case !isVersion(p.Version):
		return invalid("package.version", fmt.Sprintf("%q", cut(p.Version)), "a normal version of PEP 440, such as 1.7.2")
	}
	return nil
}

// isDistribution accepts words of small letters and digits with single hyphens
// between (PEP 503, "Normalized Names").
func isDistribution(s string) bool { return len(s) <= MaxPackageBytes && areWords(s, "-") }

// isVersion accepts the normal forms of PEP 440, N!N.N.NaN.postN.devN+local, of
// which all but the first number of the release may be missing. Numbers may have
// leading zeros, as those of dates do.
func isVersion(s string) bool {
	if len(s) > MaxPackageBytes {
		return false
	}
	s, local, isLocal := strings.Cut(s, "+")
	if isLocal && !areWords(local, "-_.") {
		return false
	}
	if epoch, rest, found := strings.Cut(s, "!"); found {
		if left, ok := cutNumber(epoch); !ok || left != "" {
			return false
		}
		s = rest
	}
	s, ok := cutNumber(s)
	for ok {
		after, dot := strings.CutPrefix(s, ".")
		rest, number := cutNumber(after)
		if !dot || !number {
			break
		}
		s = rest
	}
	for _, part := range [][]string{{"a", "b", "rc"}, {".post"}, {".dev"}} {
		for _, tag := range part {
			if rest, found := strings.CutPrefix(s, tag); found && ok {
				s, ok = cutNumber(rest)
				break
			}
		}
	}
	return ok && s == ""
}

// cutNumber cuts the digits off that s must begin with.
func cutNumber(s string) (rest string, ok bool) {
	rest = strings.TrimLeft(s, "0123456789")
	return rest, rest != s
}

// areWords accepts words of small letters and digits, with one separator between
// each two.
func areWords(s, separators string) bool {
	inWord := false
	for _, c := range []byte(s) {
		alnum := c >= 'a' && c <= 'z' || c >= '0' && c <= '9'
		if !alnum && (!inWord || strings.IndexByte(separators, c) < 0) {
			return false
		}
		inWord = alnum
	}
	return inWord
}
