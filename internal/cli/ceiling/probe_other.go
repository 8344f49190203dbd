//go:build !linux

package ceiling

// Probe finds nothing: sandboxes need Linux.
func Probe() []Offer { return nil }
