package root

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/maf-sandbox/maf-sandbox-go/internal/cli/clitest"
	"github.com/maf-sandbox/maf-sandbox-go/internal/streams"
	"github.com/maf-sandbox/maf-sandbox-go/microvm"
	"github.com/maf-sandbox/maf-sandbox-go/sandbox"
)

func programs() map[string]clitest.Script {
	return map[string]clitest.Script{
		"print(6*7)": clitest.Prints("42\n", "", 0),
		"both":       clitest.Prints("o", "e", 0),
		"exit3":      clitest.Prints("", "", 3),
		"raises":     clitest.Prints("before\n", "Traceback\n", 1),
		"loop":       clitest.Fails("some", "half", clitest.Failure(sandbox.ErrTimeout, true, "time limit of 500ms reached")),
		"spam":       clitest.Fails("yyyy\n", "", clitest.Failure(sandbox.ErrOutputLimit, true, "output limit of 1MiB reached")),
		"crash":      clitest.Fails("", "", clitest.Failure(sandbox.ErrGuestCrash, false, "guest crashed:\nsegmentation fault \x1b[31m")),
		"bytes":      clitest.Prints("a\xffb", "c\xfe", 0),
		"c1":         clitest.Prints("\u009b", "", 0),
		"6*7":        clitest.Values("42"),
		"None":       clitest.Values(""),
	}
}

// command runs a command line over the fake engine.
func command(t *testing.T, e *clitest.Engine, stdin string, args ...string) (status int, stdout, stderr string) {
	t.Helper()
	s, out, errOut := streams.Test(stdin)
	f, _ := e.Factory(s, t.TempDir())
	status = Run(context.Background(), f, args)
	return status, out.String(), errOut.String()
}

func TestRunReportsTheProgramAndTheSandbox(t *testing.T) {
	for _, r := range []struct {
		name           string
		args           []string
		status         int
		stdout, stderr string
	}{
		{"output and success", []string{"-c", "print(6*7)"}, 0, "42\n", ""},
		{"both streams, nothing added", []string{"-c", "both"}, 0, "o", "e"},
		{"the program's status is ours", []string{"-c", "exit3"}, 3, "", ""},
		{"an exception is the program's business", []string{"-c", "raises"}, 1, "before\n", "Traceback\n"},
		{"time limit", []string{"-c", "loop"}, 124, "some", "half\nmaf-sandbox: time limit of 500ms reached\n"},
		{"output limit", []string{"-c", "spam"}, 125, "yyyy\n", "maf-sandbox: output limit of 1MiB reached\n"},
		{"a message is one safe line", []string{"-c", "crash"}, 125, "", "maf-sandbox: guest crashed: segmentation fault ^[[31m\n"},
		{"bytes pass unchanged", []string{"-c", "bytes"}, 0, "a\xffb", "c\xfe"},
		{"no echo unless asked", []string{"-c", "6*7"}, 0, "", ""},
		{"echo", []string{"--echo", "-c", "6*7"}, 0, "42\n", ""},
		{"no echo of None", []string{"--echo", "-c", "None"}, 0, "", ""},
		{"no such file", []string{"missing.py"}, 125, "", "maf-sandbox: nothing was run: missing.py: no such file or directory\n"},
		{"a folder", []string{"/"}, 125, "", "maf-sandbox: nothing was run: /: is a directory\n"},
		{"flags before a program", []string{"--json", "--timeout", "1s", "-"}, 0, `{"stdout":"42\n","stderr":"","exit_code":0,"error":null,"duration_ms":0,"engine":"fake","isolation":"none","generation":"generation-1","limits":"none"}` + "\n", ""},
	} {
		t.Run(r.name, func(t *testing.T) {
			e := &clitest.Engine{Programs: programs()}
			status, stdout, stderr := command(t, e, "print(6*7)", append([]string{"run"}, r.args...)...)
			if status != r.status || stdout != r.stdout || stderr != r.stderr {
				t.Errorf("got %d, %q, %q; want %d, %q, %q", status, stdout, stderr, r.status, r.stdout, r.stderr)
			}
			if opened, _, closed := e.Counts(); opened != closed {
				t.Errorf("%d machines opened, %d closed", opened, closed)
			}
		})
	}
}

