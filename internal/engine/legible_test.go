//go:build linux

package engine

import (
	"testing"
	"time"
)

func TestALimitIsToldAsItWasAskedFor(t *testing.T) {
	for in, want := range map[time.Duration]string{
		500 * time.Millisecond:                   "500ms",
		499997502 * time.Nanosecond:              "500ms",
		30*time.Second - 40*time.Microsecond:     "30s",
		5*time.Millisecond + 250*time.Nanosecond: "5.00025ms",
		12345678 * time.Microsecond:              "12.346s",
	} {
		if got := legible(in).String(); got != want {
			t.Errorf("%v is told as %s, want %s", in, got, want)
		}
	}
}
