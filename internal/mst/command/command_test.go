package command

import (
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/spf13/pflag"

	"github.com/maf-sandbox/maf-sandbox-go/control"
	"github.com/maf-sandbox/maf-sandbox-go/internal/streams"
)

func TestOptionsStandBeforeOrAfterTheCommand(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "hosts")
	endpoint, _ := serve(t, dir, "one", control.NewMemory(record("aaa", "one", nil)))
	p := player{directory: dir}
	want := p.run(t, "list", "--json", "--endpoint", endpoint, "--source", "x")
	if want.status != 0 || !strings.Contains(want.out, `"aaa"`) {
		t.Fatalf("got %+v", want)
	}
	for _, args := range [][]string{
		{"--json", "--endpoint", endpoint, "--source", "x", "list"},
		{"--endpoint", endpoint, "list", "--json", "--source=x"},
		{"--json", "list", "--endpoint=" + endpoint},
		{"list", "-o", "json", "--endpoint", endpoint},
		{"--json", "--endpoint", endpoint},
		{"--js", "--endp", endpoint, "list"},
		{"--js", "list", "--endp=" + endpoint},
	} {
		if got := p.run(t, args...); got != want {
			t.Errorf("%q: got %+v, want %+v", args, got, want)
		}
	}
}

func TestWrongCommandLinesEndWith2AndNameTheCulprit(t *testing.T) {
	for _, r := range []struct {
		args []string
		want string
	}{
		{[]string{"nope"}, `unknown command "nope"`},
		{[]string{"lst"}, `unknown command "lst"; did you mean list?`},
		{[]string{"help", "nope"}, `no command "nope"`},
		{[]string{"completion"}, "bash, fish, powershell or zsh"},
		{[]string{"completion", "zhs"}, `unknown command "zhs"; did you mean zsh?`},
		{[]string{"completion", "bash", "x"}, `"x"`},
		{[]string{"--endpoint", "", "purge-thread", "--scope", "s", "--thread", "t", "--yes"}, "--endpoint"},
		{[]string{"hosts", "--endpoint="}, "--endpoint"},
		{[]string{"list", "x"}, `got "x"`},
		{[]string{"list", "--older-than", "-5m"}, "--older-than"},
		{[]string{"list", "--st", "ready", "--demo"}, "--state"}, // the beginning of --state alone
		{[]string{"list", "--s", "ready"}, "--s"},                // of several
		{[]string{"list", "--sort", "nope"}, "--sort"},
		{[]string{"list", "--columns", "nope"}, "--columns"},
		{[]string{"list", "--columns", "key", "--json"}, "--columns"},
		{[]string{"list", "-o", "yaml"}, "table, wide, json, jsonl"},
		{[]string{"list", "-o", "wide", "--json"}, "--json and --output wide"},
		{[]string{"hosts", "-o", "wide"}, "table, json, jsonl"},
		{[]string{"watch", "--interval", "0"}, "--interval"},
		{[]string{"watch", "--interval", "1e"}, "--interval"},
		{[]string{"watch", "--count", "1.5"}, "--count"},
		{[]string{"watch", "--count", "-1"}, "--count"},
		{[]string{"delete", "x", "--timeout", "0x10"}, "--timeout"},
		{[]string{"delete", "x", "--timeout", "inf"}, "--timeout"},
		{[]string{"delete", "x", "--timeout", "1d"}, "must be a number of seconds"},
		{[]string{"delete", "x", "--timeout", "-5s"}, "must be a finite positive number of seconds"},
		{[]string{"delete", "x", "y"}, "INSTANCE_ID"},
		{[]string{"purge-thread", "--scope", "s"}, "--thread"},
		{[]string{"purge-thread", "--thread", "s"}, "--scope"},
		{[]string{"version", "--demo"}, "--demo"},
		{[]string{"--frob", "list"}, "--frob"},
		{[]string{"list", "-x"}, "-x"},
		{nil, "the console needs a terminal"},
	} {
		got := player{directory: "/nonexistent"}.run(t, r.args...)
		if slices.Contains(r.args, "--st") {
			if got.status != 0 {
				t.Errorf("%q: got %+v; an unambiguous beginning is enough", r.args, got)
			}
			continue
		}
		if got.status != ExitUsage || got.out != "" || !strings.Contains(got.errOut, r.want) || !strings.Contains(got.errOut, "--help'.") {
			t.Errorf("%q: got %+v, want %q", r.args, got, r.want)
		}
	}
}