func TestRunJSONHasTheSameStatusAndOneLine(t *testing.T) {
	const tail = `"duration_ms":0,"engine":"fake","isolation":"none","generation":"generation-1","limits":"none"`
	for _, r := range []struct {
		name   string
		args   []string
		status int
		stdout string
		stderr string
	}{
		{"the program's status", []string{"-c", "exit3"}, 3, `{"stdout":"","stderr":"","exit_code":3,"error":null,` + tail + "}\n", ""},
		{"time limit", []string{"-c", "loop"}, 124,
			`{"stdout":"some","stderr":"half","exit_code":124,"error":{"kind":"timeout","message":"time limit of 500ms reached","usable":true},` + tail + "}\n",
			"maf-sandbox: time limit of 500ms reached\n"},
		{"bytes that are no text", []string{"-c", "bytes"}, 0,
			`{"stdout":"a\ufffdb","stderr":"c\ufffd","exit_code":0,"error":null,` + tail + `,"stdout_base64":"Yf9i","stderr_base64":"Y/4="}` + "\n", ""},
		{"controls stay escaped", []string{"-c", "c1"}, 0, `{"stdout":"\u009b","stderr":"","exit_code":0,"error":null,` + tail + "}\n", ""},
		{"value", []string{"--echo", "-c", "6*7"}, 0, `{"stdout":"","stderr":"","exit_code":0,"error":null,` + tail + `,"value":"42"}` + "\n", ""},
		{"no value", []string{"--echo", "-c", "None"}, 0, `{"stdout":"","stderr":"","exit_code":0,"error":null,` + tail + `,"value":null}` + "\n", ""},
		{"no such file", []string{"missing.py"}, 125,
			`{"stdout":"","stderr":"","exit_code":125,"error":{"kind":"refused","message":"nothing was run: missing.py: no such file or directory","usable":true},"duration_ms":0,"engine":"","isolation":"","generation":"","limits":""}` + "\n",
			"maf-sandbox: nothing was run: missing.py: no such file or directory\n"},
	} {
		t.Run(r.name, func(t *testing.T) {
			status, stdout, stderr := command(t, &clitest.Engine{Programs: programs()}, "", append([]string{"run", "--json"}, r.args...)...)
			if status != r.status || stdout != r.stdout || stderr != r.stderr {
				t.Errorf("got  %d, %s, %q\nwant %d, %s, %q", status, stdout, stderr, r.status, r.stdout, r.stderr)
			}
		})
	}
}

func TestRunSaysWhyThereIsNoSandbox(t *testing.T) {
	e := &clitest.Engine{OpenErr: clitest.Failure(sandbox.ErrUnavailable, false, "no /dev/kvm; see maf-sandbox doctor")}
	for _, args := range [][]string{{"run", "-c", "x"}, {"run", "--json", "-c", "x"}, {"repl"}} {
		status, stdout, stderr := command(t, e, "", args...)
		if status != 125 || stderr != "maf-sandbox: no /dev/kvm; see maf-sandbox doctor\n" {
			t.Errorf("%v: got %d, %q", args, status, stderr)
		}
		if isJSON := strings.Contains(stdout, `"kind":"unavailable"`); isJSON != (args[1:] != nil && len(args) > 2 && args[1] == "--json") {
			t.Errorf("%v: stdout %q", args, stdout)
		}
	}
}

func TestRunNamesTheSourceWithoutItsPathAndHandsItsArgumentsOn(t *testing.T) {
	file := filepath.Join(t.TempDir(), "prog.py")
	if err := os.WriteFile(file, []byte("print(6*7)"), 0o600); err != nil {
		t.Fatal(err)
	}
	const code = "print(6*7)"
	for _, r := range []struct {
		args []string
		name string
		argv []string
	}{
		{[]string{file}, "prog.py", []string{"prog.py"}},
		{[]string{"--json", file, "a", "", "b c"}, "prog.py", []string{"prog.py", "a", "", "b c"}},
		{[]string{file, "--", "--json", "--", "-x"}, "prog.py", []string{"prog.py", "--json", "--", "-x"}},
		{[]string{"--", file, "-x"}, "prog.py", []string{"prog.py", "-x"}},
		{[]string{"-"}, "<stdin>", []string{"-"}},
		{[]string{"-", "-", "a\xff"}, "<stdin>", []string{"-", "-", "a\xff"}},
		{[]string{"-c", code}, "<string>", []string{"-c"}},
		{[]string{file, "a", "--", "-x", "--"}, "prog.py", []string{"prog.py", "a", "-x", "--"}},
		{[]string{"-c", code, "--", "a", "--", "-b"}, "<string>", []string{"-c", "a", "--", "-b"}},
		{[]string{"-c", code, "--timeout", "5s"}, "<string>", []string{"-c"}},
	} {
		e := &clitest.Engine{Programs: programs()}
		command(t, e, code, append([]string{"run"}, r.args...)...)
		if got := e.Requests(); len(got) != 1 || got[0].Filename != r.name || !slices.Equal(got[0].Argv, r.argv) {
			t.Errorf("%q: requests %+v, want the name %q and %q", r.args, got, r.name, r.argv)
		}
	}
}

func TestRunHandsItsFlagsOn(t *testing.T) {
	e := &clitest.Engine{Programs: programs()}
	command(t, e, "", "run", "-c", "6*7", "--timeout", "500ms", "--memory", "1GiB", "--max-output", "64KiB", "--image", "data", "--engine", "kvm", "--echo")
	req, opt := e.Requests()[0], e.Options()[0]
	if req.Timeout.String() != "500ms" || req.MaxOutput != 64<<10 || !req.Echo {
		t.Errorf("request %+v", req)
	}
	if opt.Memory != 1<<30 || opt.Image != "data" || opt.Engine != "kvm" {
		t.Errorf("options %+v", opt)
	}
}

