package image

import (
	"bytes"
	"cmp"
	"path"
	"slices"
	"strings"
)

// scrubber takes host paths out of captured files.
type scrubber struct{ rules []rule }

// rule replaces one host path.
type rule struct {
	from string
	// text is what text files get.
	text string
	// binary is what other files get; it is as long as from.
	binary string
	// strict asks for a boundary in front of a match, since a path of one
	// component, such as /root, may also be the end of a longer one.
	strict bool
}

// add makes a rule for a host path. keep is the part at its end that has to
// stay in binary files.
//
// A path in an ELF file is overwritten by one of the same length and keeps its
// last component, because linkers store a string that ends like another one
// inside it: CPython's version "3.13.0" is the end of the prefix
// ".../versions/3.13.0" and would be lost if the string were shortened. The
// guest finds libraries by LD_LIBRARY_PATH and its prefix by landmarks, so
// such a path need not lead anywhere.
func (s *scrubber) add(from, to, keep string) {
	if !personal(from) || slices.ContainsFunc(s.rules, func(r rule) bool { return r.from == from }) {
		return
	}
	mask := to
	if len(path.Join(to, keep)) > len(from) {
		mask = ""
	}
	mask += strings.Repeat("/", len(from)-len(mask)-len(keep)) + keep
	s.rules = append(s.rules, rule{from, to, mask, strings.Count(from, "/") == 1})
	// A folder goes before what contains it.
	slices.SortStableFunc(s.rules, func(a, b rule) int { return cmp.Compare(len(b.from), len(a.from)) })
}

// personal reports whether a path may tell something about this host. Folders
// that every system has do not, and replacing them would break programs.
func personal(p string) bool {
	if p == "/root" {
		return true
	}
	if !cleanPath(p) || strings.Count(p, "/") < 2 {
		return false
	}
	top, _, _ := strings.Cut(p[1:], "/")
	switch top {
	case "usr", "bin", "lib", "lib64", "sbin", "etc", "dev", "proc", "sys", "run":
		return strings.Count(p, "/") > 3 // /usr/local/lib and the like are shared
	}
	return p != "/var/tmp" && p != "/var/lib" && p != "/var/cache"
}

// scrub returns data without host paths; it copies before it changes.
func (s *scrubber) scrub(data []byte, isELF bool) []byte {
	if !isELF && bytes.IndexByte(data, 0) >= 0 {
		return data // neither text nor ELF: nothing says how it may be changed
	}
	for _, r := range s.rules {
		to := r.text
		if isELF {
			to = r.binary
		}
		data = r.apply(data, to)
	}
	return data
}

func (r rule) apply(data []byte, to string) []byte {
	var out []byte
	done := 0
	for at := 0; ; {
		i := bytes.Index(data[at:], []byte(r.from))
		if i < 0 {
			break
		}
		lo, hi := at+i, at+i+len(r.from)
		at = hi
		if continues(data[hi:]) || r.strict && continued(data[:lo]) {
			continue
		}
		if out == nil {
			out = make([]byte, 0, len(data)+len(to))
		}
		out = append(append(out, data[done:lo]...), to...)
		done = hi
	}
	if out == nil {
		return data
	}
	return append(out, data[done:]...)
}

// continues reports whether a path component goes on at the start of b.
func continues(b []byte) bool {
	if len(b) > 1 && b[0] == '.' {
		return wordByte(b[1])
	}
	return len(b) > 0 && wordByte(b[0])
}

// continued reports whether b ends in the beginning of a longer path, or in that
// of a closing tag (</root>). A compiler's flag (-I/root) and a file URL
// (file:///root) are neither.
func continued(b []byte) bool {
	n := len(b)
	if n == 0 || bytes.HasSuffix(b, []byte("://")) || n >= 2 && b[n-2] == '-' && wordByte(b[n-1]) {
		return false
	}
	return wordByte(b[n-1]) || strings.IndexByte("/.~)}]$%*<", b[n-1]) >= 0
}

func wordByte(c byte) bool {
	return c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c == '_' || c == '-' || c >= 0x80
}

// newScrubber makes the rules for one capture. Every path is given as the host
// spells it; homes are the user's home folders.
// The first rule for a path wins: an environment may be the prefix itself.
func newScrubber(prefixes, venvs, sources, homes []string) *scrubber {
	s := new(scrubber)
	for _, p := range prefixes {
		keep := path.Base(p)
		if slices.Contains(homes, p) {
			keep = "" // the last component is the user's name
		}
		s.add(p, "/usr", keep)
	}
	for _, p := range venvs {
		s.add(p, "/usr", "")
	}
	for _, p := range sources {
		s.add(p, "/usr/src/python", "")
	}
	for _, p := range homes {
		s.add(p, "/home", "")
	}
	return s
}
