//go:build linux

package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/maf-sandbox/maf-sandbox-go/internal/cgroup"
	"github.com/maf-sandbox/maf-sandbox-go/internal/tools/testvm/plan"
)

// fromShell gives the command that runs a step as the ordinary user, from a
// shell that has just typed what the product tells operators to type.
func fromShell(s plan.Step) *exec.Cmd {
	const quiet = " >/dev/null\n"
	script := strings.Join(cgroup.Recipe(cgroup.DefaultRoot, plan.User), quiet) + quiet + `exec "$@"`
	shell := exec.Command("/usr/bin/sh", append([]string{"-euc", script, "sh", s.Path}, s.Args...)...)
	shell.SysProcAttr = &syscall.SysProcAttr{
		Setsid:     true,
		Credential: &syscall.Credential{Uid: plan.UserID, Gid: plan.UserID, Groups: []uint32{plan.UserID, plan.KVMGroup}},
	}
	return shell
}

// takeBack removes what the recipe has made, so that it proves itself anew with
// each step. A group that holds a process or another group cannot be removed.
func takeBack() error {
	for _, dir := range []string{filepath.Join(cgroup.DefaultRoot, "host"), cgroup.DefaultRoot} {
		if err := unix.Rmdir(dir); err != nil {
			return fmt.Errorf("%s: %w: %s", dir, err, contents(dir))
		}
	}
	return nil
}

// contents lists groups and processes, for the reader of a failure.
func contents(dir string) string {
	var words []string
	entries, _ := os.ReadDir(dir)
	for _, e := range entries {
		if e.IsDir() {
			words = append(words, "group "+e.Name())
		}
	}
	pids, _ := os.ReadFile(filepath.Join(dir, "cgroup.procs"))
	for pid := range strings.FieldsSeq(string(pids)) {
		name, _ := os.ReadFile(filepath.Join("/proc", pid, "comm"))
		words = append(words, fmt.Sprintf("process %s %q", pid, strings.TrimSpace(string(name))))
	}
	return strings.Join(words, ", ")
}
