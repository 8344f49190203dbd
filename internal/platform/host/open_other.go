//go:build !(linux && amd64)

package host

import (
	"fmt"

	"github.com/maf-sandbox/maf-sandbox-go/internal/platform"
)

func openKVM() (Platform, error) {
	return nil, fmt.Errorf("%w: virtual machines need Linux on x86-64", platform.ErrUnavailable)
}

func openPtrace() (Platform, error) {
	return nil, fmt.Errorf("%w: traced processes need Linux on x86-64", platform.ErrUnavailable)
}
