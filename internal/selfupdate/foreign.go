package selfupdate

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
)

// errNotOwner is never seen: refusals come before an installation.
var errNotOwner = errors.New("this installation is not updated from within")

// foreignPython is an environment, or a Python, that somebody else manages.
type foreignPython struct{}

func (*foreignPython) probe(_ context.Context, u *update) (string, error) {
	return strings.ToUpper(u.Program.Name) + " is running from a project or manually managed virtual environment", nil
}

func (*foreignPython) latest(ctx context.Context, u *update) (string, error) {
	if uv, err := u.LookPath("uv"); err == nil {
		return uvLatest(ctx, u, uv, "")
	}
	path := u.site.python
	if !filepath.IsAbs(path) {
		var err error
		if path, err = u.tool("", path); err != nil {
			return "", err
		}
	}
	out, err := u.run(ctx, StepLookup, Command{Path: path, Args: append([]string{"-m", "pip"}, reportArgs(u)...)}, "")
	if err != nil {
		return "", err
	}
	return reported(out, u.Program.Distribution)
}

func (*foreignPython) install(context.Context, *update, string) error { return errNotOwner }

// locks tells a project's package manager by the file in which it keeps its
// resolution, and how it takes a pinned requirement.
var locks = []struct{ file, command string }{
	{"uv.lock", "uv add"},
	{"poetry.lock", "poetry add"},
	{"pdm.lock", "pdm add"},
	{"Pipfile.lock", "pipenv install"},
	{"pixi.lock", "pixi add --pypi"},
}

func (*foreignPython) command(u *update, version string) (command, requirement string) {
	requirement = u.Program.Distribution
	if version != "" {
		requirement += "==" + version
	}
	if u.inst.Manager == VirtualEnvironment {
		project := filepath.Dir(u.site.prefix)
		for _, l := range locks {
			if isFile(filepath.Join(project, l.file)) {
				return l.command + " " + quote(requirement), requirement
			}
		}
	}
	upgrade := ""
	if version == "" {
		upgrade = "--upgrade "
	}
	return quoteFor(u.OS, u.site.python) + " -m pip install " + upgrade + quote(requirement), requirement
}

// foreign is a binary that go install has not put where it is.
type foreign struct{}

func (*foreign) probe(_ context.Context, u *update) (string, error) {
	switch u.inst.Manager {
	case GoTool:
		return "it is a tool of a project, started by `go tool` or `go run`", nil
	case Distribution:
		return "it lies where only the system's package manager writes", nil
	}
	return "no package manager owns this file", nil
}

func (*foreign) latest(ctx context.Context, u *update) (string, error) {
	path, err := u.tool("", "go")
	if err != nil {
		return "", err
	}
	return goLatest(ctx, u, path)
}

func (*foreign) install(context.Context, *update, string) error { return errNotOwner }

func (*foreign) command(u *update, version string) (command, requirement string) {
	requirement = u.Program.Package + "@" + orLatest(version)
	if u.inst.Manager == GoTool {
		return "go get -tool " + quote(requirement), requirement
	}
	install := "go install " + quote(requirement)
	if pathBase(u.Program.Package) != base(u.executable) {
		return install, requirement
	}
	if u.OS == "windows" {
		return "$env:GOBIN=" + quoteFor(u.OS, u.site.dir) + "; " + install, requirement
	}
	return "GOBIN=" + quote(u.site.dir) + " " + install, requirement
}

// refusal says what the operator of an installation that is not updated from
// within can type. version is the wanted one, empty for the newest.
func (u *update) refusal(ctx context.Context, version string) error {
	command, requirement := u.owner.command(u, version)
	e := &RefusedError{Installation: u.inst, Requirement: requirement, Command: command}
	switch u.inst.Manager {
	case VirtualEnvironment, SystemPython:
		// Word for word the protocol's.
		e.Reason = fmt.Sprintf("%s. Use that environment's package manager to install '%s' and update its lock file", u.inst.Reason, requirement)
	case Distribution:
		if name, update := u.distribution(ctx); update != "" {
			e.Reason = fmt.Sprintf("%s is part of the package %s; its package manager updates it", u.executable, name)
			e.Command = update
			break
		}
		e.Reason = fmt.Sprintf("no package manager owns %s; to replace it", u.executable)
	case GoTool:
		e.Reason = "it is a tool of a go.mod (go tool or go run), which pins its version; in that project"
	case File:
		e.Reason = fmt.Sprintf("no package manager owns %s; to replace it", u.executable)
	default:
		e.Reason = u.inst.Reason + "; to update it"
	}
	return e
}

// packagers are package managers that can say which package a file is of.
var packagers = []struct {
	program string
	args    []string
	name    func(out string) string
	update  string
}{
	{"dpkg-query", []string{"-S"}, beforeColon, "sudo apt-get update && sudo apt-get install --only-upgrade "},
	{"rpm", []string{"-q", "--queryformat", "%{NAME}\n", "-f"}, asIs, "sudo dnf upgrade "},
	{"pacman", []string{"-Qqo"}, asIs, "sudo pacman -Syu "},
	{"apk", []string{"info", "--quiet", "--who-owns"}, asIs, "sudo apk add --upgrade "},
}

func asIs(s string) string { return s }

func beforeColon(s string) string {
	name, _, _ := strings.Cut(s, ":")
	return name
}

// distribution asks the package managers of the system for the program's
// package. What fails does not own it.
func (u *update) distribution(ctx context.Context) (name, update string) {
	switch dir := u.site.dir + "/"; {
	case strings.HasPrefix(dir, "/nix/store/"):
		return u.Program.Name, "nix profile upgrade " + u.Program.Name
	case strings.HasPrefix(dir, "/gnu/store/"):
		return u.Program.Name, "guix upgrade " + u.Program.Name
	case strings.HasPrefix(dir, "/snap/"):
		return u.Program.Name, "sudo snap refresh " + u.Program.Name
	case strings.Contains(dir, "/Cellar/"):
		_, rest, _ := strings.Cut(dir, "/Cellar/")
		name, _, _ := strings.Cut(rest, "/")
		return name, "brew upgrade " + quote(name)
	}
	for _, p := range packagers {
		path, err := u.LookPath(p.program)
		if err != nil {
			continue
		}
		out, err := u.run(ctx, StepProbe, Command{Path: path, Args: append(p.args[:len(p.args):len(p.args)], u.executable)}, "")
		if err != nil {
			continue
		}
		if name := p.name(firstLine(out)); isPackageName(name) {
			return name, p.update + name
		}
	}
	return "", ""
}

// isPackageName keeps sentences of package managers out of commands.
func isPackageName(s string) bool {
	const letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789+-._@"
	return s != "" && len(s) <= 128 && s[0] != '-' && strings.Trim(s, letters) == ""
}
