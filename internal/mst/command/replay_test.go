package command

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/maf-sandbox/maf-sandbox-go/control"
)

// recorded is one command line of the Python program, version 0.1.0, and what
// it did.
type recorded struct {
	Case   string   `json:"case"`
	Argv   []string `json:"argv"`
	Typed  string   `json:"typed_on_tty"`
	Exit   int      `json:"exit"`
	Stdout string   `json:"stdout"`
	Stderr string   `json:"stderr"`
}

// difference is something in which we differ on purpose.
type difference struct {
	what, theirs, ours string // for docs/mst.md
	// cases are recorded command lines whose output is therefore not compared;
	// differences in wording that a form or a comparison evens out have none.
	cases []string
	// process: it needs one; a script has it.
	process bool
}

var differences = []difference{
	{"`version`", "its version and Python's", "ours; in JSON `python` is `null`, and `go` is one member more", []string{"version", "version json", "json before command"}, false},
	{"warnings at the start", "two, that packages are experimental", "none", []string{"version with default warnings"}, false},
	{"`show` as text", "times as numbers", "times that can be read; the numbers are in the JSON", []string{"demo show", "one host: show"}, false},
	{"the end of input at the question of `delete`", "a traceback, status 1", "a no, status 4", []string{"demo delete tty eof"}, false},
	{"`update --to`, refused or of a bad version", "names its own package", "names `maf-sandbox-mst`, and what to type", []string{"update to other", "update to bad"}, false},
	{"`update`", "looks on PyPI", "has the tool look that installed it, on the index of that", nil, false},
	{"`--help`, and complaints about the command line", "those of argparse", "other words, with the same options, reasons and statuses", nil, false},
	{"why a host cannot be reached", "`<urlopen error …>`", "the words of Go: `dial tcp …`", nil, false},
	{"a host that is late", "the host's or the console's sentence", "the same two; which of them is first may differ", nil, false},
	{"tables", "spaces at the ends of lines", "none", nil, false},
	{"an endpoint, a label or a discovery folder that is refused", "the reason", "the same, followed by what to do", nil, false},
	{"an id in a sentence", "in single quotes", "in double quotes", nil, false},
	{"Ctrl-C during `watch`", "status 130", "the same", []string{"watch interrupted by SIGINT"}, true}, // test/script/mst_signal.txtar
}

// differs finds the difference that a case shows.
func differs(name string) (difference, bool) {
	for _, d := range differences {
		if slices.Contains(d.cases, name) {
			return d, true
		}
	}
	return difference{}, false
}

// stage is the folder in which the recorded cases find their hosts, as the
// script that recorded them set it up.
type stage struct {
	whole *testing.T // hosts live as long as all cases
	t     *testing.T
	root  string
	stop  map[string]func()
	one   string // the endpoint of the host "one"
}

func (s *stage) dir(name string) string { return filepath.Join(s.root, name) }

func (s *stage) start(source, mode string, records ...control.Record) {
	s.t.Helper()
	endpoint, stop := serve(s.whole, s.dir("hosts"), source, &scripted{records, mode})
	s.stop[source] = stop
	if source == "one" {
		s.one = endpoint
	}
}

func (s *stage) end(source string) { s.stop[source](); delete(s.stop, source) }

func (s *stage) make(name string, mode os.FileMode) string {
	s.t.Helper()
	dir := s.dir(name)
	if err := os.Mkdir(dir, 0o700); err != nil {
		s.t.Fatal(err)
	}
	if err := os.Chmod(dir, mode); err != nil {
		s.t.Fatal(err)
	}
	return dir
}

func (s *stage) write(path, text string) {
	s.t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		s.t.Fatal(err)
	}
}

const stale = `{"source_id": "gone", "endpoint": "http://127.0.0.1:9", "process_id": 12, "protocol_version": 1}`

// manifests are the announcements of which the recording has those that
// survive.
func (s *stage) manifests() string {
	dir := s.make("bad", 0o700)
	change := func(pairs ...string) string { return strings.NewReplacer(pairs...).Replace(stale) }
	for name, text := range map[string]string{
		"a-garbage": "{", "b-list": "[]",
		"c-v2":      change(`"protocol_version": 1`, `"protocol_version": 2`),
		"d-vtrue":   change(`"protocol_version": 1`, `"protocol_version": true`),
		"e-https":   change("http:", "https:"),
		"f-host":    change("127.0.0.1", "localhost"),
		"g-pub":     change("127.0.0.1", "10.0.0.1"),
		"h-path":    change(":9", ":9/x"),
		"i-noport":  change(":9", ""),
		"j-nullpid": change("12,", "null,"),
		"k-strpid":  change("12,", `"1",`),
		"l-empty":   change(`"gone"`, `""`),
		"m-v6":      change(`"gone"`, `"six"`, "127.0.0.1", "[::1]"),
		"n-127.2":   change(`"gone"`, `"two"`, "127.0.0.1:9", "127.0.0.2:9/"),
		"o-extra":   change(`"gone"`, `"extra"`, "{", `{"more": 1, `),
		"p-user":    change("127.0.0.1", "u:p@127.0.0.1"),
		"q-missing": change(`"process_id": 12, `, ""),
		".hidden":   change(`"gone"`, `"hidden"`),
	} {
		s.write(filepath.Join(dir, name+".json"), text)
	}
	s.write(filepath.Join(dir, "z.txt"), stale)
	return dir
}

