package microvm

import (
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/maf-sandbox/maf-sandbox-go/internal/engine"
	"github.com/maf-sandbox/maf-sandbox-go/internal/owner"
	"github.com/maf-sandbox/maf-sandbox-go/sandbox"
)

// Bounds and defaults of a Config. Times, code, output and the ceiling on a
// worker have those of the Python original.
const (
	// DefaultStartupTimeout and DefaultCleanupTimeout are the time-outs of a Config
	// that names none.
	DefaultStartupTimeout = 30 * time.Second
	DefaultCleanupTimeout = 3 * time.Second
	// MaxTimeout bounds both time-outs.
	MaxTimeout = 10 * time.Minute
	// DefaultMaxCode and MaxMaxCode bound a program, in bytes of UTF-8.
	DefaultMaxCode = 1 << 20
	MaxMaxCode     = 10 << 20
	// MaxArgv bounds the sys.argv of a program, in bytes.
	MaxArgv = 128 << 10
	// DefaultMaxOutput and MaxMaxOutput bound stdout and stderr of a run
	// together, in bytes.
	DefaultMaxOutput = 1 << 20
	MaxMaxOutput     = 16 << 20
	// DefaultMemory, MinMemory and MaxMemory bound the guest's memory, in bytes.
	DefaultMemory = 256 << 20
	MinMemory     = 64 << 20
	MaxMemory     = 15 << 30
	// MaxWorkerMemory bounds the ceiling on a worker process, in bytes.
	MaxWorkerMemory = 16 << 30
	// WorkerOverhead is the least by which the ceiling exceeds the guest's
	// memory, in bytes: the interpreter's own text and data, the worker's heap,
	// and page tables.
	WorkerOverhead = 256 << 20
	// MaxPool bounds the spare workers.
	MaxPool = 128
	// DefaultGrace and MaxGrace bound how long an interrupted program has to
	// obey.
	DefaultGrace = 15 * time.Millisecond
	MaxGrace     = 10 * time.Second
)

// Enforcement is how the kernel keeps a worker under its memory ceiling.
type Enforcement string

// The enforcements. There is none that enforces nothing.
const (
	// EnforceCgroup gives each worker a control group below a root that the
	// operator has delegated. The default.
	EnforceCgroup Enforcement = "cgroup"
	// EnforceSystemd has systemd delegate the root: the user's manager, or the
	// system's for root.
	EnforceSystemd Enforcement = "systemd"
	// EnforceRlimit sets RLIMIT_DATA on each worker, which cannot fork. It needs
	// nobody's permission, counts address space instead of pages, and does not
	// hold what the kernel allocates for the worker.
	EnforceRlimit Enforcement = "rlimit"
)

// Engine is what runs the guests.
type Engine string

// The engines.
const (
	// EngineKVM is hardware virtualisation: isolation microvm. The default. It
	// needs a /dev/kvm that the user may open; 'maf-sandbox doctor' says what mends
	// one that cannot be used.
	EngineKVM Engine = "kvm"
	// EnginePtrace is a traced process, whose every system call is answered here
	// and never reaches the kernel: isolation container or os_process, by what
	// the machine permits, and never microvm.
	EnginePtrace Engine = "ptrace"
	// EngineAuto is EngineKVM where that can be used, otherwise EnginePtrace.
	EngineAuto Engine = "auto"
)

// Overrun is what becomes of a sandbox whose program was cut short: by its time
// limit, its output limit, or a caller that gave up.
type Overrun string

// The overrun rules.
const (
	// OverrunInterrupt interrupts the program and keeps the sandbox when the
	// program obeys within the grace. The default.
	OverrunInterrupt Overrun = "interrupt"
	// OverrunRetire loses the sandbox, as the Python original does.
	OverrunRetire Overrun = "retire"
)

