package control_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/maf-sandbox/maf-sandbox-go/control"
)

// goneHost is a host that ended without a word, which its announcement's lock
// proves.
func goneHost() *control.HostError {
	return &control.HostError{SourceID: "killed", Message: "gone", Cause: fmt.Errorf("%w; cleared away later", control.ErrGone)}
}

// dying is a host that ends between two questions.
func dying() *scripted {
	return &scripted{
		list: func(context.Context) error { return goneHost() },
		purge: func(context.Context, string, string) (control.PurgeResult, error) {
			return control.PurgeResult{}, goneHost()
		},
	}
}

func TestAHostThatIsProvedToBeGoneBlocksNothingOnTheOthers(t *testing.T) {
	silentHost := &control.HostError{SourceID: "silent", Message: "no answer"}
	for _, tt := range []struct {
		name     string
		absent   []*control.HostError
		hosts    []*scripted
		disposal control.DisposalStatus
		purge    control.PurgeStatus
		message  string // of the purge
	}{
		{"gone", []*control.HostError{goneHost()}, []*scripted{having("one")}, control.Disposed, control.Purged, "Conversation purged across 1 host(s)."},
		{"going", nil, []*scripted{having("one"), dying()}, control.Disposed, control.Purged, "Conversation purged across 1 host(s)."},
		{"gone without the id", []*control.HostError{goneHost()}, []*scripted{having()}, control.NotFound, control.Purged, "Conversation purged across 1 host(s)."},
		{"gone beside a silent one", []*control.HostError{goneHost(), silentHost}, []*scripted{having("one")}, control.DisposalFailed, control.PurgePartial, "Conversation purge was incomplete on 1 host(s)."},
		{"nobody else", []*control.HostError{goneHost()}, nil, control.NotFound, control.PurgePartial, "No responsive MAF host could confirm the purge."},
		{"nobody else, going", nil, []*scripted{dying()}, control.NotFound, control.PurgePartial, "No responsive MAF host could confirm the purge."},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var members []control.Member
			for _, host := range tt.hosts {
				if host.purge == nil {
					host.purge = func(_ context.Context, scope, thread string) (control.PurgeResult, error) {
						return control.PurgeResult{Status: control.Purged, Scope: scope, ThreadID: thread}, nil
					}
				}
				members = append(members, control.Member{SourceID: "host", Control: host})
			}
			c := control.NewComposite(members, tt.absent)
			if got, err := c.Dispose(t.Context(), "one", 0); err != nil || got.Status != tt.disposal {
				t.Errorf("Dispose = %+v, %v, want %s", got, err, tt.disposal)
			}
			if got, err := c.Purge(t.Context(), "s", "t", 0); err != nil || got.Status != tt.purge || got.Message != tt.message {
				t.Errorf("Purge = %+v, %v, want %s: %s", got, err, tt.purge, tt.message)
			}
			// An inventory names it as ever.
			if _, err := c.List(t.Context()); !errors.Is(err, control.ErrGone) {
				t.Error("List does not name the host")
			}
		})
	}
}
