//go:build linux && amd64

package engine_test

import (
	"path/filepath"
	"runtime"
	"testing"

	"github.com/maf-sandbox/maf-sandbox-go/internal/engine"
)

// maxStartHeap is what a start from a kept template may take of the heap, in
// bytes; it takes some 180 KiB. Garbage counts: an idle worker collects none.
const maxStartHeap = 256 << 10

func TestAStartFromAKeptTemplateTakesLittleHeap(t *testing.T) {
	cache := filepath.Join(t.TempDir(), "templates")
	kept := func(c *engine.Config) { c.Cache = cache }
	template(t, kept).Sync()
	if engine := template(t, kept).Info().Engine; engine != "kvm" {
		t.Skipf("the bound is that of a worker with KVM; here it is %s", engine)
	}
	// That was the first of this process, which keeps some things for all others.
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	tm := template(t, kept)
	machine(t, tm)
	runtime.ReadMemStats(&after)
	if !tm.Info().Cached {
		t.Fatal("the template was not kept")
	}
	if took := after.TotalAlloc - before.TotalAlloc; took > maxStartHeap {
		t.Errorf("a start took %d bytes of the heap; it may take %d", took, maxStartHeap)
	}
}