// before prepares what a case needs and gives its discovery folder.
func (s *stage) before(name string) string {
	s.t.Helper()
	switch {
	case strings.HasPrefix(name, "directory of another user"):
		dir := s.make("own", 0o700)
		if err := os.Chown(dir, 65534, 65534); err != nil {
			s.t.Skipf("only root can give a folder away: %v", err)
		}
		return dir
	case name == "directory 0755":
		return s.make("open", 0o755)
	case name == "directory 0710":
		return s.make("g", 0o710)
	case name == "path is a file":
		s.write(s.dir("file"), "x")
		return s.dir("file")
	case name == "path is a symlink":
		if err := os.Symlink(s.make("real", 0o700), s.dir("link")); err != nil {
			s.t.Fatal(err)
		}
		return s.dir("link")
	case name == "manifest validation: which survive":
		return s.manifests()
	case name == "stale host: hosts":
		s.write(filepath.Join(s.make("stale", 0o700), "1-a.json"), stale)
	case name == "one host: hosts":
		s.start("one", "", record("aaa", "one", nil), record("bbb", "one", func(r *control.Record) {
			r.ThreadID, r.CallID, r.State = "t-2", "", control.StateStarting
		}))
	case name == "two hosts, same id: show":
		s.start("two", "", record("aaa", "two", nil), record("ccc", "two", nil))
	case name == "two hosts and a stale one: list json":
		s.write(filepath.Join(s.dir("hosts"), "0-stale.json"), stale)
	case name == "host reports duplicate id: show":
		if err := os.Remove(filepath.Join(s.dir("hosts"), "0-stale.json")); err != nil {
			s.t.Fatal(err)
		}
		s.end("two")
		s.start("dupes", "", record("dup", "dupes", nil), record("dup", "dupes", func(r *control.Record) { r.Kind = "codeact" }))
	}
	for _, mode := range []struct{ name, source, first, before string }{
		{"list_raises", "bad", "list_raises: list", "dupes"},
		{"dispose_failed", "bad", "dispose_failed: list", "bad"},
		{"purge_partial", "bad", "purge_partial: list", "bad"},
		{"dispose_slow", "slow", "dispose_slow: delete timeout 1", "bad"},
		{"purge_slow", "slow", "purge_slow: delete timeout 1", "slow"},
		{"list_slow", "slow", "list_slow: list", "slow"},
	} {
		if name == mode.first {
			s.end(mode.before)
			s.start(mode.source, mode.name, record("ccc", mode.source, nil))
		}
	}
	switch {
	case strings.HasPrefix(name, "no "):
		return s.dir("none")
	case strings.HasPrefix(name, "stale host"):
		return s.dir("stale")
	}
	return s.dir("hosts")
}

// argv puts back what the recording left out.
func (s *stage) argv(c recorded) []string {
	args := slices.Clone(c.Argv)
	url, isURL := strings.CutPrefix(c.Case, "endpoint ")
	for i, arg := range args {
		switch {
		case isURL && i > 0 && args[i-1] == "--endpoint" && strings.Contains(url, "1") && !strings.Contains(url, " ") && strings.Contains(url, ":"):
			args[i] = url
		case s.one != "":
			args[i] = strings.ReplaceAll(arg, "http://127.0.0.1:<port>", s.one)
		default:
			args[i] = strings.ReplaceAll(arg, "<port>", "1")
		}
	}
	return args
}

// forms take away what is different in every run, and how tables are spaced,
// which other tests look at.
var forms = []struct {
	pattern *regexp.Regexp
	with    string
}{
	{regexp.MustCompile(`(?m) +$`), ""},
	{regexp.MustCompile(`-{3,}`), "--"},
	{regexp.MustCompile(` {2,}([^" ])`), "  $1"},
	{regexp.MustCompile(`("(?:created_at|last_activity_at|observed_at)": ?)[0-9]+\.[0-9]+`), "$1<time>"},
	{regexp.MustCompile(`("process_id": )(?:[0-9]+|<pid>)`), "$1<pid>"},
	{regexp.MustCompile(`healthy  (?:[0-9]+|<pid>)  `), "healthy  <pid>  "},
	{regexp.MustCompile(`127\.0\.0\.1:[0-9]+`), "127.0.0.1:<port>"},
	{regexp.MustCompile(`<urlopen error \[Errno 111\] Connection refused>|dial tcp [^ ]+ connect: connection refused`), "<refused>"},
	// Two deadlines of 5.1 s, the host's and ours; whichever is first has its say.
	{regexp.MustCompile(`control request timed out|host did not respond (?:in time|before the inventory deadline)`), "<late>"},
	{regexp.MustCompile(`  [0-9]+[smhd]  `), "  <age>  "},
	{regexp.MustCompile(`(Snapshot [0-9]+ at ).*`), "$1<time>"},
	{regexp.MustCompile(`'aaa'`), `"aaa"`},
}