// Config says what a backend is like. The zero value is what most hosts want on a
// machine whose operator has delegated a control group; see Enforcement.
type Config struct {
	// Name is the backend's name; "microvm" when empty.
	Name string

	// Image is what a spec without an image gets: the name of a stored image or
	// the path of an image file; empty means this machine's own Python, which is
	// captured at first use.
	Image string
	// CacheDir holds images and templates, absolute; when empty
	// MAF_SANDBOX_CACHE, else maf-sandbox in the user's cache folder.
	CacheDir string

	// Engine is what runs the guests, EngineKVM when empty.
	Engine Engine

	// Memory is the guest's memory for Python objects in bytes, from MinMemory to
	// MaxMemory; DefaultMemory when zero.
	Memory int64
	// WorkerMemory is the ceiling on a worker process in bytes, everything
	// included, from Memory and WorkerOverhead to MaxWorkerMemory; when zero, Memory
	// and 1 GiB.
	WorkerMemory int64
	// Enforcement is how the ceiling is enforced, EnforceCgroup when empty: that
	// needs a group which an operator has delegated (docs/operations.md), and
	// without one Acquire fails. EnforceRlimit needs nothing.
	Enforcement Enforcement
	// CgroupRoot is the delegated control group of EnforceCgroup, absolute;
	// /sys/fs/cgroup/maf-sandbox when empty.
	CgroupRoot string

	// MaxCode bounds a program and MaxOutput its output, in bytes, up to MaxMaxCode
	// and MaxMaxOutput; zero means DefaultMaxCode and DefaultMaxOutput.
	MaxCode, MaxOutput int
	// StartupTimeout bounds how long Acquire may take to get a worker, and
	// CleanupTimeout how long a disposal waits for the kernel's confirmation;
	// zero means DefaultStartupTimeout and DefaultCleanupTimeout, and neither is
	// longer than MaxTimeout.
	StartupTimeout, CleanupTimeout time.Duration
	// Overrun is what an overrun costs, OverrunInterrupt when empty.
	Overrun Overrun
	// Grace is how long an interrupted program has to obey, up to MaxGrace;
	// DefaultGrace when zero.
	Grace time.Duration

	// Pool is how many spare workers are kept ready, at most MaxPool. They
	// belong to no key until they are acquired.
	Pool int
	// Namespace names the sandboxes that this host owns on this machine;
	// "default" when empty. One process of a user at a time owns a namespace.
	Namespace string
	// Private gives the backend a namespace that nobody else can ask for, for
	// programs that make sandboxes for themselves alone.
	Private bool
	// LockDir is the folder of the owner's lock, absolute; when empty one that
	// this user alone can look into, below /run/lock where that is possible. Who
	// can open a lock file can keep others from its namespace: a folder for several
	// users has to be root's, and so has the file.
	LockDir string
	// WorkerPath is the program that supervisor and workers execute, absolute;
	// this program when empty. It must import this package.
	WorkerPath string

	// PrivateHosts are hosts that may be on private, loopback and shared
	// addresses when a spec lists them; otherwise only public addresses are
	// reached, and literal ones that the spec lists.
	PrivateHosts []sandbox.Host
	// Resolver looks names up for programs, the system's when nil.
	Resolver *net.Resolver
	// Roots verify the servers that programs reach, the system's when nil.
	Roots *x509.CertPool

	// Logger hears what operators want to know and what takes long; nobody when
	// nil.
	Logger *slog.Logger
	// Progress, if set, hears in a few words what a first use is waiting for.
	// It is called from any goroutine, one call after the other for each image.
	// The acquire waits until it returns, within the time that the acquire has. It
	// may call the backend: no lock is held. An acquire of the same image waits
	// there for the one that reports.
	Progress func(string)
}

// decider names this package in refusals.
const decider = "package microvm"

