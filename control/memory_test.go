package control_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/maf-sandbox/maf-sandbox-go/control"
)

func TestGetTellsOneFromNoneAndFromSeveral(t *testing.T) {
	ctx := context.Background()
	memory := control.NewMemory(record("one"), record("twin"), record("twin"))
	h := newHosted()
	for _, kind := range []string{"python", "codeact", "other"} {
		if _, err := h.acquire(kind); err != nil {
			t.Fatal(err)
		}
	}
	boxes := h.backend.boxes()
	boxes[0].rename("one")
	boxes[1].rename("twin")
	boxes[2].rename("twin")
	for name, c := range map[string]control.Control{"memory": memory, "host": h.control(free, true)} {
		if r, found, err := c.Get(ctx, "one"); err != nil || !found || r.InstanceID != "one" {
			t.Errorf("%s: Get = %+v, %v, %v", name, r, found, err)
		}
		if _, found, err := c.Get(ctx, "none"); err != nil || found {
			t.Errorf("%s: Get of none: %v, %v", name, found, err)
		}
		if _, found, err := c.Get(ctx, "twin"); !errors.Is(err, control.ErrDuplicate) || found {
			t.Errorf("%s: Get of two: %v, %v", name, found, err)
		}
		if result, err := c.Dispose(ctx, "twin", 0); err != nil || result.Status != control.DisposalFailed || result.Message != twice {
			t.Errorf("%s: Dispose of two: %+v, %v", name, result, err)
		}
	}
	_, m := started(t, control.ServerConfig{Control: memory})
	client, err := control.NewClient(m)
	if err != nil {
		t.Fatal(err)
	}
	if _, found, err := client.Get(ctx, "twin"); !errors.Is(err, control.ErrDuplicate) || found {
		t.Errorf("client: Get of two: %v, %v", found, err)
	}
}

func TestTheDemonstrationIsThePeers(t *testing.T) {
	records := control.DemoRecords("mst-demo", time.Unix(now, 0))
	if len(records) != 3 || records[0].LogicalName() != "tenant-labs/incident-184/analyst" || records[0].CreatedAt != now-184 {
		t.Errorf("%+v", records)
	}
	callScoped := record("x")
	if got := callScoped.LogicalName(); got != "tenant/ä b/t 1/analyst/call-7" {
		t.Errorf("the logical name is %q", got)
	}
}

func TestOnlyTheProtocolsStatesAreStates(t *testing.T) {
	for _, state := range control.States() {
		if got, err := control.ParseState(string(state)); err != nil || got != state {
			t.Errorf("%s: %v, %v", state, got, err)
		}
	}
	for _, word := range []string{"", "READY", "exited"} {
		if _, err := control.ParseState(word); !errors.Is(err, control.ErrInvalidMessage) {
			t.Errorf("%q: %v", word, err)
		}
	}
}
