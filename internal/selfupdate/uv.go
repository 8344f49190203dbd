package selfupdate

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/maf-sandbox/maf-sandbox-go/internal/wheel/pep440"
)

// uvReceipt is the file by which uv knows an environment as its tool's.
const uvReceipt = "uv-receipt.toml"

// maxReceipt bounds the files that uv and pipx keep in an environment; real ones
// have some hundred bytes.
const maxReceipt = 1 << 20

var errSize = errors.New("not a regular file of an expected size")

// uvTool is an environment of "uv tool install".
type uvTool struct {
	path   string // uv
	config string // a file with the receipt's options; empty if it has none
}

func (t *uvTool) probe(ctx context.Context, u *update) (string, error) {
	if name := filepath.Base(u.site.prefix); pep440.Name(name) != u.Program.Distribution {
		return fmt.Sprintf("%s belongs to uv's tool %s, not to a tool of its own", u.Program.Name, name), nil
	}
	path, err := u.LookPath("uv")
	if err != nil {
		return "uv, which installed this program, is not on PATH", nil
	}
	t.path = path
	out, err := u.run(ctx, StepProbe, Command{Path: path, Args: []string{"tool", "dir"}}, "")
	if err != nil {
		return "", err
	}
	if dir := firstLine(out); !samePath(filepath.Dir(u.site.prefix), dir) {
		return fmt.Sprintf("uv keeps its tools in %s, not in %s (UV_TOOL_DIR says where)", strings.Map(printable, dir), filepath.Dir(u.site.prefix)), nil
	}
	if u.OS == "windows" {
		return windowsHolds, nil
	}
	receipt, err := readSmall(filepath.Join(u.site.prefix, uvReceipt), maxReceipt)
	if err != nil {
		return "", &StepError{Step: StepProbe, Err: err}
	}
	options := receiptOptions(receipt)
	if len(options) == 0 {
		return "", nil
	}
	dir, err := u.ownFolder()
	if err != nil {
		return "", &StepError{Step: StepProbe, Err: err}
	}
	t.config = filepath.Join(dir, "receipt.toml")
	if err := os.WriteFile(t.config, options, 0o600); err != nil {
		return "", &StepError{Step: StepProbe, Err: err}
	}
	return "", nil
}

// windowsHolds is why uv and pipx cannot replace a program that runs there.
const windowsHolds = "Windows does not let a package manager replace a program that is running"

// receiptOptions gives the options of a receipt as a configuration file. The
// receipt's table tool.options has the members of a uv.toml. uv heeds them for
// "uv tool upgrade", but forgets them, the index among them, when an exact
// version is installed.
func receiptOptions(receipt []byte) []byte {
	const table = "tool.options"
	var out bytes.Buffer
	inside := false
	for line := range bytes.Lines(receipt) {
		text := strings.TrimSpace(string(line))
		name := strings.TrimSpace(strings.Trim(text, "[]"))
		switch header := strings.HasPrefix(text, "[") && strings.HasSuffix(text, "]") && !strings.ContainsAny(name, "\"'{,"); {
		case header && name == table:
			inside = true
		case header && strings.HasPrefix(name, table+"."):
			inside = true
			out.WriteString(strings.Replace(text, table+".", "", 1) + "\n")
		case header && strings.HasPrefix(name, "tool"):
			inside = false
		case inside:
			out.Write(line)
		}
	}
	return bytes.TrimLeft(out.Bytes(), "\n")
}

func (t *uvTool) latest(ctx context.Context, u *update) (string, error) {
	path, err := u.tool(t.path, "uv")
	if err != nil {
		return "", err
	}
	return uvLatest(ctx, u, path, t.config)
}

// uvLatest lets uv resolve the newest release for the environment's Python.
func uvLatest(ctx context.Context, u *update, uv, config string) (string, error) {
	args := []string{"pip", "compile"}
	args = append(args, resolveArgs(u)...)
	args = append(args, "--python", u.site.python)
	c := Command{Path: uv, Args: append(withConfig(args, config), "-"), Stdin: u.Program.Distribution + "\n"}
	out, err := u.run(ctx, StepLookup, c, "")
	if err != nil {
		return "", err
	}
	return resolved(out, u.Program.Distribution)
}

// resolveArgs are the options of "uv pip compile" under which its output is
// one line.
func resolveArgs(u *update) []string {
	pre := "disallow"
	if u.Prerelease {
		pre = "allow"
	}
	return []string{"--no-deps", "--no-header", "--no-annotate", "--quiet", "--prerelease", pre, "--refresh-package", u.Program.Distribution}
}

func withConfig(args []string, config string) []string {
	if config == "" {
		return args
	}
	return append(args, "--config-file", config)
}

// resolved reads the output of "uv pip compile": name==version.
func resolved(out []byte, name string) (string, error) {
	for line := range bytes.Lines(out) {
		text, _, _ := strings.Cut(string(line), ";")
		got, version, ok := strings.Cut(strings.TrimSpace(text), "==")
		if !ok || pep440.Name(strings.TrimSpace(got)) != name {
			continue
		}
		v, err := pep440.Parse(version)
		if err != nil {
			return "", &StepError{Step: StepLookup, Err: err}
		}
		return v.String(), nil
	}
	return "", fmt.Errorf("%w for %s", ErrNoRelease, name)
}

func (t *uvTool) install(ctx context.Context, u *update, version string) error {
	args := []string{"tool", "install", "--refresh-package", u.Program.Distribution, u.Program.Distribution + "@" + version}
	retry, _ := t.command(u, version)
	_, err := u.run(ctx, StepInstall, Command{Path: t.path, Args: withConfig(args, t.config)}, retry)
	return err
}

func (t *uvTool) command(u *update, version string) (command, requirement string) {
	requirement = u.Program.Distribution + "@" + orLatest(version)
	command = "uv tool install " + quote(requirement)
	if t.config != "" {
		command += " # and the options of " + filepath.Join(u.site.prefix, uvReceipt)
	}
	return command, requirement
}

func orLatest(version string) string {
	if version == "" {
		return "latest"
	}
	return version
}

func firstLine(b []byte) string {
	line, _, _ := strings.Cut(string(b), "\n")
	return strings.TrimSpace(line)
}