func TestIDsNeverLeaveTheirPlaceInThePath(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "hosts")
	ids := []string{"a/b", "../health", "..", ".", "?x", "#", "%2F", "a b", "ünï", "\x1b[2J", "x\ny"}
	var records []control.Record
	for _, id := range ids {
		records = append(records, record(id, "one", nil))
	}
	serve(t, dir, "one", control.NewMemory(records...))
	for _, id := range ids {
		got := player{directory: dir}.run(t, "show", "--json", "--", id)
		var r struct {
			ID string `json:"instance_id"`
		}
		if err := json.Unmarshal([]byte(got.out), &r); err != nil || got.status != 0 || r.ID != id {
			t.Errorf("%q: got %+v, %v", id, got, err)
		}
	}
	if got := (player{directory: dir}).run(t, "show", ""); got.status != ExitAbsent {
		t.Errorf("the empty id: got %+v", got)
	}
}

func TestTextOfHostsIsNeutralAndStaysOnItsLine(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "hosts")
	evil := record("id\x1b[31m", "one", func(r *control.Record) {
		r.ThreadID, r.ExecutionContract, r.EgressTargets = "a\nb\x1b]0;x\a", "\u009b1m", []string{"\u202e"}
	})
	serve(t, dir, "one\x1b[2J", control.NewMemory(evil))
	for _, args := range [][]string{
		{"list"}, {"list", "-o", "wide"}, {"show", evil.InstanceID}, {"hosts"}, {"watch", "--count", "1"},
		{"list", "--json"}, {"watch", "--jsonl", "--count", "1"}, {"delete", evil.InstanceID, "--yes"},
	} {
		got := player{directory: dir}.run(t, args...)
		if got.status != 0 {
			t.Errorf("%q: %+v", args, got)
		}
		for _, r := range got.out + got.errOut {
			if r < ' ' && r != '\n' || r >= 0x7f && r < 0xa0 || r == '\u202e' {
				t.Errorf("%q wrote %q and %q", args, got.out, got.errOut)
				break
			}
		}
		if rows := strings.Count(got.out, "\n"); args[0] == "list" && len(args) == 1 && rows != 3 {
			t.Errorf("%q wrote %d lines, want 3: %q", args, rows, got.out)
		}
	}
}

func TestTablesCanBeChosenAndSorted(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "hosts")
	serve(t, dir, "one", control.NewMemory(
		record("aaa", "one", func(r *control.Record) { r.ThreadID = "z"; r.CreatedAt -= 1e6 }),
		record("bbb", "one", func(r *control.Record) { r.ThreadID = "y" }),
	))
	p := player{directory: dir}
	for _, r := range []struct {
		args []string
		want string
	}{
		{[]string{"--columns", "instance,thread", "--no-headers"}, "bbb  y\naaa  z\n"},
		{[]string{"--columns", "instance", "--no-headers", "--sort", "-age"}, "aaa\nbbb\n"},
		{[]string{"--columns", "instance", "--sort", "instance"}, "INSTANCE\n--------\naaa\nbbb\n"},
		{[]string{"--columns", "instance", "--no-headers", "--thread", "y"}, "bbb\n"},
		{[]string{"--thread", "", "--columns", "instance"}, "No sandboxes.\n"},
		// Whose lines are ids has no sentences.
		{[]string{"--thread", "", "--columns", "instance", "--no-headers"}, ""},
	} {
		if got := p.run(t, append([]string{"list"}, r.args...)...); got.out != r.want || got.status != 0 {
			t.Errorf("%q: got %+v, want %q", r.args, got, r.want)
		}
	}
	lines := p.run(t, "list", "-o", "jsonl")
	if n := strings.Count(lines.out, "\n"); n != 2 || !strings.HasPrefix(lines.out, `{"source_id":"one",`) {
		t.Errorf("jsonl: %+v", lines)
	}
	if wide := p.run(t, "list", "-o", "wide"); !strings.Contains(wide.out, "EGRESS") || !strings.Contains(wide.out, "a.example, b.example") {
		t.Errorf("wide: %+v", wide)
	}
	if none := (player{directory: filepath.Join(t.TempDir(), "none")}).run(t, "hosts", "--no-headers"); none.out != "" || none.status != 0 {
		t.Errorf("no hosts: %+v", none)
	}
	if hosts := p.run(t, "hosts", "-o", "jsonl"); !strings.HasPrefix(hosts.out, `{"source_id":"one","endpoint":`) {
		t.Errorf("hosts: %+v", hosts)
	}
}

