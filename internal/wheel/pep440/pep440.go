// Package pep440 reads and orders version numbers of Python packages.
//
// The grammar and the order are those of PEP 440, appendix B and "Summary of
// permitted suffixes and relative ordering". A version of the form v1.2.3-rc.1,
// as Go modules have, is a valid spelling of 1.2.3rc1 there.
package pep440

import (
	"cmp"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// MaxLength bounds the text of a version, in bytes. Real ones are shorter than
// 100.
const MaxLength = 256

// ErrInvalid is the class of errors of Parse.
var ErrInvalid = errors.New("invalid version")

// form is the regular expression of PEP 440, appendix B.
var form = regexp.MustCompile(`^\s*v?` +
	`(?:([0-9]+)!)?` + // 1 epoch
	`([0-9]+(?:\.[0-9]+)*)` + // 2 release
	`(?:[-_.]?(alpha|a|beta|b|preview|pre|c|rc)[-_.]?([0-9]+)?)?` + // 3, 4 pre-release
	`(?:-([0-9]+)|([-_.]?(?:post|rev|r))[-_.]?([0-9]+)?)?` + // 5, 6, 7 post-release
	`(?:([-_.]?dev)[-_.]?([0-9]+)?)?` + // 8, 9 development release
	`(?:\+([a-z0-9]+(?:[-_.][a-z0-9]+)*))?` + // 10 local
	`\s*$`)

var preTags = map[string]string{"alpha": "a", "a": "a", "beta": "b", "b": "b", "c": "rc", "rc": "rc", "pre": "rc", "preview": "rc"}

// Version is a version number. Numbers are decimal texts without leading
// zeros, so that no foreign number overflows.
type Version struct {
	epoch   string
	release []string
	preTag  string // a, b, rc or empty
	pre     string
	post    string // empty if this is no post-release
	dev     string // empty if this is no development release
	local   []string
}

// Parse reads a version in any spelling that PEP 440 permits.
func Parse(s string) (Version, error) {
	if len(s) > MaxLength {
		return Version{}, fmt.Errorf("%w: longer than %d bytes", ErrInvalid, MaxLength)
	}
	m := form.FindStringSubmatch(strings.ToLower(s))
	if m == nil {
		return Version{}, fmt.Errorf("%w: %q", ErrInvalid, s)
	}
	v := Version{epoch: number(m[1]), preTag: preTags[m[3]]}
	for n := range strings.SplitSeq(m[2], ".") {
		v.release = append(v.release, number(n))
	}
	if v.preTag != "" {
		v.pre = number(m[4])
	}
	if m[5] != "" || m[6] != "" {
		v.post = number(m[5] + m[7])
	}
	if m[8] != "" {
		v.dev = number(m[9])
	}
	for part := range strings.FieldsFuncSeq(m[10], func(r rune) bool { return strings.ContainsRune("-_.", r) }) {
		if isNumber(part) {
			part = number(part)
		}
		v.local = append(v.local, part)
	}
	return v, nil
}

// String gives the normal form.
func (v Version) String() string {
	if v.release == nil {
		return ""
	}
	var s strings.Builder
	if v.epoch != "0" {
		s.WriteString(v.epoch + "!")
	}
	s.WriteString(strings.Join(v.release, "."))
	s.WriteString(v.preTag + v.pre)
	if v.post != "" {
		s.WriteString(".post" + v.post)
	}
	if v.dev != "" {
		s.WriteString(".dev" + v.dev)
	}
	if v.local != nil {
		s.WriteString("+" + strings.Join(v.local, "."))
	}
	return s.String()
}

// Prerelease says whether an installer takes v only when asked for
// pre-releases.
func (v Version) Prerelease() bool { return v.preTag != "" || v.dev != "" }

// Local says whether v has a local part, which no index accepts.
func (v Version) Local() bool { return v.local != nil }

// Compare is negative when v is before w, zero when they are the same version
// (1.0 is 1.0.0) and positive when it is after w.
func (v Version) Compare(w Version) int {
	return cmp.Or(
		compareNumbers(v.epoch, w.epoch),
		compareReleases(v.release, w.release),
		v.comparePre(w),
		compareNumbers(v.post, w.post),
		compareDev(v.dev, w.dev),
		compareLocal(v.local, w.local),
	)
}

// comparePre orders 1.0.dev1 before 1.0a1, and that before 1.0 and 1.0.post1.
func (v Version) comparePre(w Version) int {
	rank := func(x Version) string {
		switch {
		case x.preTag != "":
			return x.preTag // a, b, rc
		case x.dev != "" && x.post == "":
			return ""
		}
		return "z"
	}
	return cmp.Or(cmp.Compare(rank(v), rank(w)), compareNumbers(v.pre, w.pre))
}

func compareReleases(a, b []string) int {
	for i := range max(len(a), len(b)) {
		x, y := "0", "0"
		if i < len(a) {
			x = a[i]
		}
		if i < len(b) {
			y = b[i]
		}
		if c := compareNumbers(x, y); c != 0 {
			return c
		}
	}
	return 0
}

// compareDev puts what is no development release last.
func compareDev(a, b string) int {
	if (a == "") != (b == "") {
		return cmp.Compare(b, a)
	}
	return compareNumbers(a, b)
}

// compareLocal puts words before numbers, and a prefix before what it begins.
func compareLocal(a, b []string) int {
	return slices.CompareFunc(a, b, func(x, y string) int {
		switch xn, yn := isNumber(x), isNumber(y); {
		case xn && yn:
			return compareNumbers(x, y)
		case xn:
			return 1
		case yn:
			return -1
		}
		return cmp.Compare(x, y)
	})
}

// compareNumbers orders decimal texts without leading zeros; empty comes first.
func compareNumbers(a, b string) int {
	return cmp.Or(cmp.Compare(len(a), len(b)), cmp.Compare(a, b))
}

func number(digits string) string {
	if digits = strings.TrimLeft(digits, "0"); digits == "" {
		return "0"
	}
	return digits
}

func isNumber(s string) bool {
	return s != "" && strings.Trim(s, "0123456789") == ""
}

var separators = regexp.MustCompile(`[-_.]+`)

// Name gives the normal form of a package's name (PEP 503): lower case, each
// run of "-", "_" and "." one "-".
func Name(name string) string {
	return strings.ToLower(separators.ReplaceAllString(name, "-"))
}
