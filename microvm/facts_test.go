package microvm

import (
	"errors"
	"testing"

	"github.com/maf-sandbox/maf-sandbox-go/sandbox"
)

func TestFactsAreOfTheImageThatASandboxWouldGet(t *testing.T) {
	b := fakeBackend(t, &fakeSystem{python: "3."}, Config{Image: "1"})
	for _, c := range []struct {
		spec   sandbox.Spec
		python string // empty: refused
	}{
		{sandbox.Spec{}, "3.1"},
		{sandbox.Spec{Image: "2", ImageID: "x"}, "3.2"},
		{sandbox.Spec{Image: "2\nand more"}, ""},
	} {
		f, err := b.Facts(c.spec)
		if f.Python != c.python || f.ImageID != c.spec.ImageID || (c.python == "") != errors.Is(err, sandbox.ErrInvalid) {
			t.Errorf("%+v: %+v, %v", c.spec, f, err)
		}
	}
}
