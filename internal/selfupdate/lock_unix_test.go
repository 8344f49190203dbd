//go:build unix

package selfupdate

import (
	"errors"
	"testing"
)

func TestASecondUpdateOfTheSameInstallationIsRefusedWhileOneIsUnderWay(t *testing.T) {
	for name, c := range map[string]struct {
		owner   func(*testing.T, *world) Options
		install string
	}{
		"uv":   {func(t *testing.T, w *world) Options { return w.uv(t, "1.0") }, "uv tool install"},
		"pipx": {func(t *testing.T, w *world) Options { return w.pipx(t, "1.0", pipxOrdinary) }, "pipx install --upgrade"},
		"go":   {func(t *testing.T, w *world) Options { return w.goInstall(t, "1.0.0") }, "go install"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			o := c.owner(t, w)
			first := w.answers[c.install]
			installs := 0
			w.answers[c.install] = answer{do: func(cmd Command) {
				installs++
				if _, err := Run(t.Context(), o); !errors.Is(err, ErrBusy) {
					t.Errorf("the second one: %v", err)
				}
				if first.do != nil {
					first.do(cmd)
				}
			}}
			if _, err := Run(t.Context(), o); err != nil {
				t.Fatal(err)
			}
			if installs != 1 {
				t.Errorf("%d installations", installs)
			}
			// Whoever comes afterwards is let in.
			w.answers[c.install] = first
			if _, err := Run(t.Context(), o); err != nil {
				t.Errorf("afterwards: %v", err)
			}
		})
	}
}

func TestAFailedUpdateLetsTheNextOneIn(t *testing.T) {
	w := newWorld(t)
	o := w.uv(t, "1.0")
	w.answers["uv tool install"] = answer{err: errors.New("no")}
	for range 2 {
		if err := runErr(t, o); errors.Is(err, ErrBusy) {
			t.Fatal(err)
		}
	}
}
