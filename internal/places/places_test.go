package places

import (
	"context"
	"errors"
	"testing"

	"github.com/maf-sandbox/maf-sandbox-go/sandbox"
)

func place(agent, kind string) Place {
	return Place{Key: sandbox.Key{Scope: "s", ThreadID: "t", AgentID: agent}, Kind: kind}
}

func TestTurnsAtAPlaceComeOneAfterAnother(t *testing.T) {
	var r Registry[int]
	first, err := r.Enter(t.Context(), place("a", "k"))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := r.Enter(ctx, place("a", "k")); !errors.Is(err, context.Canceled) {
		t.Errorf("a second turn: %v", err)
	}
	if other, err := r.Enter(t.Context(), place("a", "other")); err != nil {
		t.Errorf("another place: %v", err)
	} else {
		r.Leave(other)
	}
	r.Leave(first)
	again, err := r.Enter(t.Context(), place("a", "k"))
	if err != nil {
		t.Fatal(err)
	}
	r.Leave(again)
}

func TestAPlaceIsForgottenWhenItIsEmptyAndUnused(t *testing.T) {
	var r Registry[int]
	all := func(Place, *int) bool { return true }
	s, err := r.Enter(t.Context(), place("a", "k"))
	if err != nil {
		t.Fatal(err)
	}
	if got := r.Find(all); len(got) != 1 {
		t.Errorf("an acquire under way is not seen: %v", got)
	}
	n := 1
	r.Put(s, &n)
	r.Leave(s)
	if got := r.Find(func(_ Place, v *int) bool { return v != nil && *v == 1 }); len(got) != 1 {
		t.Errorf("what is there is not seen: %v", got)
	}
	if s, err = r.Enter(t.Context(), place("a", "k")); err != nil || s.Thing() != &n {
		t.Fatalf("thing %v, %v", s.Thing(), err)
	}
	r.Put(s, nil)
	r.Leave(s)
	if got := r.Find(all); len(got) != 0 || len(r.slots) != 0 {
		t.Errorf("left behind: %v", got)
	}
}

func TestPlacesAreFoundInAFixedOrder(t *testing.T) {
	var r Registry[int]
	for _, p := range []Place{place("b", "k"), place("a", "z"), place("a", "k")} {
		s, err := r.Enter(t.Context(), p)
		if err != nil {
			t.Fatal(err)
		}
		defer r.Leave(s)
	}
	got := r.Find(func(Place, *int) bool { return true })
	if len(got) != 3 || got[0] != place("a", "k") || got[1] != place("a", "z") || got[2] != place("b", "k") {
		t.Errorf("order %v", got)
	}
}
