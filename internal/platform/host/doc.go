// Package host opens what this machine has to run guests with.
package host

import (
	"errors"
	"fmt"
	"io"

	"github.com/maf-sandbox/maf-sandbox-go/internal/platform"
)

// Platform is an open platform.
type Platform interface {
	platform.Platform
	io.Closer
}

// Names of engines, as users give them.
const (
	// Auto takes KVM where it is usable and else Ptrace.
	Auto   = "auto"
	KVM    = "kvm"
	Ptrace = "ptrace"
)

// Names are all that Open knows.
func Names() []string { return []string{Auto, KVM, Ptrace} }

// ErrName is an engine's name that there is not.
var ErrName = errors.New("no such engine")

// Open opens the platform of an engine's name. An error of one that this
// machine cannot offer wraps platform.ErrUnavailable and says what is missing.
// What Auto passes over Open says, so that nobody gets less than KVM without
// being told: fallback is why KVM is not used, nil when it is.
func Open(name string) (p Platform, fallback error, err error) {
	switch name {
	case KVM:
		p, err = openKVM()
		return p, nil, err
	case Ptrace:
		p, err = openPtrace()
		return p, nil, err
	case Auto:
		if p, err = openKVM(); err == nil {
			return p, nil, nil
		}
		fallback = err
		if p, err = openPtrace(); err != nil {
			return nil, nil, errors.Join(fallback, err)
		}
		return p, fallback, nil
	}
	return nil, nil, fmt.Errorf("%w: %.40q; there are %v", ErrName, name, Names())
}
