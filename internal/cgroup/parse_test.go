package cgroup

import (
	"errors"
	"strings"
	"testing"
)

func TestMemoryEventsAreReadByKey(t *testing.T) {
	for _, c := range []struct {
		name, in string
		want     MemoryEvents
	}{
		{"Linux 5.10", "low 0\nhigh 0\nmax 18\noom 1\noom_kill 4\n", MemoryEvents{Max: 18, OOM: 1, OOMKill: 4}},
		{"Linux 6.12", "low 0\nhigh 0\nmax 18\noom 1\noom_kill 4\noom_group_kill 1\n", MemoryEvents{18, 1, 4, 1}},
		{"Linux 7.2", "low 0\nhigh 0\nmax 0\noom 0\noom_kill 0\noom_group_kill 0\nsock_throttled 3\n", MemoryEvents{}},
		{"another order", "oom_kill 1\nmax 2\noom 3", MemoryEvents{Max: 2, OOM: 3, OOMKill: 1}},
	} {
		got, err := parseMemoryEvents(c.in)
		if err != nil || got != c.want || got.Killed() != (c.want.OOMKill > 0) {
			t.Errorf("%s: %+v, %v", c.name, got, err)
		}
	}
	for _, in := range []string{"", "max 1\noom 1\n", "max 1\nmax 2\noom 1\noom_kill 1\n", "max -1\n", "max\n", " 1\n", "max 1 2\n", strings.Repeat("x", maxFile+1)} {
		if got, err := parseMemoryEvents(in); !errors.Is(err, ErrFormat) {
			t.Errorf("%.40q: %+v, %v", in, got, err)
		}
	}
}

func TestPopulatedIsReadByKey(t *testing.T) {
	for in, want := range map[string]bool{"populated 1\nfrozen 0\n": true, "frozen 1\npopulated 0\n": false} {
		if got, err := parsePopulated(in); err != nil || got != want {
			t.Errorf("%q: %v, %v", in, got, err)
		}
	}
	for _, in := range []string{"", "frozen 0\n", "populated 2\n", "populated\n"} {
		if _, err := parsePopulated(in); !errors.Is(err, ErrFormat) {
			t.Errorf("%q: %v", in, err)
		}
	}
}

func TestBytesAreReadWithMax(t *testing.T) {
	for in, want := range map[string]uint64{"max\n": 1<<64 - 1, "4096\n": 4096, "0": 0} {
		if got, err := parseBytes(in); err != nil || got != want {
			t.Errorf("%q: %v, %v", in, got, err)
		}
	}
	if _, err := parseBytes("4096 "); !errors.Is(err, ErrFormat) {
		t.Error(err)
	}
}

func FuzzEvents(f *testing.F) {
	f.Add("populated 1\nfrozen 0\n")
	f.Add("low 0\nhigh 0\nmax 18\noom 1\noom_kill 4\noom_group_kill 1\nsock_throttled 0\n")
	f.Add("populated 18446744073709551616\n")
	f.Add("\n\n")
	f.Fuzz(func(t *testing.T, s string) {
		m, err := parseKeyed(s)
		if err == nil && len(m) > len(s) {
			t.Errorf("%d keys from %d bytes", len(m), len(s))
		}
		_, err1 := parsePopulated(s)
		_, err2 := parseMemoryEvents(s)
		if err != nil && (err1 == nil || err2 == nil) {
			t.Error("a file that cannot be parsed was understood")
		}
		_, _ = parseBytes(s)
	})
}
