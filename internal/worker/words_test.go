package worker

import (
	"context"
	"errors"
	"io/fs"
	"testing"

	"github.com/maf-sandbox/maf-sandbox-go/internal/engine"
)

func TestAFailureIsToldWithItsCauseUnlessThatIsTheEndOfAContext(t *testing.T) {
	for _, r := range []struct {
		err           error
		kind, message string
	}{
		{&engine.Error{Kind: engine.KindUnavailable, Message: "no virtual machine", Cause: fs.ErrPermission}, "unavailable", "no virtual machine: permission denied"},
		{&engine.Error{Kind: engine.KindTimeout, Message: "time limit of 1s reached", Cause: context.DeadlineExceeded}, "timeout", "time limit of 1s reached"},
		{&engine.Error{Kind: engine.KindCanceled, Message: "canceled", Cause: context.Canceled}, "canceled", "canceled"},
		{errors.New("odd"), "internal", "odd"},
	} {
		if d := failure(r.err); d.Kind != r.kind || d.Message != r.message {
			t.Errorf("%v: got %q, %q", r.err, d.Kind, d.Message)
		}
	}
}