func TestColourIsOnlyThereWhereItIsWanted(t *testing.T) {
	env := func(pairs ...string) func(string) string {
		return func(name string) string {
			for i := 0; i < len(pairs); i += 2 {
				if pairs[i] == name {
					return pairs[i+1]
				}
			}
			return ""
		}
	}
	for _, r := range []struct {
		name     string
		terminal bool
		env      func(string) string
		want     bool
	}{
		{"a terminal", true, env(), true},
		{"a pipe", false, env(), false},
		{"NO_COLOR", true, env("NO_COLOR", "1"), false},
		{"forced", false, env("CLICOLOR_FORCE", "1"), true},
		{"not forced", false, env("CLICOLOR_FORCE", "0"), false},
		{"NO_COLOR is stronger", true, env("NO_COLOR", "1", "CLICOLOR_FORCE", "1"), false},
		{"CLICOLOR=0", true, env("CLICOLOR", "0"), false},
	} {
		if got := wantsColor(r.terminal, r.env); got != r.want {
			t.Errorf("%s: %v", r.name, got)
		}
	}
	p := player{change: func(f *Factory) { f.Streams.Color = true }}
	if got := p.run(t, "--demo", "list"); !strings.Contains(got.out, "\x1b[31mfailed\x1b[0m") {
		t.Errorf("got %q", got.out)
	}
	if got := p.run(t, "--help"); !strings.Contains(got.out, "\x1b[1mUsage\x1b[0m") {
		t.Errorf("got %q", got.out)
	}
}

func TestWritesThatFailEndTheProgram(t *testing.T) {
	for _, args := range [][]string{{"--demo", "list"}, {"--demo", "list", "--json"}, {"--demo", "watch", "--jsonl"}, {"--demo", "watch"}, {"version"}, {"--version"}, {"--demo", "show", "nope", "--json"}, {"--help"}, {"--help", "list"}, {"help", "list"}, {"list", "-h"}, {"man"}} {
		pipe := player{change: func(f *Factory) { f.Streams.Out = failing{syscall.EPIPE} }}
		if got := pipe.run(t, args...); got.status != ExitPipe || got.errOut != "" {
			t.Errorf("%q into a closed pipe: got %+v", args, got)
		}
		full := player{change: func(f *Factory) {
			f.Streams.Out = failing{&os.PathError{Op: "write", Path: "/dev/stdout", Err: syscall.ENOSPC}}
		}}
		if got := full.run(t, args...); got.status != ExitFailed || !strings.Contains(got.errOut, "no space left") {
			t.Errorf("%q onto a full device: got %+v", args, got)
		}
	}
}

func TestAnswersThatAreNoYesKeep(t *testing.T) {
	for typed, status := range map[string]int{
		"y\n": 0, "YES\n": 0, " y \n": 0, "y": ExitDeclined, "": ExitDeclined, "\n": ExitDeclined, "yep\n": ExitDeclined, "n\n": ExitDeclined,
		strings.Repeat(" ", 2*maxAnswer) + "y\n": ExitDeclined,
	} {
		got := player{stdin: typed, terminal: true}.run(t, "--demo", "purge-thread", "--scope", "tenant-labs", "--thread", "x")
		if got.status != status {
			t.Errorf("%q: got %+v, want %d", typed, got, status)
		}
	}
}

