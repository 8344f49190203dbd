//go:build linux

package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"syscall"

	"github.com/maf-sandbox/maf-sandbox-go/internal/tools/testvm/plan"
)

// run runs those steps that need systemd, or those that do not.
func run(p plan.Plan, systemd bool, out *os.File) error {
	for i, s := range p.Steps {
		if s.Variant.NeedsSystemd() != systemd {
			continue
		}
		if err := say(out, plan.Report{Kind: plan.Start, N: i}); err != nil {
			return err
		}
		s.Env = append(environment(s.Variant), append(p.Env, s.Env...)...)
		status, err := step(s, out)
		if err != nil {
			return fmt.Errorf("%s: %w", s.Path, err)
		}
		if err := say(out, plan.Report{Kind: plan.End, N: i, Status: status}); err != nil {
			return err
		}
	}
	return nil
}

// step gives the status of a step; an error means that it could not be started.
func step(s plan.Step, out *os.File) (int, error) {
	switch s.Variant {
	case plan.Root:
		return start(s, exec.Command(s.Path, s.Args...), out)
	case plan.Unprivileged:
		return tidy(s, fromShell(s), out, takeBack)
	case plan.SystemdRoot:
		return tidy(s, exec.Command(s.Path, s.Args...), out, emptyScopes)
	case plan.SystemdUser:
		return tidy(s, inSession(s), out, emptyScopes)
	default:
		return 0, fmt.Errorf("unknown variant %q", s.Variant)
	}
}

// tidy is start for a step that has to leave things as check wants them: it
// makes a failure of what is left behind.
func tidy(s plan.Step, cmd *exec.Cmd, out *os.File, check func() error) (int, error) {
	status, err := start(s, cmd, out)
	if err != nil {
		return status, err
	}
	if err := check(); err != nil {
		_, _ = fmt.Fprintf(out, "\nthe tests left something behind: %v\n", err)
		status = max(status, 1)
	}
	return status, nil
}

// environment is what every step of a variant has.
func environment(v plan.Variant) []string {
	home := "/tmp"
	if v == plan.Unprivileged || v == plan.SystemdUser {
		home = plan.UserHome
	}
	return []string{"HOME=" + home, "TMPDIR=/tmp", "PATH=/usr/bin:/usr/sbin"}
}

// start runs a step by a command and gives its status.
func start(s plan.Step, cmd *exec.Cmd, out *os.File) (int, error) {
	cmd.Dir, cmd.Env = s.Dir, s.Env
	cmd.Stdout, cmd.Stderr = out, out
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		return 0, err
	}
	if w, ok := cmd.ProcessState.Sys().(syscall.WaitStatus); ok && w.Signaled() {
		return 128 + int(w.Signal()), nil
	}
	return cmd.ProcessState.ExitCode(), nil
}
