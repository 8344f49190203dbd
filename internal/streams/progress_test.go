package streams

import (
	"bytes"
	"strings"
	"testing"
	"time"
)

func TestProgressWritesNothingIntoPipes(t *testing.T) {
	s, _, errOut := Test("")
	p := s.Progress()
	p.Say("capturing")
	p.Done()
	p.Done()
	if errOut.Len() != 0 {
		t.Errorf("wrote %q", errOut)
	}
}

func TestProgressAppearsAfterASecondAndIsErased(t *testing.T) {
	s, _, _ := Test("")
	var screen bytes.Buffer
	s.ErrTTY, s.Err = true, &screen
	tick := make(chan time.Time)
	p := s.progress(tick, time.Second)
	p.Say("capturing\npython3")
	start := time.Unix(0, 0)
	tick <- start
	tick <- start.Add(900 * time.Millisecond)
	tick <- start.Add(1100 * time.Millisecond)
	tick <- start.Add(3 * time.Second)
	p.Done()
	lines := strings.Split(strings.TrimPrefix(screen.String(), "\r"), "\r")
	want := []string{"/ capturing python3 (1s)\x1b[K", "- capturing python3 (3s)\x1b[K", "\x1b[K"}
	if strings.Join(lines, "|") != strings.Join(want, "|") {
		t.Errorf("screen saw %q, want %q", lines, want)
	}
}

func TestProgressStaysSilentWhenQuick(t *testing.T) {
	s, _, errOut := Test("")
	s.ErrTTY = true
	tick := make(chan time.Time)
	p := s.progress(tick, time.Second)
	p.Say("booting")
	tick <- time.Unix(0, 0)
	p.Done()
	if errOut.Len() != 0 {
		t.Errorf("wrote %q", errOut)
	}
}

func TestProgressNeverWraps(t *testing.T) {
	if got := cut("abcdef", 3); got != "abc" {
		t.Errorf("cut = %q", got)
	}
}
