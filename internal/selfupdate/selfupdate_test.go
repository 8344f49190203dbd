package selfupdate

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func runErr(t *testing.T, o Options) error {
	t.Helper()
	r, err := Run(t.Context(), o)
	if err == nil {
		t.Fatalf("no error, but %+v", r)
	}
	return err
}

func stepError(t *testing.T, err error) *StepError {
	t.Helper()
	var s *StepError
	if !errors.As(err, &s) {
		t.Fatalf("no error of a step: %v", err)
	}
	return s
}

func TestRunReports(t *testing.T) {
	uv := func(t *testing.T, w *world, v string) Options { return w.uv(t, v) }
	gox := func(t *testing.T, w *world, v string) Options { return w.goInstall(t, v) }
	pip := func(t *testing.T, w *world, v string) Options { return w.pipx(t, v, pipxOrdinary) }
	for name, c := range map[string]struct {
		owner   func(*testing.T, *world, string) Options
		current string
		change  func(*Options)
		want    string // JSON without the installation
		runs    string // the start of a command that must run
		text    string
	}{
		"a newer one is there":    {uv, "1.0", check, `{"status":"update_available","current_version":"1.0","latest_version":"2.0","channel":"stable"`, "uv pip compile", "MST 2.0 is available; 1.0 is installed."},
		"the newest is installed": {uv, "2.0", check, `{"status":"current","current_version":"2.0","latest_version":"2.0","channel":"stable"`, "uv pip compile", "MST 2.0 is already installed."},
		"newer than the index": {uv, "3.0rc1", check, `{"status":"newer_than_index","current_version":"3.0rc1","latest_version":"2.0","channel":"stable"`, "uv pip compile",
			"MST 3.0rc1 is installed; it is newer than 2.0, the newest stable release."},
		"equal versions written differently": {uv, "v2.0.0", check, `{"status":"current","current_version":"2.0.0","latest_version":"2.0","channel":"stable"`, "uv pip compile", "MST 2.0.0 is already installed."},
		"pre-releases": {pip, "1.0", func(o *Options) { o.Check, o.Prerelease = true, true }, `{"status":"update_available","current_version":"1.0","latest_version":"2.0","channel":"prerelease"`,
			"pipx runpip maf-sandbox-mst install --dry-run --no-deps --ignore-installed --only-binary=:all: --disable-pip-version-check --quiet --report - maf-sandbox-mst --pre", ""},
		"no release": {gox, "(devel)", check, `{"status":"update_available","current_version":"(devel)","latest_version":"1.10.0","channel":"stable"`, "go list", ""},
		"a checkout after a release": {gox, "v1.10.1-0.20260101000000-abcdefabcdef+dirty", check,
			`{"status":"newer_than_index","current_version":"1.10.1-0.20260101000000-abcdefabcdef","latest_version":"1.10.0","channel":"stable"`, "go list", ""},
		"uv updates":                  {uv, "1.0", nil, `{"status":"updated","previous_version":"1.0","installed_version":"2.0"`, "uv tool install --refresh-package maf-sandbox-mst maf-sandbox-mst@2.0", "MST was updated from 1.0 to 2.0."},
		"uv rolls back":               {uv, "3.0", to("2.0"), `{"status":"downgraded","previous_version":"3.0","installed_version":"2.0"`, "uv tool install", "MST was rolled back from 3.0 to 2.0."},
		"pipx updates":                {pip, "1.0", nil, `{"status":"updated","previous_version":"1.0","installed_version":"2.0"`, "pipx install --upgrade maf-sandbox-mst==2.0", ""},
		"go updates":                  {gox, "1.0.0", nil, `{"status":"updated","previous_version":"1.0.0","installed_version":"1.10.0"`, "go install example.org/console/cmd/mst@v1.10.0", ""},
		"go rolls back":               {gox, "v1.11.0", to("1.10.0"), `{"status":"downgraded","previous_version":"1.11.0","installed_version":"1.10.0"`, "go install", ""},
		"never back unasked":          {uv, "3.0", nil, `{"status":"current","previous_version":"3.0","installed_version":"3.0"`, "uv pip compile", "MST 3.0 is already installed."},
		"the wanted one is installed": {gox, "1.10.0", to("v1.10.0"), `{"status":"current","previous_version":"1.10.0","installed_version":"1.10.0"`, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			o := c.owner(t, w, c.current)
			if c.change != nil {
				c.change(&o)
			}
			r, err := Run(t.Context(), o)
			if err != nil {
				t.Fatal(err)
			}
			b, err := json.Marshal(r)
			if err != nil {
				t.Fatal(err)
			}
			if got := string(b); !strings.HasPrefix(got, c.want+`,"installation":{"manager":"`) || !r.Installation.SelfUpdatable {
				t.Errorf("%s\nwant %s", got, c.want)
			}
			if c.runs != "" && !w.ranOne(c.runs) || c.runs == "" && len(w.ran) > 0 {
				t.Errorf("%q did not run, but %q", c.runs, w.commands())
			}
			if o.Check && w.ranOne("mst") {
				t.Error("a check started the program")
			}
			if got := r.Text("MST"); c.text != "" && got != c.text {
				t.Errorf("%q", got)
			}
		})
	}
}

