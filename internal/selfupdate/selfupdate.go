package selfupdate

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"strings"
	"time"
)

// Program is what is to be updated.
type Program struct {
	// Name is the name of the executable, without a suffix.
	Name string
	// Distribution is the normal name (PEP 503) of the wheel that carries it.
	Distribution string
	// Module is the path of its Go module, Package that of its main package.
	Module, Package string
	// Version is the version that runs. One that is no release, such as
	// "(devel)", counts as older than every release.
	Version string
}

// Options are the inputs of Run and Detect. Program is required.
type Options struct {
	Program Program
	// Check asks for the newest release and changes nothing.
	Check bool
	// To is the wanted version, older ones included; empty means the newest. It
	// excludes Check.
	To string
	// Prerelease lets the newest release be a pre-release. It does not matter
	// for To.
	Prerelease bool
	// Timeout bounds every step; zero means each step's own default.
	Timeout time.Duration
	// Progress, if not nil, is told of each process before it starts: the command
	// as one types it.
	Progress func(Step, string)

	// What follows has defaults, which tests replace: the executable that runs,
	// what the linker noted in it, processes, PATH and environment.
	Executable string
	Build      *debug.BuildInfo
	Runner     Runner
	LookPath   func(string) (string, error)
	Getenv     func(string) string
	// OS is a GOOS.
	OS string
}

// Step is a kind of step.
type Step string

// The steps, in their order.
const (
	StepProbe   Step = "probe"
	StepLookup  Step = "look-up"
	StepInstall Step = "install"
	StepVerify  Step = "verify"
)

// limits are the steps' own time-outs, which bound hangs. Probes and starts take
// milliseconds, pipx a second; a look-up may download a wheel for its metadata;
// go install compiles everything, at worst with the standard library.
var limits = map[Step]time.Duration{
	StepProbe:   30 * time.Second,
	StepLookup:  30 * time.Second,
	StepInstall: 10 * time.Minute,
	StepVerify:  30 * time.Second,
}

// The values of Report.Status.
const (
	// Of a check.
	StatusAvailable = "update_available"
	StatusNewer     = "newer_than_index"
	// Of both: nothing to do.
	StatusCurrent = "current"
	// Of an update.
	StatusUpdated    = "updated"
	StatusDowngraded = "downgraded"
)

// Report is the outcome. As JSON it has the members and the order of the
// operator protocol: the first three versions belong to a check, the others to
// an update. Versions are in the normal form of their index, without "v".
type Report struct {
	Status    string `json:"status"`
	Current   string `json:"current_version,omitempty"`
	Latest    string `json:"latest_version,omitempty"`
	Channel   string `json:"channel,omitempty"`
	Previous  string `json:"previous_version,omitempty"`
	Installed string `json:"installed_version,omitempty"`

	Installation Installation `json:"installation"`
}

// Text gives the report as one sentence; name is the program's name in it.
func (r Report) Text(name string) string {
	switch r.Status {
	case StatusAvailable:
		return fmt.Sprintf("%s %s is available; %s is installed.", name, r.Latest, r.Current)
	case StatusNewer:
		return fmt.Sprintf("%s %s is installed; it is newer than %s, the newest %s release.", name, r.Current, r.Latest, r.Channel)
	case StatusUpdated:
		return fmt.Sprintf("%s was updated from %s to %s.", name, r.Previous, r.Installed)
	case StatusDowngraded:
		return fmt.Sprintf("%s was rolled back from %s to %s.", name, r.Previous, r.Installed)
	}
	current := r.Installed
	if current == "" {
		current = r.Current
	}
	return fmt.Sprintf("%s %s is already installed.", name, current)
}

// Run checks, or updates, as o says.
//
// Errors are *RefusedError, *StepError or *VerifyError, or have the class
// ErrVersion, ErrOptions, ErrBusy or ErrNoRelease. After a *StepError of StepInstall the
// installation may be an unfinished one if the owner is uv or pipx; repeating
// the update mends that. A cancelled ctx ends the step that runs.
func Run(ctx context.Context, o Options) (Report, error) {
	if o.Check && o.To != "" {
		return Report{}, fmt.Errorf("%w: a check installs no version", ErrOptions)
	}
	if o.Timeout < 0 {
		return Report{}, fmt.Errorf("%w: the time-out must be positive", ErrOptions)
	}
	u, err := newUpdate(o)
	if err != nil {
		return Report{}, err
	}
	target := ""
	if o.To != "" {
		if target, err = u.scheme.parse(o.To); err != nil {
			return Report{}, fmt.Errorf("%w %q: %w", ErrVersion, o.To, err)
		}
	}
	defer u.cleanUp()
	if err := u.probe(ctx); err != nil {
		return Report{}, err
	}
	if o.Check {
		return u.check(ctx)
	}
	if target != "" && u.scheme.compare(target, u.current) == 0 {
		// No look-up: what is asked for is there.
		return u.report(StatusCurrent, target), nil
	}
	return u.update(ctx, target)
}

