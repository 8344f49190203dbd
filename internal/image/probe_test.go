//go:build unix

package image

import (
	"debug/elf"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// fakePython makes a program that answers the probe.
func fakePython(t *testing.T, change string) string {
	t.Helper()
	answer := `{"executable":"/fake/python3","base_prefix":"/fake","implementation":"cpython","version":"3.13.0",` +
		`"major":3,"minor":13,"tag":"cpython-313","abi_flags":"","bits":64,"stdlib":"/fake/lib","dynload":"/fake/lib"}`
	if change != "" {
		old, now, _ := strings.Cut(change, " -> ")
		answer = strings.Replace(answer, old, now, 1)
	}
	return script(t, t.TempDir(), "python3", "echo '"+answer+"'")
}

func fakeProgram(t *testing.T, s elfSpec) string {
	t.Helper()
	p := filepath.Join(t.TempDir(), "python3")
	if err := os.WriteFile(p, makeELF(s), 0o700); err != nil {
		t.Fatal(err)
	}
	return p
}

func TestUnsupportedPythonIsRefusedByName(t *testing.T) {
	native := elfSpec{class: elf.ELFCLASS64, machine: elf.EM_X86_64, kind: elf.ET_DYN, interp: "/lib64/ld-linux-x86-64.so.2"}
	with := func(change func(s *elfSpec)) func(t *testing.T) string {
		s := native
		change(&s)
		return func(t *testing.T) string { return fakeProgram(t, s) }
	}
	answers := func(change string) func(t *testing.T) string {
		return func(t *testing.T) string { return fakePython(t, change) }
	}
	tests := map[string]struct {
		make func(t *testing.T) string
		want string
	}{
		"32-bit file":          {with(func(s *elfSpec) { s.class = elf.ELFCLASS32 }), "32-bit"},
		"another architecture": {with(func(s *elfSpec) { s.machine = elf.EM_AARCH64 }), "another architecture (EM_AARCH64)"},
		"static":               {with(func(s *elfSpec) { s.interp = "" }), "statically linked"},
		"musl":                 {with(func(s *elfSpec) { s.interp = "/lib/ld-musl-x86_64.so.1" }), "musl"},
		"PyPy":                 {answers(`"cpython" -> "pypy"`), "PyPy"},
		"another one":          {answers(`"cpython" -> "graalpy"`), "another implementation of Python (graalpy)"},
		"free-threaded":        {answers(`"abi_flags":"" -> "abi_flags":"t"`), "free-threaded"},
		"32-bit":               {answers(`"bits":64 -> "bits":32`), "32-bit"},
		"old":                  {answers(`"version":"3.13.0","major":3,"minor":13 -> "version":"3.8.18","major":3,"minor":8`), "Python 3.8.18, older than 3.9"},
		"very old":             {answers(`"version":"3.13.0","major":3,"minor":13 -> "version":"2.7.18","major":2,"minor":7`), "Python 2.7.18, older than 3.9"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			program := tt.make(t)
			_, err := findPython(t.Context(), Options{Python: program})
			var unsupported *UnsupportedError
			if !errors.Is(err, ErrUnsupported) || !errors.As(err, &unsupported) {
				t.Fatalf("error %v", err)
			}
			if unsupported.Python != program || !strings.Contains(unsupported.Reason, tt.want) {
				t.Errorf("%+v", unsupported)
			}
		})
	}
}

func TestWhatIsNoPythonIsNotCaptured(t *testing.T) {
	dir := t.TempDir()
	tests := map[string]struct {
		options Options
		want    error
	}{
		"fails":             {Options{Python: script(t, dir, "fails", "echo 'no version set' >&2; exit 1")}, nil},
		"prints rubbish":    {Options{Python: script(t, dir, "rubbish", "echo hello")}, nil},
		"prints nothing":    {Options{Python: script(t, dir, "nothing", "")}, nil},
		"relative answer":   {Options{Python: fakePython(t, `"/fake" -> "fake"`)}, nil},
		"vanished program":  {Options{Python: fakePython(t, "")}, fs.ErrNotExist},
		"missing file":      {Options{Python: filepath.Join(dir, "missing")}, ErrNotFound},
		"missing name":      {Options{Python: "python-that-does-not-exist"}, ErrNotFound},
		"no environment":    {Options{Venv: dir}, ErrNotFound},
		"both":              {Options{Python: "python3", Venv: dir}, nil},
		"not an executable": {Options{Python: "/dev/null"}, nil},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			_, err := findPython(t.Context(), tt.options)
			if err == nil || tt.want != nil && !errors.Is(err, tt.want) {
				t.Errorf("error %v", err)
			}
		})
	}
	_, err := findPython(t.Context(), tests["fails"].options)
	if err == nil || !strings.Contains(err.Error(), "no version set") {
		t.Errorf("the program's own words are lost: %v", err)
	}
}

