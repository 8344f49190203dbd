//go:build linux && amd64

package microvm

import (
	"errors"
	"strings"
	"testing"

	"github.com/maf-sandbox/maf-sandbox-go/internal/image"
	"github.com/maf-sandbox/maf-sandbox-go/internal/owner"
	"github.com/maf-sandbox/maf-sandbox-go/sandbox"
)

func TestWorkersMakeSureThatTheirImageIsTheOneAskedFor(t *testing.T) {
	c, err := live(t).withDefaults()
	if err != nil {
		t.Fatal(err)
	}
	lock, err := owner.AcquirePrivate()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = lock.Release() })
	system := thisSystem{}
	file, err := system.image(t.Context(), c, c.Image, "")
	if err != nil {
		t.Fatal(err)
	}
	im, err := image.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	id := im.ID()
	if err := im.Close(); err != nil {
		t.Fatal(err)
	}
	for _, asked := range []string{id, strings.Repeat("0", 64)} {
		// The file was looked at before, and is another one by now.
		s, err := system.launch(c, file, asked, lock)
		if err != nil {
			t.Fatal(err)
		}
		_, err = s.Acquire(t.Context())
		var refusal *sandbox.RefusalError
		switch {
		case asked == id && err != nil:
			t.Error(err)
		case asked != id && (!errors.As(err, &refusal) || !errors.Is(err, sandbox.ErrNotSupported) ||
			refusal.Subject != "spec.image_id" || !strings.Contains(refusal.Allowed, id)):
			t.Errorf("another image: %v", err)
		}
		if err := s.Close(t.Context()); err != nil {
			t.Error(err)
		}
	}
}