// update is one call of Run or Detect.
type update struct {
	Options
	executable string
	site       site
	inst       Installation
	owner      owner
	scheme     scheme
	current    string // in the scheme's form
	released   bool   // whether an owner can install current again
	scratch    string // the folder in which processes run, made when needed
}

// owner is what installed the program.
type owner interface {
	// probe says in words what keeps the owner from updating the program; empty
	// if nothing does.
	probe(ctx context.Context, u *update) (blocked string, err error)
	// latest gives the newest release.
	latest(ctx context.Context, u *update) (string, error)
	// install installs a version; when it returns nil the program is in place.
	install(ctx context.Context, u *update, version string) error
	// command is what an operator types for the same, and requirement the
	// pinned requirement in it. Without a version they mean the newest.
	command(u *update, version string) (command, requirement string)
}

func newUpdate(o Options) (*update, error) {
	if o.Executable == "" {
		exe, err := os.Executable()
		if err != nil {
			return nil, fmt.Errorf("find the program that runs: %w", err)
		}
		o.Executable = exe
	}
	if o.Build == nil {
		o.Build, _ = debug.ReadBuildInfo()
	}
	if o.Runner == nil {
		o.Runner = Exec
	}
	if o.LookPath == nil {
		o.LookPath = exec.LookPath
	}
	if o.Getenv == nil {
		o.Getenv = os.Getenv
	}
	if o.OS == "" {
		o.OS = goos
	}
	u := &update{Options: o}
	if err := u.locate(); err != nil {
		return nil, err
	}
	u.current = o.Program.Version
	if v, err := u.scheme.parse(u.current); err == nil {
		u.current, u.released = v, true
	} else if v, err := u.scheme.parse(withoutBuild(u.current)); err == nil {
		// A build in a checkout: v1.2.4-0.20260101000000-abcdefabcdef+dirty.
		u.current = v
	}
	return u, nil
}

func withoutBuild(version string) string {
	version, _, _ = strings.Cut(version, "+")
	return version
}

func (u *update) report(status, version string) Report {
	return Report{Status: status, Previous: u.scheme.show(u.current), Installed: u.scheme.show(version), Installation: u.inst}
}

func (u *update) check(ctx context.Context) (Report, error) {
	latest, err := u.latest(ctx)
	if err != nil {
		return Report{}, err
	}
	r := Report{Current: u.scheme.show(u.current), Latest: u.scheme.show(latest), Channel: u.channel(), Installation: u.inst}
	switch c := u.scheme.compare(u.current, latest); {
	case c < 0:
		r.Status = StatusAvailable
	case c > 0:
		r.Status = StatusNewer
	default:
		r.Status = StatusCurrent
	}
	return r, nil
}

func (u *update) channel() string {
	if u.Prerelease {
		return "prerelease"
	}
	return "stable"
}

// update installs target, or the newest version if target is empty.
func (u *update) update(ctx context.Context, target string) (Report, error) {
	if target == "" {
		latest, err := u.latest(ctx)
		if err != nil {
			if u.inst.SelfUpdatable || ctx.Err() != nil {
				return Report{}, err
			}
			// A refusal does not need an index.
			return Report{}, u.refusal(ctx, "")
		}
		if u.scheme.compare(u.current, latest) >= 0 {
			// Going back is never done unasked.
			return u.report(StatusCurrent, u.current), nil
		}
		target = latest
	}
	if !u.inst.SelfUpdatable {
		return Report{}, u.refusal(ctx, target)
	}
	release, err := u.lock()
	if err != nil {
		return Report{}, err
	}
	defer release()
	if err := u.owner.install(ctx, u, target); err != nil {
		return Report{}, err
	}
	if err := u.verify(ctx, u.executable, target); err != nil {
		var v *VerifyError
		if errors.As(err, &v) && u.released {
			v.Undo, _ = u.owner.command(u, u.current)
		}
		return Report{}, err
	}
	status := StatusUpdated
	if u.scheme.compare(target, u.current) < 0 {
		status = StatusDowngraded
	}
	return u.report(status, target), nil
}

// lock keeps other updates of the same installation out: pipx does not do that
// itself, and what one has verified another would replace. What is locked is
// the folder in which the owner keeps environments, as an environment itself is
// made anew, and that of the program where there is none.
func (u *update) lock() (release func(), err error) {
	dir := u.site.dir
	if u.site.prefix != "" {
		dir = filepath.Dir(u.site.prefix)
	}
	return lockFolder(dir)
}

func (u *update) latest(ctx context.Context) (string, error) {
	return u.owner.latest(ctx, u)
}

// tool gives the path of the program that looks releases up: the one that
// probe has found, or the one on PATH.
func (u *update) tool(found, name string) (string, error) {
	if found != "" {
		return found, nil
	}
	path, err := u.LookPath(name)
	if err != nil {
		return "", &StepError{Step: StepLookup, Err: fmt.Errorf("releases of this installation are looked up by %s: %w", name, err)}
	}
	return path, nil
}
