package main

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"
)

func TestProgramsTakeTurnsAndAreReportedInOrder(t *testing.T) {
	var order strings.Builder
	work := task{name: "x", times: 3, do: func(_ context.Context, p program, n int) ([]time.Duration, error) {
		order.WriteString(p.name)
		if n != 3 {
			t.Errorf("n is %d", n)
		}
		return []time.Duration{time.Duration(order.Len()) * time.Millisecond}, nil
	}}
	got, err := work.measure(t.Context(), []program{{name: "a"}, {name: "b"}})
	if err != nil || order.String() != "ababab" {
		t.Fatalf("%q, %v", order.String(), err)
	}
	if len(got) != 2 || len(got[0]) != 3 || got[0][0] != 1 || got[1][2] != 6 {
		t.Errorf("measured %v", got)
	}
	if at(got[1], 50) != "4.0" || at(got[1], 99) != "6.0" {
		t.Errorf("median %s, p99 %s", at(got[1], 50), at(got[1], 99))
	}
}

func TestAProgramThatFailsIsNamed(t *testing.T) {
	broken := errors.New("broken")
	work := task{times: 1, do: func(_ context.Context, p program, _ int) ([]time.Duration, error) {
		if p.name == "b" {
			return nil, broken
		}
		return []time.Duration{1}, nil
	}}
	if _, err := work.measure(t.Context(), []program{{name: "a"}, {name: "b"}}); !errors.Is(err, broken) || !strings.HasPrefix(err.Error(), "b: ") {
		t.Error(err)
	}
}

func TestAProgramThatTakesTooLongDoesNotStopTheOthers(t *testing.T) {
	work := task{times: 3, do: func(_ context.Context, p program, _ int) ([]time.Duration, error) {
		if p.name == "slow" {
			return nil, errPatience
		}
		return []time.Duration{time.Millisecond}, nil
	}}
	got, err := work.measure(t.Context(), []program{{name: "slow"}, {name: "quick"}})
	if err != nil || len(got[0]) != 0 || len(got[1]) != 3 || at(got[0], 50) != "not within 2m0s" {
		t.Errorf("%v, %v", got, err)
	}
}

func TestSandboxesOfTheCrowdAreToldApart(t *testing.T) {
	seen := make(map[string]bool)
	last := ""
	for _, r := range records(many) {
		if key := r.LogicalName(); key <= last {
			t.Fatalf("%s comes after %s", key, last)
		}
		last = r.LogicalName()
		seen[r.InstanceID] = true
	}
	if len(seen) != many {
		t.Errorf("%d ids", len(seen))
	}
}
