package host

import (
	"github.com/maf-sandbox/maf-sandbox-go/internal/platform/kvmvm"
	"github.com/maf-sandbox/maf-sandbox-go/internal/platform/ptrace"
)

func openKVM() (Platform, error) {
	p, err := kvmvm.New()
	if err != nil {
		return nil, err // not a nil *kvmvm.Platform in an interface
	}
	return p, nil
}

func openPtrace() (Platform, error) {
	p, err := ptrace.New()
	if err != nil {
		return nil, err
	}
	return p, nil
}
