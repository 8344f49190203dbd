//go:build linux

package supervise

import "testing"

func TestAStartErrorSaysOnceWhatAWorkerHasToldOnBothWays(t *testing.T) {
	for _, r := range []struct {
		e    StartError
		want string
	}{
		{StartError{Message: "no machine"}, "start of a worker: no machine"},
		{StartError{Message: "no machine", Diagnostics: "x\nmaf-sandbox-worker: no machine\n"}, "start of a worker: no machine"},
		{StartError{Message: "EOF", Diagnostics: "maf-sandbox-worker: jail: not jailed\n"}, "start of a worker: EOF: maf-sandbox-worker: jail: not jailed"},
	} {
		if got := r.e.Error(); got != r.want {
			t.Errorf("got %q, want %q", got, r.want)
		}
	}
}
