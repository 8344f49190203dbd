package worker

import (
	"errors"
	"testing"

	"github.com/maf-sandbox/maf-sandbox-go/internal/engine"
	"github.com/maf-sandbox/maf-sandbox-go/internal/wire"
)

func TestAnEngineThatCannotBeHadIsToldFromAnImageThatCannot(t *testing.T) {
	_, _, err := new(machine).serve(t.Context(), wire.Start{Engine: "none"})
	var failed *engine.Error
	if !errors.As(err, &failed) || failed.Kind != engine.KindNoPlatform || !errors.Is(err, engine.ErrUnavailable) {
		t.Errorf("got %v", err)
	}
	if d := failure(err); d.Kind != "no_platform" {
		t.Errorf("the host hears %+v", d)
	}
}
