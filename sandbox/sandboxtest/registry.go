package sandboxtest

import "github.com/maf-sandbox/maf-sandbox-go/internal/places"

// Registry holds the sandboxes in memory by key and kind. Backends that share
// one see each other's sandboxes, as those of one host process do. The zero
// value is empty and ready.
type Registry struct{ places.Registry[box] }
