//go:build linux

package main

import (
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/maf-sandbox/maf-sandbox-go/internal/tools/testvm/plan"
)

// becomeSystemd goes on as systemd, whose only goal is to run the agent. It
// returns only if that cannot be.
func becomeSystemd() error {
	const program = "/usr/lib/systemd/systemd"
	args := []string{program, "--unit=" + plan.AgentUnit, "--log-target=console", "--log-level=notice", "--show-status=no", "--crash-reboot"}
	err := unix.Exec(program, args, []string{"PATH=/usr/bin:/usr/sbin"})
	return fmt.Errorf("become %s: %w", program, err)
}

// inSession gives the command that runs a step in a session of the ordinary
// user. systemd-run gives the step's status.
func inSession(s plan.Step) *exec.Cmd {
	args := []string{
		"--quiet", "--wait", "--pipe", "--collect",
		"--property=User=" + plan.User, "--property=PAMName=" + plan.PAMService, "--working-directory=" + s.Dir,
	}
	for _, v := range s.Env {
		args = append(args, "--setenv="+v)
	}
	args = append(args, s.Path)
	for _, a := range s.Args {
		// systemd expands variables in command lines.
		args = append(args, strings.ReplaceAll(a, "$", "$$"))
	}
	return exec.Command("/usr/bin/systemd-run", args...)
}

// emptyScopes fails when a process is left in a scope of the product. systemd
// removes an empty one in its own time.
func emptyScopes() error {
	return filepath.WalkDir("/sys/fs/cgroup", func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.IsDir() || !strings.HasPrefix(d.Name(), "maf-sandbox-") || filepath.Ext(path) != ".scope" {
			return nil // groups come and go
		}
		events, _ := os.ReadFile(filepath.Join(path, "cgroup.events"))
		if strings.Contains(string(events), "populated 1") {
			return fmt.Errorf("processes in %s", path)
		}
		return fs.SkipDir
	})
}
