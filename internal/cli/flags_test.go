package cli

import (
	"strings"
	"testing"
	"time"
)

func TestParseSizeReadsUnitsAndPlainBytes(t *testing.T) {
	for _, r := range []struct {
		in   string
		want int64
		ok   bool
	}{
		{"256MiB", 256 << 20, true}, {"1GiB", 1 << 30, true}, {"64KiB", 64 << 10, true}, {"12345", 12345, true},
		{"7B", 7, true}, {"0", 0, true},
		{"", 0, false}, {"MiB", 0, false}, {"-1", 0, false}, {"+1", 0, false}, {"1.5GiB", 0, false}, {" 1", 0, false},
		{"1 MiB", 0, false}, {"1_000", 0, false}, {"0x10", 0, false}, {"1MB", 0, false}, {"1e9", 0, false},
		{"9223372036854775807", 1<<63 - 1, true}, {"9223372036854775808", 0, false}, {"9223372036854775807KiB", 0, false},
	} {
		got, err := ParseSize(r.in)
		if got != r.want || (err == nil) != r.ok {
			t.Errorf("ParseSize(%q) = %d, %v; want %d, ok %v", r.in, got, err, r.want, r.ok)
		}
	}
}

func TestFormatSizeUsesTheLargestExactUnit(t *testing.T) {
	for n, want := range map[int64]string{0: "0 bytes", 1: "1 byte", 1000: "1000 bytes", 1 << 10: "1KiB", 3 << 20: "3MiB", 1 << 30: "1GiB", 1<<20 + 1: "1048577 bytes"} {
		if got := FormatSize(n); got != want {
			t.Errorf("FormatSize(%d) = %q, want %q", n, got, want)
		}
	}
}

func TestTimesAreWrittenWithoutUnitsThatAreZero(t *testing.T) {
	for _, want := range []string{"500ms", "30s", "2m", "2m5s", "10m", "24h", "1h30m", "20h10m", "1h0m5s", "1.5s"} {
		var d Duration
		if err := d.Set(want); err != nil || d.String() != want {
			t.Errorf("%s is written %s, %v", want, &d, err)
		}
		if again, err := time.ParseDuration(d.String()); err != nil || again != d.Value {
			t.Errorf("%s is read as %v, %v", want, again, err)
		}
	}
}

func TestAChoiceNamesItsWordsWhenItRefuses(t *testing.T) {
	c := Choice{Value: "a", Choices: []string{"a", "b", "c"}}
	if err := c.Set("d"); err == nil || !strings.Contains(err.Error(), "want a, b or c") || c.Value != "a" {
		t.Errorf("%v, %q", err, c.Value)
	}
	if err := c.Set("b"); err != nil || c.Value != "b" {
		t.Errorf("%v, %q", err, c.Value)
	}
}

func FuzzParseSize(f *testing.F) {
	for _, s := range []string{"256MiB", "1", "", "9223372036854775807GiB", "-1"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if n, err := ParseSize(s); err == nil && n < 0 {
			t.Errorf("ParseSize(%q) = %d", s, n)
		}
	})
}