func TestEveryCommandHasHelpWithExamples(t *testing.T) {
	root := NewCmd(&Factory{Streams: func() *streams.Streams { s, _, _ := streams.Test(""); return s }()})
	for _, cmd := range root.Commands() {
		if !cmd.IsAvailableCommand() || cmd.Name() == "completion" {
			continue
		}
		got := player{}.run(t, "help", cmd.Name())
		if got.status != 0 || !strings.Contains(got.out, "Examples\n  mst "+cmd.Name()) {
			t.Errorf("help %s: %+v", cmd.Name(), got)
		}
		if same := (player{}).run(t, cmd.Name(), "--help"); same != got {
			t.Errorf("%s --help says %+v, help %+v", cmd.Name(), same, got)
		}
	}
	if got := (player{}).run(t, "--help", "list"); got.status != 0 || !strings.Contains(got.out, "purge-thread") {
		t.Errorf("help before a command is not the program's: %+v", got)
	}
}

func TestCompletionKnowsStatesColumnsAndIDs(t *testing.T) {
	for _, r := range []struct {
		args []string
		want string // with a line break at its start: from the start
	}{
		{[]string{"list", "--state", ""}, "resetting\n"},
		{[]string{"list", "--columns", "state,ke"}, "\nstate,source\nstate,backend\nstate,key\n"},
		{[]string{"list", "--columns=source,key,"}, "\nsource,key,backend\nsource,key,state\nsource,key,scope\n"},
		{[]string{"list", "--sort=-"}, "\n-source\n-backend\n"},
		{[]string{"list", ""}, "\n:4\n"}, // no file is of use
		{[]string{"watch", "--interval", ""}, "\n:4\n"},
		{[]string{"list", "--demo", "--kind", "python", "--thread", ""}, "\nreview-711\n:"},
		{[]string{"purge-thread", "--demo", "--scope", "tenant-labs", "--thread", ""}, "\nforecast-042\nincident-184\nreview-711\n:"},
		{[]string{"purge-thread", "--demo", "--scope", "another", "--thread", ""}, "\n:4\n"},
		{[]string{"list", "--sort", ""}, "egress\n"},
		{[]string{"list", "-o", ""}, "jsonl\n"},
		{[]string{"--demo", "show", ""}, "9f15a25d8c0d4ea0ab1af045d9481001\ttenant-labs/incident-184/analyst\n"},
		{[]string{"--demo", "list", "--host", ""}, "mst-demo\n"},
		{[]string{"watch", "--demo", "--kind", ""}, "codeact\npython\n"},
		{[]string{"purge-thread", "--demo", "--thread", ""}, "forecast-042\nincident-184\nreview-711\n"},
		{[]string{"purge-thread", "--demo", "--scope", ""}, "tenant-labs\n:"},
		{[]string{"delete", "--demo", "9"}, "9f15a25d8c0d4ea0ab1af045d9481001\t"},
		{[]string{"help", ""}, "watch\t"},
		{[]string{""}, "purge-thread\t"},
	} {
		got := player{}.run(t, append([]string{"__complete"}, r.args...)...)
		if got.status != 0 || !strings.Contains("\n"+got.out, r.want) || strings.HasPrefix(r.want, "\n") && !strings.HasPrefix("\n"+got.out, r.want) {
			t.Errorf("%q: got %+v", r.args, got)
		}
	}
	for _, shell := range []string{"bash", "zsh", "fish", "powershell"} {
		if got := (player{}).run(t, "completion", shell); got.status != 0 || !strings.Contains(got.out, "mst") {
			t.Errorf("%s: %d, %q", shell, got.status, got.errOut)
		}
	}
}

