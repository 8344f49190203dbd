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
		{[]string{"run", "--json=maybe", "a"}, `"maybe" for "--json" flag: want true or false`},
		{[]string{"mcp", "--max-sessions", "many"}, `"many" for "--max-sessions" flag: want a whole number`},
		{[]string{"run", "-c", "1", "--allow", "http://a/"}, `--allow: "http://a/" is no host`},
		{[]string{"run", "--allow", "a b", "missing.py"}, `--allow: "a b" is no host`},
		{[]string{"run", "--json", "--allow-private", "a b", "missing.py"}, `--allow-private: "a b" is no host`},
		{[]string{"run", "-c", "1", "--raw", "--json"}, "--raw has no effect with --json"},
		{[]string{"mcp", "--allow-private", "a:80"}, `--allow-private: "a:80" is no host`},
		{[]string{"image", "show", "a", "b"}, "NAME of one image, not of 2"},
		{[]string{"run"}, "nothing to run"},
		{[]string{"run", ""}, "FILE is empty"},
		{[]string{"run", "--what", "a"}, "--what (what is for the program goes behind --)"},
		{[]string{"run", "a", "--json"}, `"--json" stands behind the program`},
		{[]string{"run", "-", "a", "-cprint(1)"}, `"-cprint(1)" stands behind the program`},
		{[]string{"run", "-c", "1", "a"}, "arguments for the text of -c go behind --"},
		{[]string{"run", "a", "-c", "1"}, `"-c" stands behind the program`},
		{[]string{"run", "a", "-x"}, "behind --"},
		{[]string{"run", "-c"}, "'c'"},
		{[]string{"run", "--what"}, "--what"},
		{[]string{"run", "--timeout", "5", "a"}, "--timeout"},
		{[]string{"run", "--timeout", "-5m", "a"}, "--timeout"},
		{[]string{"run", "--timeout", "0s", "a"}, "--timeout"},
		{[]string{"run", "--timeout", "1e9", "a"}, "--timeout"},
		{[]string{"run", "--timeout", "25h", "a"}, "--timeout"},
		{[]string{"run", "--memory", "1MiB", "a"}, "--memory"},
		{[]string{"run", "--memory", "many", "a"}, "--memory"},
		{[]string{"run", "--memory", "99999999GiB", "a"}, "--memory"},
		{[]string{"run", "--max-output", "0", "a"}, "--max-output"},
		{[]string{"run", "--max-output", "17MiB", "a"}, "--max-output"},
		{[]string{"run", "--engine", "hyperlight", "a"}, "--engine"},
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
