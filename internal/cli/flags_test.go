package cli

import (
	"testing"
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
	for n, want := range map[int64]string{0: "0 bytes", 1: "1 bytes", 1000: "1000 bytes", 1 << 10: "1KiB", 3 << 20: "3MiB", 1 << 30: "1GiB", 1<<20 + 1: "1048577 bytes"} {
		if got := FormatSize(n); got != want {
			t.Errorf("FormatSize(%d) = %q, want %q", n, got, want)
		}
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
