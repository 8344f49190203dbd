package microvm

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/maf-sandbox/maf-sandbox-go/internal/egress"
	"github.com/maf-sandbox/maf-sandbox-go/sandbox"
)

// refusalOrder is the order in which the original refuses, by subject.
var refusalOrder = []string{
	"spec.requires", "spec.requires_os_family", "spec.host_tools", "spec.limits", "spec.work_dir",
	"spec.isolation_scope", "spec.egress", "spec.egress_allow",
}

// unserved says why this backend cannot serve a spec: every reason, in the
// original's order.
func (b *Backend) unserved(spec sandbox.Spec) error {
	var problems []error
	if joined, ok := b.Declarations().Unserved(b.decider(), spec).(interface{ Unwrap() []error }); ok { //nolint:errorlint // errors.Join's own
		problems = joined.Unwrap()
	}
	if spec.WorkDir != "" {
		problems = append(problems, &sandbox.RefusalError{
			Reason: sandbox.ErrNotSupported, Subject: "spec.work_dir", Asked: fmt.Sprintf("%.100q", spec.WorkDir),
			Allowed: "none: no files go in or out", Decider: b.decider(),
		})
	}
	if err := b.unknownTools(spec); err != nil {
		problems = append(problems, err)
	}
	if len(problems) == 0 {
		if err := egress.Unserved(b.decider(), spec); err != nil {
			problems = append(problems, err)
		}
	}
	slices.SortStableFunc(problems, func(x, y error) int { return cmp.Compare(rank(x), rank(y)) })
	return errors.Join(problems...)
}

func rank(err error) int {
	var refusal *sandbox.RefusalError
	if !errors.As(err, &refusal) {
		return len(refusalOrder)
	}
	for i := len(refusalOrder) - 1; i >= 0; i-- {
		if strings.HasPrefix(refusal.Subject, refusalOrder[i]) {
			return i
		}
	}
	return len(refusalOrder)
}

// changed says in which resources a live sandbox differs from what this backend
// gives; the two may be of different backends of the process.
func (b *Backend) changed(live *Sandbox) error {
	mine, its := b.config, live.backend.config
	if live.backend == b {
		return nil
	}
	for _, field := range [...]struct {
		name       string
		asked, had any
	}{
		{"image", mine.Image, its.Image},
		{"engine", mine.Engine, its.Engine},
		{"memory", mine.Memory, its.Memory},
		{"worker_memory", mine.WorkerMemory, its.WorkerMemory},
		{"enforcement", mine.Enforcement, its.Enforcement},
		{"cgroup_root", mine.CgroupRoot, its.CgroupRoot},
		{"max_code", mine.MaxCode, its.MaxCode},
		{"max_output", mine.MaxOutput, its.MaxOutput},
		{"overrun", mine.Overrun, its.Overrun},
		{"grace", mine.Grace, its.Grace},
		{"resolver", fmt.Sprintf("%p", mine.Resolver), fmt.Sprintf("%p", its.Resolver)},
		{"roots", fmt.Sprintf("%p", mine.Roots), fmt.Sprintf("%p", its.Roots)},
		{"private_hosts", fmt.Sprint(mine.PrivateHosts), fmt.Sprint(its.PrivateHosts)},
	} {
		if field.asked != field.had {
			return &sandbox.RefusalError{
				Reason: sandbox.ErrConfigurationChanged, Subject: "config." + field.name, Asked: fmt.Sprint(field.asked),
				Allowed: fmt.Sprintf("what the live sandbox has (%v), until it is disposed", field.had), Decider: b.decider(),
			}
		}
	}
	return nil
}

// lower says why a worker that is ready does not reach the isolation that was
// asked for: what the engine promises, and the spec's floor.
func (b *Backend) lower(w process, spec sandbox.Spec) error {
	floor := spec.MinIsolation
	if b.config.Engine == EngineKVM {
		floor = max(floor, sandbox.IsolationMicroVM)
	}
	var reached sandbox.Isolation
	if err := reached.UnmarshalText([]byte(w.Ready().Isolation)); err == nil && reached.Meets(floor) {
		return nil
	}
	return &sandbox.RefusalError{
		Reason: sandbox.ErrIsolationNotPermitted, Subject: "spec.min_isolation", Asked: floor.String(),
		Allowed: fmt.Sprintf("%s, which is what engine %s reaches on this machine", oneLine(w.Ready().Isolation), oneLine(w.Ready().Engine)),
		Decider: b.decider(),
	}
}