func TestManualPageHasEveryCommandAndFlag(t *testing.T) {
	got := player{}.run(t, "man")
	if got.status != 0 || !strings.HasPrefix(got.out, `.TH "MST" "1" "" "mst `) {
		t.Fatalf("got %+v", got)
	}
	root := NewCmd(&Factory{Streams: func() *streams.Streams { s, _, _ := streams.Test(""); return s }()})
	for _, cmd := range append(root.Commands(), root) {
		if cmd != root && (!cmd.IsAvailableCommand() || cmd.Name() == "help") {
			continue
		}
		if name := escapeRoff(cmd.Name()); cmd != root && !strings.Contains(got.out, ".SS \""+name) {
			t.Errorf("the page does not have %q", name)
		}
		cmd.LocalFlags().VisitAll(func(flag *pflag.Flag) {
			if name := escapeRoff("--" + flag.Name); flag.Name != "help" && !strings.Contains(got.out, name+`\fR`) {
				t.Errorf("the page does not have %s of %s", name, cmd.Name())
			}
		})
	}
	// Whatever starts with a dot is a request that is meant.
	requests := []string{"TH", "SH", "SS", "TP", "PP", "br", "nf", "fi"}
	for line := range strings.Lines(got.out) {
		if name, found := strings.CutPrefix(line, "."); found && !slices.Contains(requests, strings.Fields(name)[0]) {
			t.Errorf("no request of man(7): %q", line)
		}
		if strings.HasPrefix(line, "'") || strings.Contains(line, "`") {
			t.Errorf("roff would not show this as it is: %q", line)
		}
	}
}

func TestTheManualPageIsShownAsItIsMeant(t *testing.T) {
	man, err := exec.LookPath("man")
	if err != nil {
		t.Skip("needs man")
	}
	page := filepath.Join(t.TempDir(), "mst.1")
	if err := os.WriteFile(page, []byte(player{}.run(t, "man").out), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(man, "--warnings", "-P", "cat", "-l", page)
	cmd.Env = append(os.Environ(), "MANWIDTH=100", "LC_ALL=C.UTF-8", "GROFF_NO_SGR=1", "MAN_KEEP_FORMATTING=")
	var out, complaints strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &complaints
	if err := cmd.Run(); err != nil {
		t.Skipf("needs a man that shows files: %v: %s", err, complaints.String())
	}
	if complaints.Len() > 0 {
		t.Errorf("man complains: %s", complaints.String())
	}
	for _, want := range []string{"mst list --json | jq '.[].instance_id'", "--older-than age", "purge-thread --scope SCOPE --thread ID [options]"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the page does not show %q:\n%s", want, out.String())
		}
	}
}

func TestFolderProblemsComeWithAWayOut(t *testing.T) {
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	got := player{directory: dir}.run(t, "list")
	if got.status != ExitFailed || !strings.HasPrefix(got.errOut, "mst: sandbox discovery directory is not private: "+dir+"\n") || !strings.Contains(got.errOut, "chmod 700") {
		t.Errorf("got %+v", got)
	}
}

func TestVersionNamesBuildAndInstallation(t *testing.T) {
	got := player{}.run(t, "version", "--json")
	var v struct {
		Name, Version string
		Python        *string
		Installation  struct {
			Manager, Prefix string
			SelfUpdatable   *bool `json:"self_updatable"`
		}
	}
	if err := json.Unmarshal([]byte(got.out), &v); err != nil || v.Version == "" || v.Python != nil || v.Installation.SelfUpdatable == nil || v.Installation.Manager == "" {
		t.Errorf("got %+v, %v", got, err)
	}
}

