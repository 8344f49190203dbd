package microvm

import (
	"fmt"

	"github.com/maf-sandbox/maf-sandbox-go/internal/egress"
	"github.com/maf-sandbox/maf-sandbox-go/sandbox"
)

// Bounds of the requests that programs make of the network.
const (
	// MaxHTTPBody bounds the body of a request, and that of an answer, in bytes.
	MaxHTTPBody = egress.DefaultBodyBytes
	// MaxHTTPTime bounds a request from its beginning to its answer.
	MaxHTTPTime = egress.DefaultTime
)

// Facts are what the image of a spec says of itself. Nothing is started or
// captured for it: before the first capture of this machine's Python, and when
// that has changed since, the error is sandbox.ErrUnavailable, and none after
// [Backend.Prepare]. Packages that somebody asked for come first. Facts stay true
// while the backend has a sandbox of the image, or a spare one; later its name may
// stand for another.
func (b *Backend) Facts(spec sandbox.Spec) (sandbox.Facts, error) {
	name := b.imageOf(spec)
	facts, err := b.system.facts(b.config, name.name, name.id)
	if err == nil {
		err = facts.Validate()
	}
	if err != nil {
		return sandbox.Facts{}, fmt.Errorf("facts of the image: %w", err)
	}
	return facts, nil
}