// withDefaults fills in what is not set and reports every problem of the
// configuration at once, each a *sandbox.RefusalError.
func (c Config) withDefaults() (Config, error) {
	setDefault(&c.Name, "microvm")
	setDefault(&c.Engine, EngineKVM)
	setDefault(&c.Memory, DefaultMemory)
	setDefault(&c.Enforcement, EnforceCgroup)
	setDefault(&c.MaxCode, DefaultMaxCode)
	setDefault(&c.MaxOutput, DefaultMaxOutput)
	setDefault(&c.StartupTimeout, DefaultStartupTimeout)
	setDefault(&c.CleanupTimeout, DefaultCleanupTimeout)
	setDefault(&c.Overrun, OverrunInterrupt)
	setDefault(&c.Grace, DefaultGrace)
	if c.WorkerMemory == 0 {
		c.WorkerMemory = min(c.Memory+1<<30, MaxWorkerMemory)
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	err := errors.Join(c.checkNumbers(), c.checkWords(), c.checkPaths())
	if c.Namespace == "" {
		c.Namespace = owner.DefaultNamespace
	}
	return c, err
}

func setDefault[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

func refuse(field string, asked any, allowed string) error {
	return &sandbox.RefusalError{
		Reason: sandbox.ErrInvalid, Subject: "config." + field,
		Asked: fmt.Sprint(asked), Allowed: allowed, Decider: decider,
	}
}

func (c *Config) checkNumbers() error {
	var problems []error
	for _, f := range []struct {
		name               string
		value, least, most int64
		unit               string
	}{
		{"memory", c.Memory, MinMemory, MaxMemory, "bytes"},
		{"worker_memory", c.WorkerMemory, c.Memory + WorkerOverhead, MaxWorkerMemory, "bytes"},
		{"max_code", int64(c.MaxCode), 1, MaxMaxCode, "bytes"},
		{"max_output", int64(c.MaxOutput), 1, MaxMaxOutput, "bytes"},
		{"pool", int64(c.Pool), 0, MaxPool, "spare workers"},
	} {
		if f.value < f.least || f.value > f.most {
			problems = append(problems, refuse(f.name, fmt.Sprintf("%d %s", f.value, f.unit), fmt.Sprintf("%d to %d", f.least, f.most)))
		}
	}
	for _, f := range []struct {
		name        string
		value, most time.Duration
	}{
		{"startup_timeout", c.StartupTimeout, MaxTimeout},
		{"cleanup_timeout", c.CleanupTimeout, MaxTimeout},
		{"grace", c.Grace, MaxGrace},
	} {
		if f.value <= 0 || f.value > f.most {
			problems = append(problems, refuse(f.name, f.value, fmt.Sprintf("above zero, up to %v", f.most)))
		}
	}
	return errors.Join(problems...)
}

func (c *Config) checkWords() error {
	var problems []error
	switch c.Enforcement {
	case EnforceCgroup, EnforceSystemd, EnforceRlimit:
	default:
		problems = append(problems, refuse("enforcement", fmt.Sprintf("%q", c.Enforcement), "cgroup, systemd or rlimit"))
	}
	if !slices.Contains([]Engine{EngineKVM, EnginePtrace, EngineAuto}, c.Engine) {
		problems = append(problems, refuse("engine", fmt.Sprintf("%q", c.Engine), "kvm, ptrace or auto"))
	}
	if c.Overrun != OverrunInterrupt && c.Overrun != OverrunRetire {
		problems = append(problems, refuse("overrun", fmt.Sprintf("%q", c.Overrun), "interrupt or retire"))
	}
	if c.CgroupRoot != "" && c.Enforcement != EnforceCgroup {
		problems = append(problems, refuse("cgroup_root", fmt.Sprintf("%q with enforcement %s", c.CgroupRoot, c.Enforcement), "a root with enforcement cgroup only"))
	}
	switch {
	case c.Namespace != "" && c.Private:
		problems = append(problems, refuse("namespace", fmt.Sprintf("%q for a private backend", c.Namespace), "a namespace or private, not both"))
	case c.Namespace != "":
		if err := owner.CheckNamespace(c.Namespace); err != nil {
			problems = append(problems, refuse("namespace", fmt.Sprintf("%q", c.Namespace), err.Error()))
		}
	}
	return errors.Join(problems...)
}

func (c *Config) checkPaths() error {
	var problems []error
	for _, f := range []struct{ name, value string }{
		{"cache_dir", c.CacheDir}, {"cgroup_root", c.CgroupRoot}, {"lock_dir", c.LockDir}, {"worker_path", c.WorkerPath},
	} {
		if f.value != "" && (!filepath.IsAbs(f.value) || len(f.value) > maxPath) {
			problems = append(problems, refuse(f.name, fmt.Sprintf("%.100q", f.value), "an absolute path"))
		}
	}
	return errors.Join(problems...)
}

// maxPath is the kernel's PATH_MAX, in bytes.
const maxPath = 4096

// The engine has the same bounds; a difference would not compile.
var (
	_ = [1]struct{}{}[engine.MaxCodeBytes-MaxMaxCode]
	_ = [1]struct{}{}[engine.MaxArgvBytes-MaxArgv]
	_ = [1]struct{}{}[engine.MaxOutputBytes-MaxMaxOutput]
	_ = [1]struct{}{}[engine.MinMemory-MinMemory]
)

// cacheDir is where images and templates are when the configuration does not
// say.
func cacheDir() (string, error) {
	if dir := os.Getenv(CacheEnv); dir != "" {
		return filepath.Abs(dir)
	}
	dir, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	return filepath.Join(dir, "maf-sandbox"), nil
}
