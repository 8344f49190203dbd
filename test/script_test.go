// Package test runs the program as its users do: every command line of the
// README is a script.
package test

import (
	"errors"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/maf-sandbox/maf-sandbox-go/internal/cli"
	"github.com/maf-sandbox/maf-sandbox-go/internal/cli/ceiling"
	"github.com/maf-sandbox/maf-sandbox-go/internal/cli/root"
	"github.com/maf-sandbox/maf-sandbox-go/internal/mst/command"
	"github.com/maf-sandbox/maf-sandbox-go/internal/platform/host"
	"github.com/maf-sandbox/maf-sandbox-go/microvm"
)

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){
		cli.Program:     func() { os.Exit(root.Main()) },
		command.Program: func() { os.Exit(command.Main(command.New())) },
	})
}

func TestScripts(t *testing.T) {
	// Programs are to hear of a hang-up although this one may have been started by
	// nohup: a signal that is handled has its ordinary effect in children.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGHUP)
	examples, err := filepath.Abs("../examples")
	if err != nil {
		t.Fatal(err)
	}
	cache := filepath.Join(t.TempDir(), "cache")
	if canRun() {
		// Capturing and booting Python takes a second: once for all scripts.
		first := exec.Command(cli.Program, "run", "-c", "pass")
		first.Env = append(os.Environ(), cli.CacheEnv+"="+cache)
		if out, err := first.CombinedOutput(); err != nil {
			t.Fatalf("first run: %v\n%s", err, out)
		}
	}
	testscript.Run(t, testscript.Params{
		Dir:                 "script",
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		Setup: func(e *testscript.Env) error {
			e.Setenv(cli.CacheEnv, cache)
			e.Setenv("EXAMPLES", examples)
			return nil
		},
		Condition: func(name string) (bool, error) {
			switch name {
			case "kvm":
				return has(host.KVM) && hasPython(), nil
			case "engine":
				return canRun(), nil
			case "ptrace":
				return has(host.Ptrace) && hasPython(), nil
			case "python3":
				return hasPython(), nil
			case "cgroup":
				return ceiling.Strongest(ceiling.Probe()) == microvm.EnforceCgroup, nil
			case "pgrep":
				_, err := exec.LookPath("pgrep")
				return err == nil, nil
			case "mounts":
				return exec.Command("unshare", "-m", "setpriv", "--version").Run() == nil, nil
			}
			return false, errors.New("unknown condition " + name)
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){"status": status},
	})
}

// status N COMMAND... runs a command that has to end with the exit status N.
func status(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: status N COMMAND...")
	}
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	err = ts.Exec(args[1], args[2:]...)
	got := 0
	var exit *exec.ExitError
	switch {
	case errors.As(err, &exit):
		got = exit.ExitCode()
	case err != nil:
		ts.Fatalf("%s: %v", args[1], err)
	}
	if got != want {
		ts.Fatalf("exit status %d, want %d", got, want)
	}
}

// canRun says whether this machine can run a sandbox at all: it has one of the
// engines and a Python to capture.
func canRun() bool { return has(host.Auto) && hasPython() }

func hasPython() bool {
	_, err := exec.LookPath("python3")
	return err == nil
}
