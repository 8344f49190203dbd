package liveness

import "testing"

type worker struct{ report Report }

func (w *worker) Liveness() Report { return w.report }

func TestASandboxThatReportsNothingIsUnknown(t *testing.T) {
	if got := Of(struct{}{}); got != (Report{}) {
		t.Errorf("Of = %+v", got)
	}
	if got := Of(nil); got != (Report{}) {
		t.Errorf("Of(nil) = %+v", got)
	}
	want := Report{Running, 7}
	if got := Of(&worker{want}); got != want {
		t.Errorf("Of = %+v, want %+v", got, want)
	}
}

func TestEveryStateHasAName(t *testing.T) {
	seen := map[string]bool{}
	for s := Unknown; s <= Exited; s++ {
		if name := s.String(); name == "" || seen[name] {
			t.Errorf("state %d is %q", s, name)
		} else {
			seen[name] = true
		}
	}
	if got := State(200).String(); got != "unknown" {
		t.Errorf("a state that does not exist is %q", got)
	}
}
