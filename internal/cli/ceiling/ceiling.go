// Package ceiling finds out how this machine can keep a sandbox's worker
// process under its memory ceiling.
package ceiling

import "github.com/maf-sandbox/maf-sandbox-go/microvm"

// Offer is one enforcement and whether it can be had here.
type Offer struct {
	Enforcement microvm.Enforcement
	// Err is why it cannot be had; nil when it can, as far as looking tells.
	Err error
	// Mend are the commands that an operator types to have it, in order; none
	// where no command can.
	Mend []string
}

// Strongest gives the first enforcement of the offers that can be had.
func Strongest(offers []Offer) microvm.Enforcement {
	for _, o := range offers {
		if o.Err == nil {
			return o.Enforcement
		}
	}
	return microvm.EnforceRlimit // it needs nobody's permission
}