func check(o *Options) { o.Check = true }

func to(v string) func(*Options) { return func(o *Options) { o.To = v } }

func TestOptionsThatMakeNoSenseRunNothing(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*Options)
		want   error
	}{
		"check and version": {func(o *Options) { o.Check, o.To = true, "1.0" }, ErrOptions},
		"negative time":     {func(o *Options) { o.Timeout = -1 }, ErrOptions},
		"no version":        {to("x y"), ErrVersion},
		"a flag":            {to("--index-url=http://evil"), ErrVersion},
		"a long version":    {to(strings.Repeat("1", 1000)), ErrVersion},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			for _, o := range []Options{w.uv(t, "1.0"), w.goInstall(t, "1.0.0")} {
				c.change(&o)
				if err := runErr(t, o); !errors.Is(err, c.want) {
					t.Error(err)
				}
			}
			if len(w.ran) > 0 {
				t.Errorf("ran %q", w.commands())
			}
		})
	}
	for _, query := range []string{"latest", "1", "1.2", "main", "1.2.3+build", "../../x", "upgrade"} {
		w := newWorld(t)
		o := w.goInstall(t, "1.0.0")
		o.To = query
		if err := runErr(t, o); !errors.Is(err, ErrVersion) {
			t.Errorf("%q: %v", query, err)
		}
	}
}

func TestEveryStepHasItsTimeOut(t *testing.T) {
	for name, c := range map[string]struct {
		timeout time.Duration
		want    map[string]time.Duration
	}{
		"the steps' own": {0, map[string]time.Duration{"uv tool dir": limits[StepProbe], "uv pip": limits[StepLookup], "uv tool install": limits[StepInstall], "mst": limits[StepVerify]}},
		"the operator's": {3 * time.Hour, map[string]time.Duration{"uv tool dir": 3 * time.Hour, "uv pip": 3 * time.Hour, "uv tool install": 3 * time.Hour, "mst": 3 * time.Hour}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			o := w.uv(t, "1.0")
			o.Timeout = c.timeout
			seen := 0
			o.Runner = func(ctx context.Context, cmd Command) (Output, error) {
				left, ok := ctx.Deadline()
				for start, want := range c.want {
					if !strings.HasPrefix(cmd.String(), start) {
						continue
					}
					seen++
					// A minute for a machine that stands still.
					if d := time.Until(left); !ok || d > want || d < want-time.Minute {
						t.Errorf("%s has %v, want %v", cmd, d, want)
					}
				}
				return w.run(ctx, cmd)
			}
			if _, err := Run(t.Context(), o); err != nil {
				t.Fatal(err)
			}
			if seen != len(c.want) {
				t.Errorf("%d steps: %q", seen, w.commands())
			}
		})
	}
}

func TestAStepOutOfTimeSaysWhichAndHowToGoOn(t *testing.T) {
	w := newWorld(t)
	o := w.uv(t, "1.0")
	o.Timeout = time.Nanosecond
	o.Runner = func(ctx context.Context, _ Command) (Output, error) {
		<-ctx.Done()
		return Output{}, ctx.Err()
	}
	err := runErr(t, o)
	if s := stepError(t, err); s.Step != StepProbe || s.Timeout != time.Nanosecond || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("%+v", s)
	}
	o.Timeout = 0
	o.Runner = func(ctx context.Context, c Command) (Output, error) {
		if strings.HasPrefix(c.String(), "uv tool install") {
			return Output{}, errors.New("exit status 1")
		}
		return w.run(ctx, c)
	}
	if s := stepError(t, runErr(t, o)); s.Step != StepInstall || s.Retry != "uv tool install maf-sandbox-mst@2.0" {
		t.Errorf("%+v", s)
	}
}

func TestCancellingEndsTheUpdate(t *testing.T) {
	for _, step := range []string{"uv tool dir", "uv pip compile", "uv tool install", "mst version"} {
		t.Run(step, func(t *testing.T) {
			w := newWorld(t)
			o := w.uv(t, "1.0")
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			a := w.answers[step]
			a.err = context.Canceled
			a.do = func(Command) { cancel() }
			w.answers[step] = a
			if step == "mst version" {
				w.answers["mst version --json"] = a
			}
			r, err := Run(ctx, o)
			if !errors.Is(err, context.Canceled) {
				t.Errorf("%+v, %v", r, err)
			}
			if last := w.commands()[len(w.ran)-1]; !strings.HasPrefix(last, step) {
				t.Errorf("after the cancellation: %s", last)
			}
		})
	}
}