func TestRunRefusesCodeThatIsTooLarge(t *testing.T) {
	big := bytes.Repeat([]byte("#"), microvm.DefaultMaxCode+1)
	file := filepath.Join(t.TempDir(), "big.py")
	if err := os.WriteFile(file, big, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, r := range []struct {
		args []string
		want string
	}{
		{[]string{"run", file}, file + " has 1048577 bytes, more than the limit of 1MiB"},
		{[]string{"run", "-"}, "standard input has more than the limit of 1MiB"},
		{[]string{"run", "-c", string(big)}, "the code has 1048577 bytes, more than the limit of 1MiB"},
	} {
		e := &clitest.Engine{}
		status, _, stderr := command(t, e, string(big), r.args...)
		if status != 125 || stderr != "maf-sandbox: nothing was run: "+r.want+"\n" {
			t.Errorf("got %d, %q; want 125, %q", status, stderr, r.want)
		}
		if opened, _, _ := e.Counts(); opened != 0 {
			t.Error("a machine was opened")
		}
	}
}

func TestRunEndsWith130OnInterrupt(t *testing.T) {
	for _, args := range [][]string{{"run", "-c", "loop"}, {"run", "--json", "-c", "loop"}} {
		started := make(chan struct{})
		e := &clitest.Engine{Programs: map[string]clitest.Script{"loop": clitest.Waits(started)}}
		s, out, errOut := streams.Test("")
		f, signals := e.Factory(s, t.TempDir())
		done := make(chan int)
		go func() { done <- Run(context.Background(), f, args) }()
		<-started
		signals <- os.Interrupt
		if status := <-done; status != 130 {
			t.Errorf("%v: status %d, want 130", args, status)
		}
		if strings.Contains(errOut.String(), "maf-sandbox:") {
			t.Errorf("%v: stderr %q", args, errOut)
		}
		if args[1] == "--json" && !strings.Contains(out.String(), `"kind":"canceled"`) {
			t.Errorf("stdout %q", out)
		}
	}
}

func TestRunEndsByHowItsOutputFails(t *testing.T) {
	for _, r := range []struct {
		name   string
		err    error
		status int
		stderr string
	}{
		{"a closed pipe is a quiet end", syscall.EPIPE, 141, ""},
		{"a full device is an error", syscall.ENOSPC, 125, "maf-sandbox: standard output: write failed: no space left on device\n"},
	} {
		for _, flag := range []string{"--raw", "--json"} {
			t.Run(r.name+" "+flag, func(t *testing.T) {
				s, _, errOut := streams.Test("")
				s.Out = broken{r.err}
				f, _ := (&clitest.Engine{Programs: programs()}).Factory(s, t.TempDir())
				if status := Run(context.Background(), f, []string{"run", flag, "-c", "print(6*7)"}); status != r.status || errOut.String() != r.stderr {
					t.Errorf("got %d, %q; want %d, %q", status, errOut, r.status, r.stderr)
				}
			})
		}
	}
}

func TestRunIsStoppedWhenNobodyReads(t *testing.T) {
	s, _, _ := streams.Test("")
	s.Out = broken{syscall.EPIPE}
	e := &clitest.Engine{Programs: map[string]clitest.Script{
		"spam": func(ctx context.Context, req microvm.Request) (microvm.Result, error) {
			_, _ = req.Stdout.Write([]byte("y"))
			<-ctx.Done()
			return microvm.Result{}, clitest.Failure(sandbox.ErrCanceled, true, "canceled")
		},
	}}
	f, _ := e.Factory(s, t.TempDir())
	if status := Run(context.Background(), f, []string{"run", "-c", "spam"}); status != 141 {
		t.Errorf("status %d, want 141", status)
	}
}

func TestRunNeutralisesOnATerminal(t *testing.T) {
	for _, r := range []struct {
		args []string
		want string
	}{{[]string{"run", "-c", "x"}, "^[[2J"}, {[]string{"run", "--raw", "-c", "x"}, "\x1b[2J"}} {
		s, out, _ := streams.Test("")
		s.OutTTY = true
		e := &clitest.Engine{Programs: map[string]clitest.Script{"x": clitest.Prints("\x1b[2J", "", 0)}}
		f, _ := e.Factory(s, t.TempDir())
		if Run(context.Background(), f, r.args); out.String() != r.want {
			t.Errorf("%v: got %q, want %q", r.args, out, r.want)
		}
	}
}

type broken struct{ err error }

func (b broken) Write([]byte) (int, error) {
	return 0, &os.PathError{Op: "write", Path: "/dev/stdout", Err: b.err}
}
