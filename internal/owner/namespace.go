package owner

import (
	"errors"
	"fmt"
	"strings"
)

// ErrNamespace says that a name is not a namespace.
var ErrNamespace = errors.New("not an ownership namespace")

// MaxNamespace is the longest name of a namespace, in bytes.
const MaxNamespace = 64

// DefaultNamespace is that of hosts that name none.
const DefaultNamespace = "default"

// CheckNamespace says whether a name can be a namespace: 1 to MaxNamespace
// letters, digits, dots, underscores and hyphens of ASCII, starting with a
// letter or a digit.
func CheckNamespace(name string) error {
	if name == "" || len(name) > MaxNamespace {
		return fmt.Errorf("%w: a name has 1 to %d bytes, not %d", ErrNamespace, MaxNamespace, len(name))
	}
	for i, c := range []byte(name) {
		letter := 'a' <= c|0x20 && c|0x20 <= 'z' || '0' <= c && c <= '9'
		if !letter && (i == 0 || !strings.ContainsRune("._-", rune(c))) {
			return fmt.Errorf("%w: %q at byte %d of %q; letters, digits, and after the first also '.', '_' and '-'", ErrNamespace, c, i+1, name)
		}
	}
	return nil
}
