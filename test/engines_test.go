package test

import "github.com/maf-sandbox/maf-sandbox-go/internal/platform/host"

// has says whether this machine has an engine.
func has(engine string) bool {
	p, _, err := host.Open(engine)
	return err == nil && p.Close() == nil
}
