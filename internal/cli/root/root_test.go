package root

import (
	"strings"
	"testing"

	"github.com/maf-sandbox/maf-sandbox-go/internal/cli/clitest"
)

func TestAWrongCommandLineEndsWith2AndNamesWhatIsWrong(t *testing.T) {
	for _, r := range []struct {
		args []string
		want string
	}{
		{[]string{"frobnicate"}, `"frobnicate"`},
		{[]string{"image", "frobnicate"}, `"frobnicate"`},
		{[]string{"rum"}, `unknown command "rum" for "maf-sandbox"; did you mean run?`},
		{[]string{"help", "frobnicate"}, `there is no command "frobnicate"`},
		{[]string{"completion", "frobnicate"}, `"frobnicate"`},
		{[]string{"completion", "bash", "frobnicate"}, `takes no arguments, and was given "frobnicate"`},
		{[]string{"run", "a", "--json=maybe"}, `"maybe" for "--json" flag: want true or false`},
		{[]string{"mcp", "--max-sessions", "many"}, `"many" for "--max-sessions" flag: want a whole number`},
		{[]string{"run", "-c", "1", "--allow", "http://a/"}, `--allow: "http://a/" is no host`},
		{[]string{"run", "missing.py", "--allow", "a b"}, `--allow: "a b" is no host`},
		{[]string{"run", "missing.py", "--json", "--allow-private", "a b"}, `--allow-private: "a b" is no host`},
		{[]string{"run", "-c", "1", "--raw", "--json"}, "--raw has no effect with --json"},
		{[]string{"mcp", "--allow-private", "a:80"}, `--allow-private: "a:80" is no host`},
		{[]string{"image", "show", "a", "b"}, "NAME of one image, not of 2"},
		{[]string{"run"}, "nothing to run"},
		{[]string{"run", ""}, "FILE is empty"},
		{[]string{"run", "a", "--what"}, "--what (what is for the program goes behind --)"},
		{[]string{"run", "a", "-x"}, "behind --"},
		{[]string{"run", "-c"}, "'c'"},
		{[]string{"run", "--what"}, "--what"},
		{[]string{"run", "a", "--timeout", "5"}, "--timeout"},
		{[]string{"run", "a", "--timeout", "-5m"}, "--timeout"},
		{[]string{"run", "a", "--timeout", "0s"}, "--timeout"},
		{[]string{"run", "a", "--timeout", "1e9"}, "--timeout"},
		{[]string{"run", "a", "--timeout", "25h"}, "--timeout"},
		{[]string{"run", "a", "--memory", "1MiB"}, "--memory"},
		{[]string{"run", "a", "--memory", "many"}, "--memory"},
		{[]string{"run", "a", "--memory", "99999999GiB"}, "--memory"},
		{[]string{"run", "a", "--max-output", "0"}, "--max-output"},
		{[]string{"run", "a", "--max-output", "17MiB"}, "--max-output"},
		{[]string{"run", "a", "--engine", "hyperlight"}, "--engine"},
		{[]string{"repl", "x"}, "x"},
		{[]string{"doctor", "x"}, "x"},
		{[]string{"version", "x"}, "x"},
		{[]string{"bench", "--only"}, "--only"},
		{[]string{"image", "show"}, "give the NAME of an image"},
		{[]string{"image", "rm"}, "give the NAME of an image"},
		{[]string{"image", "rm", ""}, "NAME"},
		{[]string{"image", "build", "--python", "a", "--venv", "b"}, "--venv"},
		{[]string{"image", "build", "--python", ""}, "--python"},
		{[]string{"image", "build", "--name", "A B"}, "--name"},
	} {
		t.Run(strings.Join(r.args, " "), func(t *testing.T) {
			status, stdout, stderr := command(t, &clitest.Engine{}, "", r.args...)
			if status != 2 || stdout != "" || !strings.Contains(stderr, r.want) || !strings.HasPrefix(stderr, "maf-sandbox: ") {
				t.Errorf("got %d, %q, %q; want 2 and %q", status, stdout, stderr, r.want)
			}
		})
	}
}

func TestHelpIsThereForEveryCommand(t *testing.T) {
	for _, args := range [][]string{{}, {"run"}, {"repl"}, {"image"}, {"image", "build"}, {"doctor"}, {"bench"}, {"version"}} {
		status, stdout, stderr := command(t, &clitest.Engine{}, "", append(args, "--help")...)
		if status != 0 || stderr != "" || !strings.Contains(stdout, "Usage\n  maf-sandbox "+strings.Join(args, " ")) {
			t.Errorf("%v: got %d, %q, %q", args, status, stdout, stderr)
		}
	}
}

func TestVersionAndManualPageArePrinted(t *testing.T) {
	for _, r := range []struct {
		args []string
		want string
	}{
		{[]string{"version"}, "engines  kvm, ptrace\n"},
		{[]string{"version", "--json"}, `"engines":["kvm","ptrace"]`},
		{[]string{"man"}, ".TH"},
		{[]string{"completion", "bash"}, "maf-sandbox"},
	} {
		status, stdout, stderr := command(t, &clitest.Engine{}, "", r.args...)
		if status != 0 || stderr != "" || !strings.Contains(stdout, r.want) {
			t.Errorf("%v: got %d, %.200q, %q; want %q", r.args, status, stdout, stderr, r.want)
		}
	}
}