func TestWithoutAnyPythonTheErrorSaysWhatToInstall(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	_, err := findPython(t.Context(), Options{})
	if !errors.Is(err, ErrNoPython) || !strings.Contains(err.Error(), "install") || strings.Contains(err.Error(), "\n") {
		t.Errorf("error %v", err)
	}
}

func TestFirstUsablePythonOnPathIsTaken(t *testing.T) {
	real := pythons(t)[0]
	broken := filepath.Dir(script(t, t.TempDir(), "python3", "exit 1"))
	old := filepath.Dir(fakePython(t, `"major":3 -> "major":2`))
	good := t.TempDir()
	// A shim: a script that starts the real one, and needs the environment.
	script(t, good, "python3", fmt.Sprintf(`[ -n "$SHIM_TEST" ] && exec %s "$@"`, real))
	t.Setenv("SHIM_TEST", "yes")
	t.Setenv("PATH", strings.Join([]string{".", broken, old, good, os.Getenv("PATH")}, ":"))
	var log []string
	py, err := findPython(t.Context(), Options{Log: func(line string) { log = append(log, line) }})
	if err != nil {
		t.Fatal(err)
	}
	want, err := filepath.EvalSymlinks(real)
	if err != nil || py.real != want {
		t.Errorf("took %s, want %s (%v)", py.real, want, err)
	}
	if all := strings.Join(log, "\n"); !strings.Contains(all, broken) || !strings.Contains(all, old) {
		t.Errorf("what was passed over is not named:\n%s", all)
	}

	t.Setenv("PATH", old)
	if _, err := findPython(t.Context(), Options{}); !errors.Is(err, ErrNoPython) || !errors.Is(err, ErrUnsupported) {
		t.Errorf("error %v", err)
	}
}

func TestVirtualEnvironmentsLeadToTheirInterpreter(t *testing.T) {
	real, err := filepath.EvalSymlinks(pythons(t)[0])
	if err != nil {
		t.Fatal(err)
	}
	for _, how := range []string{"--symlinks", "--copies"} {
		t.Run(how, func(t *testing.T) {
			venv := filepath.Join(t.TempDir(), "env")
			if out, err := exec.CommandContext(t.Context(), real, "-m", "venv", "--without-pip", how, venv).CombinedOutput(); err != nil {
				t.Skipf("NOT TESTED: cannot make a virtual environment: %v: %s", err, lastLine(out))
			}
			for _, o := range []Options{{Venv: venv}, {Python: filepath.Join(venv, "bin", "python3")}} {
				py, err := findPython(t.Context(), o)
				if err != nil {
					t.Fatal(err)
				}
				if py.real != real || py.root != venv || len(py.packages) == 0 || !within(py.packages[0], venv) {
					t.Errorf("%+v: took %s with %q of %s", o, py.real, py.packages, py.root)
				}
			}
		})
	}
}

func TestCompilerThatDiesIsAnError(t *testing.T) {
	for name, body := range map[string]string{
		"at once":      "exit 3",
		"when asked":   "head -c 20 >/dev/null; exit 3",
		"with rubbish": "head -c 20 >/dev/null; printf '\\377\\377\\377\\377'; exec cat >/dev/null",
	} {
		t.Run(name, func(t *testing.T) {
			c := newCompiler(t.Context(), script(t, t.TempDir(), "python3", body))
			for i := range 3000 {
				c.add(fmt.Sprintf("/%d.py", i), []byte(strings.Repeat("x = 1\n", 100)))
			}
			if _, err := c.close(); err == nil {
				t.Error("no error")
			}
		})
	}
}

func TestCompilerSkipsWhatDoesNotCompile(t *testing.T) {
	c := newCompiler(t.Context(), pythons(t)[0])
	c.add("/good.py", []byte("x = 1\n"))
	c.add("/bad.py", []byte("x = = 1\n"))
	c.add("/nul.py", []byte("x = '\x00'\n"))
	c.add("/coding.py", []byte("# coding: latin-1\nx = '\xe4'\n"))
	c.add("/warns.py", []byte("x = '\\d'\n"))
	code, err := c.close()
	if err != nil {
		t.Fatal(err)
	}
	for guest, want := range map[string]bool{"/good.py": true, "/bad.py": false, "/nul.py": false, "/coding.py": true, "/warns.py": true} {
		if got := len(code[guest]) > 16; got != want {
			t.Errorf("%s compiled: %v", guest, got)
		}
	}
}
