package selfupdate

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/mod/semver"
)

// goVariable gives a variable of the go command as the operator has set it: in
// the environment, or by "go env -w" in the file GOENV.
func (u *update) goVariable(name string) string {
	if v := u.Getenv(name); v != "" {
		return v
	}
	file := u.Getenv("GOENV")
	if file == "off" {
		return ""
	}
	if file == "" {
		dir, err := os.UserConfigDir()
		if err != nil {
			return ""
		}
		file = filepath.Join(dir, "go", "env")
	}
	const most = 64 << 10
	b, err := readSmall(file, most)
	if err != nil {
		return ""
	}
	for line := range strings.Lines(string(b)) {
		if key, value, ok := strings.Cut(strings.TrimSpace(line), "="); ok && key == name {
			return value
		}
	}
	return ""
}

// goBin gives the folder into which go install puts programs.
func (u *update) goBin() string {
	if dir := u.goVariable("GOBIN"); dir != "" {
		return dir
	}
	if list := filepath.SplitList(u.goVariable("GOPATH")); len(list) > 0 && list[0] != "" {
		return filepath.Join(list[0], "bin")
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return ""
	}
	return filepath.Join(home, "go", "bin")
}

// goInstall is a binary that go install has put into GOBIN.
type goInstall struct{ path string }

func (g *goInstall) probe(_ context.Context, u *update) (string, error) {
	path, err := u.LookPath("go")
	if err != nil {
		return "go, which installed this program, is not on PATH", nil
	}
	g.path = path
	return "", nil
}

func (g *goInstall) latest(ctx context.Context, u *update) (string, error) {
	path, err := u.tool(g.path, "go")
	if err != nil {
		return "", err
	}
	return goLatest(ctx, u, path)
}

// goLatest asks the go command, which speaks the module proxy protocol as
// GOPROXY, GOPRIVATE and GOAUTH say, for the versions that are not retracted.
func goLatest(ctx context.Context, u *update, path string) (string, error) {
	c := Command{Path: path, Args: []string{"list", "-m", "-versions", "-json", u.Program.Module + "@latest"}, Env: []string{"GOWORK=off"}}
	out, err := u.run(ctx, StepLookup, c, "")
	if err != nil {
		return "", err
	}
	return newest(out, u.Program.Module, u.Prerelease)
}

// newest reads the output of go list -m -versions -json.
func newest(out []byte, module string, prerelease bool) (string, error) {
	var answer struct {
		Path     string
		Versions []string
	}
	if err := json.Unmarshal(out, &answer); err != nil {
		return "", &StepError{Step: StepLookup, Err: fmt.Errorf("go list: %w", err)}
	}
	best := ""
	for _, v := range answer.Versions {
		if _, err := (golang{}).parse(v); err == nil && (prerelease || semver.Prerelease(v) == "") && semver.Compare(v, best) > 0 {
			best = v
		}
	}
	if best == "" {
		return "", fmt.Errorf("%w for module %s", ErrNoRelease, module)
	}
	return best, nil
}

// install builds beside the program, asks the new binary for its version, and
// only then puts it in the old one's place, in one step.
func (g *goInstall) install(ctx context.Context, u *update, version string) error {
	retry, requirement := g.command(u, version)
	// The same file system as the program, so that a rename suffices.
	stage, err := os.MkdirTemp(u.site.dir, "."+u.Program.Name+"-update-")
	if err != nil {
		return &StepError{Step: StepInstall, Retry: retry, Err: err}
	}
	defer func() { _ = os.RemoveAll(stage) }()
	c := Command{Path: g.path, Args: []string{"install", requirement}, Env: []string{
		// For this machine, whatever the operator usually builds for.
		"GOBIN=" + stage, "GOOS=" + goos, "GOARCH=" + goarch, "GOWORK=off",
	}}
	if _, err := u.run(ctx, StepInstall, c, retry); err != nil {
		return err
	}
	// go install names the binary after the package, the operator perhaps not.
	built := filepath.Join(stage, pathBase(u.Program.Package)+filepath.Ext(u.executable))
	if err := u.verify(ctx, built, version); err != nil {
		return err
	}
	if err := replace(u.executable, built, u.OS); err != nil {
		return &StepError{Step: StepInstall, Retry: retry, Err: err}
	}
	return nil
}

func pathBase(pkg string) string { return pkg[strings.LastIndexByte(pkg, '/')+1:] }

// replace puts file in the place of target.
func replace(target, file, goos string) error {
	if goos != "windows" {
		return os.Rename(file, target)
	}
	// Windows renames a program that runs, but does not replace it. The old file
	// stays until the next update, as with the go command itself.
	old := target + "~"
	_ = os.Remove(old)
	if err := os.Rename(target, old); err != nil {
		return err
	}
	if err := os.Rename(file, target); err != nil {
		if back := os.Rename(old, target); back != nil {
			return fmt.Errorf("%w; the program is now %s: %w", err, old, back)
		}
		return err
	}
	return nil
}

func (*goInstall) command(u *update, version string) (command, requirement string) {
	requirement = u.Program.Package + "@" + orLatest(version)
	return "go install " + quote(requirement), requirement
}
