package wheel

import (
	"fmt"
	"slices"
	"strings"
)

// Target is a system and processor that Go builds for, with the platform tags
// under which installers know it.
type Target struct {
	OS, Arch string
	// platforms are sorted.
	platforms []string
}

// targets are all that wheels are made for. A static Go binary needs neither
// glibc nor musl, so it carries the tags of both, of their oldest releases that
// have platform tags (PEP 600, PEP 656). Go 1.26 runs on macOS 12 and newer.
var targets = []Target{
	{"darwin", "amd64", []string{"macosx_12_0_x86_64"}},
	{"darwin", "arm64", []string{"macosx_12_0_arm64"}},
	{"linux", "amd64", []string{"manylinux2014_x86_64", "manylinux_2_17_x86_64", "musllinux_1_1_x86_64"}},
	{"linux", "arm64", []string{"manylinux2014_aarch64", "manylinux_2_17_aarch64", "musllinux_1_1_aarch64"}},
	{"windows", "amd64", []string{"win_amd64"}},
	{"windows", "arm64", []string{"win_arm64"}},
}

// Targets lists all targets.
func Targets() []Target { return slices.Clone(targets) }

// ParseTarget reads a target written OS/ARCH, in Go's names.
func ParseTarget(s string) (Target, error) {
	var known []string
	for _, t := range targets {
		if t.String() == s {
			return t, nil
		}
		known = append(known, t.String())
	}
	return Target{}, fmt.Errorf("%w: target %q; there are %s", ErrInvalid, s, strings.Join(known, ", "))
}

// String gives OS/ARCH.
func (t Target) String() string { return t.OS + "/" + t.Arch }

// tag is the compressed tag set: any Python 3, no ABI.
func (t Target) tag() string { return "py3-none-" + strings.Join(t.platforms, ".") }

func (t Target) suffix() string {
	if t.OS == "windows" {
		return ".exe"
	}
	return ""
}