func form(text string) string {
	for _, f := range forms {
		text = f.pattern.ReplaceAllString(text, f.with)
	}
	return text
}

// ours are the sentences that ours begin with and that then say what to do.
var ours = []struct{ theirs, ours string }{
	{"mst: control endpoint must be an HTTP loopback URL with a port", "mst: control endpoint must be an HTTP loopback URL with a port, such as http://127.0.0.1:<port>: got "},
	{"mst: source_id must be a nonempty string", "mst: source_id must be a nonempty string; give --source a label"},

	{"mst: sandbox discovery ", "mst: sandbox discovery "},
}

func TestRecordedCommandLinesDoWhatThePythonProgramDid(t *testing.T) {
	data, err := os.ReadFile("testdata/cli-0.1.0.json")
	if err != nil {
		t.Fatal(err)
	}
	var cases []recorded
	if err := json.Unmarshal(data, &cases); err != nil {
		t.Fatal(err)
	}
	if len(cases) != 159 {
		t.Fatalf("%d cases are there, want 159", len(cases))
	}
	s := &stage{whole: t, root: t.TempDir(), stop: make(map[string]func())}
	for i, c := range cases {
		t.Run(fmt.Sprintf("%03d %s", i, c.Case), func(t *testing.T) {
			s.t = t
			p := player{directory: s.before(c.Case), stdin: c.Typed, terminal: c.Typed != ""}
			if testing.Short() && strings.HasPrefix(c.Case, "list_slow") {
				t.Skip("waits 5 s for a host that does not answer")
			}
			replay(t, c, p, s.argv(c), s.root)
		})
	}
}

func replay(t *testing.T, c recorded, p player, args []string, root string) {
	t.Helper()
	expected, different := differs(c.Case)
	if expected.process {
		t.Skip("needs a process: test/script/mst_signal.txtar has it")
	}
	got := p.run(t, args...)
	if want := c.Exit; got.status != want && c.Case != "demo delete tty eof" {
		t.Errorf("exit status %d, want %d; stderr %q", got.status, want, got.errOut)
	}
	switch {
	case different:
		return
	case slices.Contains(c.Argv, "--help"):
		for _, option := range regexp.MustCompile(`--[a-z-]+`).FindAllString(c.Stdout, -1) {
			if !strings.Contains(got.out, option) {
				t.Errorf("help does not name %s", option)
			}
		}
		return
	case strings.HasPrefix(c.Stderr, "usage: "):
		sameUsage(t, c, got)
		return
	}
	theirs, mine := form(c.Stdout), form(got.out)
	if theirs != mine {
		t.Errorf("standard output\n%s\nwant\n%s", mine, theirs)
	}
	theirs, mine = form(c.Stderr), form(strings.ReplaceAll(got.errOut, root, "<tmp>"))
	for _, o := range ours {
		if strings.HasPrefix(theirs, o.theirs) {
			theirs = strings.TrimSuffix(o.ours+strings.TrimPrefix(theirs, o.theirs), "\n")
			if strings.HasPrefix(mine, theirs) {
				return
			}
		}
	}
	if theirs != mine {
		t.Errorf("standard error\n%s\nwant\n%s", mine, theirs)
	}
}

// sameUsage compares complaints about the command line. The words around are
// not the same; what is named and why is.
func sameUsage(t *testing.T, c recorded, got outcome) {
	t.Helper()
	if got.out != "" || !strings.HasPrefix(got.errOut, "mst: ") || !strings.Contains(got.errOut, "--help'.") {
		t.Errorf("got %q and %q", got.out, got.errOut)
	}
	_, complaint, _ := strings.Cut(c.Stderr, " error: ")
	named := regexp.MustCompile(`--[a-z-]+`).FindAllString(complaint, -1)
	if _, why, found := strings.Cut(strings.TrimSpace(complaint), ": "); found && !strings.Contains(why, "choose from") && !strings.HasPrefix(why, "-") {
		named = append(named, strings.ReplaceAll(why, "instance_id", "INSTANCE_ID"))
	}
	if strings.Contains(complaint, "mutually exclusive") {
		named = []string{"--demo and --endpoint are mutually exclusive"}
	}
	for _, word := range named {
		if !strings.Contains(got.errOut, word) {
			t.Errorf("%q does not say %q", got.errOut, word)
		}
	}
}
