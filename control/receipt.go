package control

import (
	"context"
	"sync"
	"time"

	"github.com/maf-sandbox/maf-sandbox-go/sandbox"
)

// Router is what an exact disposal needs of the host's router. Values of the
// context must reach the backends: that is how a monitor knows which disposal
// it confirms.
type Router interface {
	// DisposeKind disposes of the sandbox of the key and kind if it is still
	// the generation with the id, within the timeout. An error means that a
	// backend failed.
	DisposeKind(ctx context.Context, key sandbox.Key, kind, instanceID string, timeout time.Duration) error
}

type receiptKey struct{}

// receipt is what monitored backends confirmed in one exact disposal.
type receipt struct {
	key     sandbox.Key
	options sandbox.DisposeOptions

	mu       sync.Mutex
	answers  int // backends that said that they disposed; guarded by mu
	observed int // workers that were observed to be gone; guarded by mu
}

// withReceipt has disposals under the context write on the receipt.
func withReceipt(ctx context.Context, r *receipt) context.Context {
	return context.WithValue(ctx, receiptKey{}, r)
}

// receiptOf is nil outside of an exact disposal.
func receiptOf(ctx context.Context) *receipt {
	r, _ := ctx.Value(receiptKey{}).(*receipt)
	return r
}

// add notes an answer to exactly what the receipt is about.
func (r *receipt) add(key sandbox.Key, options sandbox.DisposeOptions, observed int) {
	if r == nil || r.key != key || r.options != options {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.answers++
	r.observed += observed
}

// read gives the number of answers and of workers that are gone.
func (r *receipt) read() (answers, observed int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.answers, r.observed
}
