package test

import "github.com/maf-sandbox/maf-sandbox-go/internal/platform/kvmvm"

func hasKVM() bool {
	p, err := kvmvm.New()
	return err == nil && p.Close() == nil
}
