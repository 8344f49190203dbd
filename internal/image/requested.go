//go:build unix

package image

import (
	"path"
	"strings"
)

// Requested are the packages that whoever made the environment asked for, by their
// NormalName; others are there because those need them. Installers note it in a
// file beside the metadata (PEP 376, "REQUESTED"); it is empty where they do not.
// It reads the index.
func (im *Image) Requested() map[string]bool {
	requested := map[string]bool{}
	for _, dir := range im.manifest.SitePackages {
		for _, name := range im.ReadDir(dir) {
			base, isInfo := strings.CutSuffix(name, ".dist-info")
			dash := strings.LastIndexByte(base, '-') // before the version
			if !isInfo || dash < 0 {
				continue
			}
			if _, ok := im.Lookup(path.Join(dir, name, "REQUESTED")); ok {
				requested[NormalName(base[:dash])] = true
			}
		}
	}
	return requested
}

// NormalName is a package's name in the form that PEP 503 compares: small letters,
// and a hyphen for each run of '-', '_' and '.'.
func NormalName(name string) string {
	var b strings.Builder
	separated := false
	for _, c := range []byte(name) {
		switch {
		case c == '-' || c == '_' || c == '.':
			if separated {
				continue
			}
			c = '-'
		case c >= 'A' && c <= 'Z':
			c += 'a' - 'A'
		}
		separated = c == '-'
		b.WriteByte(c)
	}
	return b.String()
}