func TestUpdatesAreRefusedInWordsThatHelp(t *testing.T) {
	for _, r := range []struct {
		args   []string
		status int
		want   string
	}{
		{[]string{"update", "--to", "0.0.9"}, ExitFailed, "maf-sandbox-mst==0.0.9"},
		{[]string{"update", "--to", "x y"}, ExitFailed, "x y"},
		{[]string{"update", "--to", ""}, ExitUsage, "--to"},
		{[]string{"update", "--timeout", "0"}, ExitUsage, "--timeout"},
		{[]string{"update", "--timeout", "0s"}, ExitUsage, "--timeout"},
		{[]string{"update", "now"}, ExitUsage, "now"},
	} {
		if got := (player{}).run(t, r.args...); got.status != r.status || got.out != "" || !strings.Contains(got.errOut, r.want) {
			t.Errorf("%q: got %+v", r.args, got)
		}
	}
}

func TestTimesThatAreTypedAreBounded(t *testing.T) {
	for text, want := range map[string]time.Duration{
		"1": time.Second, "1e3": 1000 * time.Second, " 0.5 ": time.Second / 2, "1e300": maxSeconds * time.Second, "1e999": 0, "1e-300": 1, "nan": 0, "1_0": 0, "0x1": 0, "": 0, "-1": 0,
		"30s": 30 * time.Second, "500ms": time.Second / 2, "1m": time.Minute, "1h1m1.5s": time.Hour + time.Minute + 1500*time.Millisecond, " 2m ": 2 * time.Minute,
		"1ns": 1, "2000000h": maxSeconds * time.Second, "0s": 0, "-5s": 0, "0.1ns": 0, "9999999h": 0, "1d": 0, "1M": 0, "1 m": 0, "s": 0, "1m30": 0, "1e3s": 0,
	} {
		var s seconds
		err := s.Set(text)
		if (err == nil) != (want > 0) || s.value != want {
			t.Errorf("%q: %v, %v", text, s.value, err)
		}
	}
	for text, want := range map[string]time.Duration{
		"90S": 90 * time.Second, "1.5h": 90 * time.Minute, " 10s ": 10 * time.Second, "0": 0, "2D": 48 * time.Hour, "1e12d": maxSeconds * time.Second,
	} {
		var a age
		if err := a.Set(text); err != nil || a.value != want {
			t.Errorf("%q: %v, %v", text, a.value, err)
		}
	}
	for _, text := range []string{"", "s", "1w", "1m30s", "-1", "inf", "nan", "1 h 1", "0x1d"} {
		var a age
		if err := a.Set(text); err == nil {
			t.Errorf("%q gives %v", text, a.value)
		}
	}
}

func FuzzCommandLineValuesNeverPanic(f *testing.F) {
	for _, seed := range []string{"1e3", "90S", "1m30s", "-1h", "2000000h", "nan", "-o", "--x=y", "", "key,age"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		var s seconds
		if s.Set(text) == nil && (s.value <= 0 || s.value > maxSeconds*time.Second) {
			t.Errorf("%q gives %v", text, s.value)
		}
		var a age
		if a.Set(text) == nil && (a.value < 0 || a.value > maxSeconds*time.Second) {
			t.Errorf("%q gives %v", text, a.value)
		}
		var c count
		if c.Set(text) == nil && c < 0 {
			t.Errorf("%q gives %v", text, c)
		}
	})
}

func TestEveryErrorHasOneExitStatus(t *testing.T) {
	for _, r := range []struct {
		err    error
		status int
		silent bool
	}{
		{nil, 0, true},
		{statusError(ExitDeclined), 4, true},
		{usagef("x"), 2, false},
		{errUnconfirmed, 2, false},
		{&absentError{"x", ExitAbsent}, 3, false},
		{&absentError{"x", ExitFailed}, 1, false},
		{streams.ErrPipe, ExitPipe, true},
		{&SignalError{syscall.SIGINT}, 130, true},
		{&SignalError{syscall.SIGTERM}, 143, true},
		{errors.New("x"), 1, false},
		{errors.Join(&SignalError{syscall.SIGHUP}, nil), 129, true},
	} {
		if got := ExitStatus(r.err); got != r.status {
			t.Errorf("%v: %d, want %d", r.err, got, r.status)
		}
		if silent := Message(r.err) == ""; silent != r.silent {
			t.Errorf("%v: message %q", r.err, Message(r.err))
		}
	}
}