func TestAfterAnUpdateAFreshProcessMustGiveTheVersion(t *testing.T) {
	for name, c := range map[string]struct {
		answer answer
		got    string
	}{
		"the old version":   {answer{out: `{"version":"1.0"}`}, `"1.0"`},
		"no version":        {answer{out: `{}`}, `""`},
		"no JSON":           {answer{out: "mst 2.0\n"}, ""},
		"it does not start": {answer{err: errors.New("exec format error")}, ""},
		"a hostile version": {answer{out: `{"version":"\u001b[2J2.0"}`}, `"\x1b[2J2.0"`},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			o := w.uv(t, "1.0")
			w.answers["mst version --json"] = c.answer
			err := runErr(t, o)
			var v *VerifyError
			if !errors.As(err, &v) || !errors.Is(err, ErrVerify) {
				t.Fatal(err)
			}
			if v.Got != c.got || v.Want != "2.0" || v.Undo != "uv tool install maf-sandbox-mst@1.0" {
				t.Errorf("%+v", v)
			}
			if !strings.HasSuffix(err.Error(), "to go back: "+v.Undo) {
				t.Error(err)
			}
		})
	}
}

func TestGoInstallReplacesNothingBeforeTheNewBinaryHasGivenItsVersion(t *testing.T) {
	for name, damage := range map[string]func(w *world){
		"another version": func(w *world) { w.answer("mst version --json", `{"version":"1.0.0"}`) },
		"build fails": func(w *world) {
			w.answers["go install"] = answer{err: errors.New("exit status 1"), stderr: "syntax error"}
		},
		"nothing built": func(w *world) { w.answer("go install", "") },
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			o := w.goInstall(t, "1.0.0")
			damage(w)
			_ = runErr(t, o)
			if b, err := os.ReadFile(o.Executable); err != nil || string(b) != "old" {
				t.Errorf("the program is %q, %v", b, err)
			}
			if left, err := os.ReadDir(w.path("gobin")); err != nil || len(left) != 1 {
				t.Errorf("left behind: %v, %v", left, err)
			}
		})
	}
	w := newWorld(t)
	o := w.goInstall(t, "1.0.0")
	if _, err := Run(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	if b, err := os.ReadFile(o.Executable); err != nil || string(b) != "new" {
		t.Errorf("the program is %q, %v", b, err)
	}
}

// Above the temporary folder other users can put files: what package managers
// search upwards for is in the folder already.
func TestProcessesRunWhereSearchesUpwardsEnd(t *testing.T) {
	w := newWorld(t)
	o := w.uv(t, "1.0")
	ran := 0
	o.Runner = func(ctx context.Context, c Command) (Output, error) {
		ran++
		for _, name := range []string{"uv.toml", "pyproject.toml", "go.mod"} {
			if info, err := os.Lstat(filepath.Join(c.Dir, name)); err != nil || !info.Mode().IsRegular() {
				t.Errorf("%s runs without a %s of its own: %v", c, name, err)
			}
		}
		if info, err := os.Stat(c.Dir); err != nil || info.Mode().Perm() != 0o700 {
			t.Errorf("%s runs in a folder of mode %v: %v", c, info.Mode(), err)
		}
		return w.run(ctx, c)
	}
	if _, err := Run(t.Context(), o); err != nil || ran != 4 {
		t.Errorf("%d processes ran: %v", ran, err)
	}
}

func TestProcessesRunInAFolderOfTheirOwnThatGoesAway(t *testing.T) {
	w := newWorld(t)
	o := w.uv(t, "1.0")
	w.file(t, "tools/maf-sandbox-mst/"+uvReceipt, "[tool.options]\nindex-url = \"x\"\n")
	if _, err := Run(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	for _, c := range w.ran {
		if !strings.HasPrefix(c.Dir, w.path("tmp")) {
			t.Errorf("%s ran in %s", c, c.Dir)
		}
		if _, err := os.Stat(c.Dir); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s is still there: %v", c.Dir, err)
		}
	}
}

func TestProgressNamesEveryProcessBeforeItStarts(t *testing.T) {
	w := newWorld(t)
	o := w.uv(t, "1.0")
	var said []string
	o.Progress = func(s Step, text string) {
		if len(w.ran) != len(said) {
			t.Errorf("%s was said after its start", text)
		}
		said = append(said, string(s)+" "+text)
	}
	if _, err := Run(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	if len(said) != 4 || said[0] != "probe uv tool dir" || said[2] != "install uv tool install --refresh-package maf-sandbox-mst maf-sandbox-mst@2.0" || said[3] != "verify mst version --json" {
		t.Errorf("%q", said)
	}
}
