package mcp

import (
	"net/http"
	"strconv"
	"testing"
)

func TestAStreamIsOpenForOneRequestAndTheStreamsOfASessionAreBounded(t *testing.T) {
	var g gets
	var releases []func()
	begin := func(session, stream string, want int) {
		t.Helper()
		release, err := g.begin(session, stream)
		switch {
		case err == nil && want == 0:
			releases = append(releases, release)
		case err == nil || err.status != want:
			t.Errorf("stream %q of %q: got %v, want status %d", stream, session, err, want)
		}
	}
	begin("a", "", 0)
	begin("a", "", http.StatusConflict)
	for n := 1; n < maxGets; n++ {
		begin("a", strconv.Itoa(n), 0)
	}
	begin("a", "more", http.StatusTooManyRequests)
	begin("a", "1", http.StatusConflict)
	begin("b", "1", 0)
	releases[1]()
	begin("a", "more", 0)
	for i, release := range releases {
		if i != 1 {
			release()
		}
	}
	if len(g.open) != 0 {
		t.Errorf("%d sessions are left", len(g.open))
	}
}
