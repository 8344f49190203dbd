//go:build !(linux && amd64)

package microvm

import (
	"context"
	"errors"
	"runtime"

	"github.com/maf-sandbox/maf-sandbox-go/sandbox"
)

// thisSystem refuses: there is no engine for it.
type thisSystem struct{}

func (thisSystem) refuse() error {
	return unavailable("sandboxes need Linux on x86-64, and this is "+runtime.GOOS+" on "+runtime.GOARCH, errors.ErrUnsupported)
}

func (thisSystem) isolation(Engine) sandbox.Isolation { return sandbox.IsolationUnset }

func (s thisSystem) own(Config) (ownership, error) { return nil, s.refuse() }

func (s thisSystem) image(context.Context, Config, string, string) (string, error) {
	return "", s.refuse()
}

func (s thisSystem) facts(Config, string, string) (sandbox.Facts, error) {
	return sandbox.Facts{}, s.refuse()
}

func (s thisSystem) launch(Config, string, string, ownership) (supervisor, error) {
	return nil, s.refuse()
}
