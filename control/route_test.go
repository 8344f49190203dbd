package control

import (
	"slices"
	"testing"
)

// As urllib.parse.parse_qs does with keep_blank_values, which the peers use.
func TestAQueryIsReadAsThePeersReadIt(t *testing.T) {
	for _, tt := range []struct {
		query string
		want  []string
	}{
		{"", nil},
		{"timeout=5.0", []string{"5.0"}},
		{"other=1&timeout=2", []string{"2"}},
		{"&&timeout=2&", []string{"2"}},
		{"timeout=1&timeout=2", []string{"1", "2"}},
		{"timeout=1;timeout=2", []string{"1;timeout=2"}},
		{"timeout=5&a;b", []string{"5"}},
		{"timeout=%zz", []string{"%zz"}},
		{"timeout=1%", []string{"1%"}},
		{"x=%zz&timeout=abc", []string{"abc"}},
		{"%74imeout=3", []string{"3"}},
		{"%zz=1&timeout=3", []string{"3"}},
		{"+timeout=3", nil},
		{"timeout=+5", []string{" 5"}},
		{"timeout=%2B5", []string{"+5"}},
		{"timeout=%ff", []string{"\uFFFD"}},
		{"timeout=1=2", []string{"1=2"}},
		{"timeout=", []string{""}},
		{"timeout", []string{""}},
		{"=timeout", nil},
	} {
		if got := queryTimeouts(tt.query); !slices.Equal(got, tt.want) {
			t.Errorf("%q has %q, want %q", tt.query, got, tt.want)
		}
	}
}
