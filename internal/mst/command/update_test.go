package command

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strings"
	"testing"
	"time"

	"github.com/maf-sandbox/maf-sandbox-go/internal/selfupdate"
)

// uvTool is an installation by uv in a folder, of version 0.1.0; the newest one
// in its index is 0.5.0.
type uvTool struct {
	root    string
	limited bool // a process had a time limit of less than ten seconds
	ran     []string
}

func newUVTool(t *testing.T) *uvTool {
	t.Helper()
	root, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	u := &uvTool{root: root}
	for name, text := range map[string]string{"bin/mst": "", "pyvenv.cfg": "", "uv-receipt.toml": "[tool]\nrequirements = []\n"} {
		path := filepath.Join(u.prefix(), filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("HOME", root)
	t.Setenv("XDG_CACHE_HOME", filepath.Join(root, "cache"))
	stamped = "0.1.0"
	t.Cleanup(func() { stamped = "" })
	return u
}

func (u *uvTool) prefix() string { return filepath.Join(u.root, "tools", distribution) }

func (u *uvTool) run(ctx context.Context, c selfupdate.Command) (selfupdate.Output, error) {
	line := c.String()
	u.ran = append(u.ran, line)
	if end, there := ctx.Deadline(); there && time.Until(end) < 10*time.Second {
		u.limited = true
	}
	for start, out := range map[string]string{
		"uv tool dir": filepath.Join(u.root, "tools") + "\n", "uv pip compile": distribution + "==0.5.0\n", "uv tool install": "",
		"mst version --json": `{"version": "0.5.0"}`,
	} {
		if strings.HasPrefix(line, start) {
			return selfupdate.Output{Stdout: []byte(out)}, nil
		}
	}
	return selfupdate.Output{}, fmt.Errorf("no fake for %q", line)
}

// update runs the real update in this installation.
func (u *uvTool) update(ctx context.Context, o selfupdate.Options) (selfupdate.Report, error) {
	o.Executable, o.Build, o.Runner, o.OS = filepath.Join(u.prefix(), "bin", "mst"), &debug.BuildInfo{}, u.run, "linux"
	o.LookPath = func(name string) (string, error) { return "/tools/" + name, nil }
	o.Getenv = func(string) string { return "" }
	return selfupdate.Run(ctx, o)
}

// What was recorded of the Python program, with the real update behind it.
func TestUpdatesPassOnWhatWasAskedAndSayWhatCameOfIt(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("the installation that is made up here is one of Unix")
	}
	where := func(u *uvTool) string {
		return fmt.Sprintf("  \"installation\": {\n    \"manager\": \"uv-tool\",\n    \"self_updatable\": true,\n    \"prefix\": %q\n  }\n}\n", u.prefix())
	}
	for _, r := range []struct {
		args    string
		want    string // standard output; with the installation when it is JSON
		ran     string
		limited bool
	}{
		{"--check --timeout 5", "MST 0.5.0 is available; 0.1.0 is installed.\n", "--prerelease ", true},
		{"--check --json", "{\n  \"status\": \"update_available\",\n  \"current_version\": \"0.1.0\",\n  \"latest_version\": \"0.5.0\",\n  \"channel\": \"stable\",\n", "uv pip compile", false},
		{"--check --prerelease --json", "{\n  \"status\": \"update_available\",\n  \"current_version\": \"0.1.0\",\n  \"latest_version\": \"0.5.0\",\n  \"channel\": \"prerelease\",\n", "--prerelease allow", false},
		{"--to 0.1.0 --json", "{\n  \"status\": \"current\",\n  \"previous_version\": \"0.1.0\",\n  \"installed_version\": \"0.1.0\",\n", "", false},
		{"--to 0.5.0", "MST was updated from 0.1.0 to 0.5.0.\n", "maf-sandbox-mst@0.5.0", false},
		{"--timeout 7", "MST was updated from 0.1.0 to 0.5.0.\n", "maf-sandbox-mst@0.5.0", true},
	} {
		t.Run(r.args, func(t *testing.T) {
			u := newUVTool(t)
			p := player{change: func(f *Factory) { f.SelfUpdate = u.update }}
			got := p.run(t, append([]string{"update"}, strings.Fields(r.args)...)...)
			want := r.want
			if strings.HasPrefix(want, "{") {
				want += where(u)
			}
			if got.status != 0 || got.out != want {
				t.Errorf("%+v\nwant %q", got, want)
			}
			if ran := strings.Join(u.ran, "\n"); !strings.Contains(ran, r.ran) {
				t.Errorf("%q has not run:\n%s", r.ran, ran)
			}
			if u.limited != r.limited {
				t.Errorf("limited in time: %v, want %v", u.limited, r.limited)
			}
		})
	}
}

func TestTheVersionIsSaidAsThePythonProgramSaysItsOwn(t *testing.T) {
	stamped = "1.2.3"
	t.Cleanup(func() { stamped = "" })
	want := "{\n  \"name\": \"maf-sandbox-mst\",\n  \"version\": \"1.2.3\",\n  \"python\": null,\n  \"installation\": {\n    \"manager\": \"virtual-environment\",\n" +
		"    \"self_updatable\": false,\n    \"prefix\": \"<venv>\"\n  },\n  \"go\": \"" + runtime.Version() + "\"\n}\n"
	if got := (player{}).run(t, "version", "--json"); got.status != 0 || got.out != want {
		t.Errorf("%+v\nwant %q", got, want)
	}
	want = "mst 1.2.3\ninstallation: virtual-environment (self-update disabled)\n"
	if got := (player{}).run(t, "version"); got.status != 0 || got.out != want {
		t.Errorf("%+v\nwant %q", got, want)
	}
}

func TestWhoCannotUpdateIsToldHowToBuild(t *testing.T) {
	for _, err := range []error{&selfupdate.RefusedError{Reason: "no"}, fmt.Errorf("%w", selfupdate.ErrNoRelease)} {
		p := player{change: func(f *Factory) {
			f.SelfUpdate = func(context.Context, selfupdate.Options) (selfupdate.Report, error) { return selfupdate.Report{}, err }
		}}
		if got := p.run(t, "update"); got.status != ExitFailed || !strings.HasSuffix(got.errOut, "'go build ./cmd/mst' in a checkout makes a newer mst.\n") {
			t.Errorf("%+v", got)
		}
	}
}
