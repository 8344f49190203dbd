package cli

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"time"

	"github.com/maf-sandbox/maf-sandbox-go/internal/cli/ceiling"
	"github.com/maf-sandbox/maf-sandbox-go/microvm"
	"github.com/maf-sandbox/maf-sandbox-go/sandbox"
)

// startupTimeout bounds the start of a sandbox: the first one of an image boots
// its interpreter, which takes seconds where processors are emulated. Ctrl-C is
// the way out before.
const startupTimeout = 2 * time.Minute

// grace is how long an interrupted program has to obey: a person does not notice
// it, and on a busy machine the backend's own 15 ms can cost a conversation its
// names.
const grace = 200 * time.Millisecond

// Open opens a sandbox over the user's cache, in a worker process and under a
// supervisor of its own. The first one ever captures this machine's Python and
// boots it.
func Open(ctx context.Context, o Options) (Machine, microvm.Info, error) {
	dir, err := CacheDir()
	if err != nil {
		return nil, microvm.Info{}, unavailable("no sandbox", err)
	}
	// Not left to the backend: finding or capturing an image has no time limit,
	// and what is wrong with one is not the machine's fault.
	file, err := ImageFile(ctx, filepath.Join(dir, "images"), o.Image, o.Progress)
	if err != nil {
		return nil, microvm.Info{}, err
	}
	if o.Progress != nil {
		o.Progress("starting a sandbox")
	}
	c := microvm.Config{
		Private: true, Image: file, CacheDir: dir, Engine: microvm.Engine(o.Engine), Memory: o.Memory, PrivateHosts: o.Private, Progress: o.Progress,
		MaxCode: microvm.MaxMaxCode, MaxOutput: microvm.MaxMaxOutput, StartupTimeout: startupTimeout, Grace: grace,
	}
	for _, c.Enforcement = range Enforcements(o.Limits) {
		var m *machine
		if m, err = open(ctx, c, o.spec()); err == nil {
			return m, m.Info(), nil
		}
		if !errors.Is(err, sandbox.ErrUnavailable) {
			break
		}
	}
	return nil, microvm.Info{}, StartFailure(err)
}

// spec is what the sandbox must be.
func (o *Options) spec() sandbox.Spec {
	s := sandbox.Spec{Kind: "python", MinIsolation: o.MinIsolation}
	for _, h := range append(slices.Clone(o.Allow), o.Private...) {
		s.Egress = sandbox.EgressAllowlist
		s.EgressAllow = append(s.EgressAllow, sandbox.EgressRule{Host: h})
	}
	return s
}

// Enforcements gives what to try for a choice, in order and at least one: that
// systemd is there does not say that it gives anything.
func Enforcements(choice string) []microvm.Enforcement {
	if choice != LimitsAuto {
		return []microvm.Enforcement{microvm.Enforcement(choice)}
	}
	first := ceiling.Strongest(ceiling.Probe())
	if first == microvm.EnforceSystemd {
		return []microvm.Enforcement{first, microvm.EnforceRlimit}
	}
	return []microvm.Enforcement{first}
}

// machine is the only sandbox of a backend.
type machine struct {
	*microvm.Sandbox
	backend *microvm.Backend
}

func open(ctx context.Context, c microvm.Config, spec sandbox.Spec) (*machine, error) {
	b, err := microvm.New(c)
	if err != nil {
		return nil, err
	}
	s, err := b.Get(ctx, sandbox.Key{Scope: Program, ThreadID: "1", AgentID: "1"}, spec)
	if err != nil {
		_ = b.Close() // what there is of it
		return nil, err
	}
	return &machine{s, b}, nil
}

// Close ends the worker and the supervisor and waits for it.
func (m *machine) Close() error { return m.backend.Close() }

// StartFailure is what the user hears of a sandbox that did not start.
func StartFailure(err error) error {
	var op *sandbox.OpError
	var setup *microvm.SetupError
	var lacks *microvm.EngineError
	const mends = "; '" + Program + " doctor' says what mends it"
	switch {
	case !errors.As(err, &op):
		return err
	case errors.Is(err, sandbox.ErrTimeout):
		// Not a program's time limit, which has a status of its own.
		return &sandbox.OpError{Op: op.Op, Class: sandbox.ErrUnavailable, Detail: fmt.Sprintf("no sandbox was ready within %v", startupTimeout)}
	case errors.As(err, &setup): // in the words of a command line
		return &sandbox.OpError{Op: op.Op, Class: sandbox.ErrUnavailable, Detail: op.Detail + ": " + setup.Problem + "; --limits rlimit needs no setup" + mends}
	case errors.As(err, &lacks): // the same
		return &sandbox.OpError{Op: op.Op, Class: sandbox.ErrUnavailable, Detail: lacks.Problem + mends}
	case errors.Is(err, sandbox.ErrUnavailable):
		return &sandbox.OpError{Op: op.Op, Class: sandbox.ErrUnavailable, Detail: Explain(err) + mends}
	}
	return err
}
