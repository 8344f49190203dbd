package selfupdate

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/maf-sandbox/maf-sandbox-go/internal/wheel/pep440"
)

// pipxMetadata is the file by which pipx knows an environment as its own.
const pipxMetadata = "pipx_metadata.json"

// pipx is an environment of "pipx install".
type pipx struct {
	path   string
	global bool
	state  pipxState
}

// pipxState is what matters of pipx's metadata.
type pipxState struct {
	Backend string `json:"backend"` // since 1.14: pip or uv
	Main    struct {
		Package string   `json:"package"`
		Suffix  string   `json:"suffix"`
		PipArgs []string `json:"pip_args"`
		Pinned  bool     `json:"pinned"`
	} `json:"main_package"`
}

func (p *pipx) probe(ctx context.Context, u *update) (string, error) {
	b, err := readSmall(filepath.Join(u.site.prefix, pipxMetadata), maxReceipt)
	if err != nil {
		return "", &StepError{Step: StepProbe, Err: err}
	}
	if err := json.Unmarshal(b, &p.state); err != nil {
		return "", &StepError{Step: StepProbe, Err: fmt.Errorf("%s: %w", pipxMetadata, err)}
	}
	switch {
	case pep440.Name(p.state.Main.Package) != u.Program.Distribution:
		return fmt.Sprintf("%s belongs to pipx's package %.64q, not to an environment of its own", u.Program.Name, p.state.Main.Package), nil
	case p.state.Main.Suffix != "" || pep440.Name(filepath.Base(u.site.prefix)) != u.Program.Distribution:
		return fmt.Sprintf("it was installed by pipx with the suffix %.64q, beside another version", p.state.Main.Suffix), nil
	case p.state.Main.Pinned:
		return "it is pinned in pipx (`pipx unpin " + u.Program.Distribution + "` ends that)", nil
	}
	if p.path, err = u.LookPath("pipx"); err != nil {
		return "pipx, which installed this program, is not on PATH", nil
	}
	if blocked, err := p.place(ctx, u); blocked != "" || err != nil {
		return blocked, err
	}
	help, err := u.run(ctx, StepProbe, Command{Path: p.path, Args: []string{"install", "--help"}}, "")
	if err != nil {
		return "", err
	}
	if !bytes.Contains(help, []byte("--upgrade")) {
		return "this pipx cannot install an exact version in place of another; upgrade pipx to 1.16 or newer", nil
	}
	if u.OS == "windows" {
		return windowsHolds, nil
	}
	return "", nil
}

// place finds out whether the environment is pipx's for this user, or for all.
func (p *pipx) place(ctx context.Context, u *update) (blocked string, err error) {
	home := filepath.Dir(u.site.prefix)
	out, err := u.run(ctx, StepProbe, p.environment(), "")
	if err != nil {
		return "", err
	}
	if samePath(home, firstLine(out)) {
		return "", nil
	}
	// A pipx before 1.5 has no global environments and fails.
	global, err := u.run(ctx, StepProbe, p.environment("--global"), "")
	var step *StepError
	if errors.As(err, &step) && (step.Timeout > 0 || ctx.Err() != nil) {
		return "", err
	}
	if err == nil && samePath(home, firstLine(global)) {
		p.global = true
		return "", nil
	}
	return fmt.Sprintf("pipx keeps its environments in %s, not in %s (PIPX_HOME says where)", strings.Map(printable, firstLine(out)), home), nil
}

func (p *pipx) environment(flags ...string) Command {
	return Command{Path: p.path, Args: append(append([]string{"environment"}, flags...), "--value", "PIPX_LOCAL_VENVS")}
}

func (p *pipx) latest(ctx context.Context, u *update) (string, error) {
	path, err := u.tool(p.path, "pipx")
	if err != nil {
		return "", err
	}
	args := []string{"runpip"}
	if p.global {
		args = append(args, "--global")
	}
	args = append(args, filepath.Base(u.site.prefix))
	c := Command{Path: path, Stdin: u.Program.Distribution + "\n"}
	if p.state.Backend == "uv" {
		c.Args = append(append(append(args, "compile"), resolveArgs(u)...), p.state.Main.PipArgs...)
		c.Args = append(c.Args, "-")
		out, err := u.run(ctx, StepLookup, c, "")
		if err != nil {
			return "", err
		}
		return resolved(out, u.Program.Distribution)
	}
	c.Args = append(append(args, reportArgs(u)...), p.state.Main.PipArgs...)
	out, err := u.run(ctx, StepLookup, c, "")
	if err != nil {
		return "", err
	}
	return reported(out, u.Program.Distribution)
}

// reportArgs let pip resolve the newest release and report it, without
// installing anything.
func reportArgs(u *update) []string {
	args := []string{
		"install", "--dry-run", "--no-deps", "--ignore-installed", "--only-binary=:all:", "--disable-pip-version-check",
		"--quiet", "--report", "-", u.Program.Distribution,
	}
	if u.Prerelease {
		args = append(args, "--pre")
	}
	return args
}

// reported reads pip's installation report, version 1:
// https://pip.pypa.io/en/stable/reference/installation-report/
func reported(out []byte, name string) (string, error) {
	var report struct {
		Install []struct {
			Metadata struct {
				Name    string `json:"name"`
				Version string `json:"version"`
			} `json:"metadata"`
		} `json:"install"`
	}
	if err := json.Unmarshal(out, &report); err != nil {
		return "", &StepError{Step: StepLookup, Err: fmt.Errorf("pip's report: %w", err)}
	}
	for _, i := range report.Install {
		if pep440.Name(i.Metadata.Name) != name {
			continue
		}
		v, err := pep440.Parse(i.Metadata.Version)
		if err != nil {
			return "", &StepError{Step: StepLookup, Err: err}
		}
		return v.String(), nil
	}
	return "", fmt.Errorf("%w for %s", ErrNoRelease, name)
}

func (p *pipx) install(ctx context.Context, u *update, version string) error {
	retry, requirement := p.command(u, version)
	args := []string{"install"}
	if p.global {
		args = append(args, "--global")
	}
	_, err := u.run(ctx, StepInstall, Command{Path: p.path, Args: append(args, "--upgrade", requirement)}, retry)
	return err
}

func (p *pipx) command(u *update, version string) (command, requirement string) {
	requirement = u.Program.Distribution
	if version != "" {
		requirement += "==" + version
	}
	flags := ""
	if p.global {
		flags += "--global "
	}
	if p.state.Main.Suffix != "" {
		flags += "--suffix " + quote(p.state.Main.Suffix) + " "
	}
	return "pipx install " + flags + "--upgrade " + quote(requirement), requirement
}
