package selfupdate

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"time"
	"unicode"
)

const (
	goos   = runtime.GOOS
	goarch = runtime.GOARCH

	// maxOutput bounds what is kept of a process's stdout. The longest answer is
	// the list of a module's versions.
	maxOutput = 4 << 20
	// maxTail bounds what is kept of stderr, whose end has the reason.
	maxTail = 4 << 10
	// grace is how long an interrupted package manager may take to put its house
	// in order.
	grace = 5 * time.Second
)

// Command is a process to run.
type Command struct {
	// Path is the absolute path of the program, Args are its arguments.
	Path string
	Args []string
	// Env is added to the environment.
	Env []string
	// Dir is the working directory.
	Dir   string
	Stdin string
}

// String gives the command as one types it.
func (c Command) String() string {
	words := []string{quote(base(c.Path))}
	for _, a := range c.Args {
		words = append(words, quote(a))
	}
	return strings.Join(words, " ")
}

// Output is what a process wrote: the start of stdout, the end of stderr.
type Output struct {
	Stdout, Stderr []byte
	// Cut says that stdout was longer.
	Cut bool
}

// Runner runs a process to its end. Its error is about the process: not
// started, ended with a status, or ended because of ctx.
type Runner func(ctx context.Context, c Command) (Output, error)

// Exec is the Runner that runs real processes, each in a process group of its
// own where the system has such. When ctx ends, the group is interrupted and,
// five seconds later, killed.
func Exec(ctx context.Context, c Command) (Output, error) {
	out, tail := &head{}, &end{}
	cmd := exec.CommandContext(ctx, c.Path, c.Args...)
	cmd.Env = append(os.Environ(), c.Env...)
	cmd.Dir = c.Dir
	cmd.Stdout, cmd.Stderr = out, tail
	if c.Stdin != "" {
		cmd.Stdin = strings.NewReader(c.Stdin)
	}
	cmd.WaitDelay = grace
	isolate(cmd)
	err := cmd.Run()
	if ctx.Err() != nil {
		killGroup(cmd)
		err = context.Cause(ctx)
	}
	return Output{Stdout: out.b, Stderr: tail.b, Cut: out.cut}, err
}

// head keeps the first bytes of a stream.
type head struct {
	b   []byte
	cut bool
}

func (h *head) Write(p []byte) (int, error) {
	room := min(len(p), maxOutput-len(h.b))
	h.b = append(h.b, p[:room]...)
	h.cut = h.cut || room < len(p)
	return len(p), nil
}

// end keeps the last bytes of a stream.
type end struct{ b []byte }

func (e *end) Write(p []byte) (int, error) {
	e.b = append(e.b, p...)
	if over := len(e.b) - maxTail; over > 0 {
		e.b = append(e.b[:0], e.b[over:]...)
	}
	return len(p), nil
}

// run runs a process as one step and gives its stdout. retry is what to type
// when it fails.
func (u *update) run(ctx context.Context, s Step, c Command, retry string) ([]byte, error) {
	if c.Dir == "" {
		// A folder of its own: no go.mod, uv.toml or pyproject.toml of the folder
		// in which the operator happens to be takes part, or of one above.
		dir, err := u.ownFolder()
		if err != nil {
			return nil, &StepError{Step: s, Err: err}
		}
		c.Dir = dir
	}
	if u.Progress != nil {
		u.Progress(s, c.String())
	}
	limit := u.Timeout
	if limit == 0 {
		limit = limits[s]
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	out, err := u.Runner(ctx, c)
	switch {
	case errors.Is(err, context.DeadlineExceeded) && ctx.Err() != nil:
		return nil, &StepError{Step: s, Timeout: limit, Retry: retry, Err: err}
	case errors.Is(err, context.Canceled):
		return nil, &StepError{Step: s, Retry: retry, Err: err}
	case err != nil:
		return nil, &StepError{Step: s, Retry: retry, Err: fmt.Errorf("%s: %w%s", c, err, reason(out.Stderr))}
	case out.Cut:
		return nil, &StepError{Step: s, Err: fmt.Errorf("%s: wrote more than %d bytes", c, maxOutput)}
	}
	return out.Stdout, nil
}

// reason gives the last lines of what a process wrote to stderr, as the end of
// an error, without what a terminal would obey.
func reason(stderr []byte) string {
	var lines []string
	for line := range bytes.Lines(stderr) {
		if line = bytes.TrimSpace(line); len(line) > 0 {
			lines = append(lines, strings.Map(printable, string(line)))
		}
	}
	if len(lines) == 0 {
		return ""
	}
	const most = 4
	return ": " + strings.Join(lines[max(0, len(lines)-most):], "; ")
}

func printable(r rune) rune {
	if unicode.IsPrint(r) && r != unicode.ReplacementChar {
		return r
	}
	return '?'
}

// verify asks a fresh process of the program for its version.
func (u *update) verify(ctx context.Context, exe, want string) error {
	want = u.scheme.show(want)
	out, err := u.run(ctx, StepVerify, Command{Path: exe, Args: []string{"version", "--json"}}, "")
	if err != nil {
		return &VerifyError{Want: want, Err: err}
	}
	var answer struct {
		Version string `json:"version"`
	}
	if err := json.Unmarshal(out, &answer); err != nil {
		return &VerifyError{Want: want, Err: fmt.Errorf("%s version --json: %w", u.Program.Name, err)}
	}
	if got, err := u.scheme.parse(answer.Version); err != nil || u.scheme.show(got) != want {
		return &VerifyError{Want: want, Got: fmt.Sprintf("%.64q", answer.Version)}
	}
	return nil
}

// stops end the searches of package managers in the folder where they begin.
// All of them go on upwards, and above a temporary folder is one in which every
// user of the machine can put files:
//
//   - uv reads the first uv.toml, but takes the folder of the first
//     pyproject.toml that is a project for the place to look for it;
//   - go takes the first go.mod for the main module, whose replacements count
//     (GOWORK=off is in the commands; go install of a version reads neither).
//
// Pip, pipx and the packagers of systems read nothing of the folder in which
// they run.
var stops = map[string]string{
	"uv.toml":        "",
	"pyproject.toml": "",
	"go.mod":         "module scratch\n",
}

// ownFolder is a folder in which processes run: for this user alone, with
// nothing in it but what keeps package managers from looking further up.
func (u *update) ownFolder() (string, error) {
	if u.scratch != "" {
		return u.scratch, nil
	}
	dir, err := os.MkdirTemp("", u.Program.Name+"-update-")
	if err != nil {
		return "", err
	}
	u.scratch = dir
	for name, text := range stops {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			return "", err
		}
	}
	return dir, nil
}

func (u *update) cleanUp() {
	if u.scratch != "" {
		_ = os.RemoveAll(u.scratch)
	}
}
