//go:build linux && amd64

package engine_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/maf-sandbox/maf-sandbox-go/internal/engine"
	"github.com/maf-sandbox/maf-sandbox-go/internal/image"
	"github.com/maf-sandbox/maf-sandbox-go/internal/platform/host/hosttest"
)

func reset(t testing.TB, vm *engine.VM) {
	t.Helper()
	if err := vm.Reset(context.Background()); err != nil {
		t.Fatal(err)
	}
}

func TestRunsOnOneMachineQueue(t *testing.T) {
	vm := machine(t, template(t, nil))
	var wg sync.WaitGroup
	for _, letter := range []string{"a", "b", "c"} {
		wg.Go(func() {
			code := fmt.Sprintf("for _ in range(10_000): print(%q)", letter)
			res, err := vm.Run(context.Background(), engine.Request{Code: []byte(code), Timeout: patience(engine.DefaultTimeout)})
			if err != nil || string(res.Stdout) != strings.Repeat(letter+"\n", 10_000) {
				t.Errorf("%s: %v, %d bytes", letter, err, len(res.Stdout))
			}
		})
	}
	wg.Wait()
}

func TestAQueueWaitThatRunsOutSubmitsNothing(t *testing.T) {
	vm := machine(t, template(t, nil))
	started := make(chan struct{})
	done := make(chan error, 1)
	go func() {
		_, err := vm.Run(context.Background(), engine.Request{
			Code: []byte("import sys; print(1, flush=True)\nwhile True: pass"), Stdout: writerFunc(func() { close(started) }), Timeout: 3 * time.Second,
		})
		done <- err
	}()
	<-started
	_, err := vm.Run(context.Background(), engine.Request{Code: []byte("left = 1"), Timeout: 50 * time.Millisecond})
	var e *engine.Error
	if !errors.As(err, &e) || e.Kind != engine.KindTimeout || !e.Usable || !strings.Contains(e.Message, "nothing was submitted") {
		t.Errorf("error %v", err)
	}
	if err := <-done; !errors.Is(err, engine.ErrTimeout) {
		t.Error(err)
	}
	output(t, vm, "print('left' in globals())", "False\n")
}

type writerFunc func()

func (f writerFunc) Write(p []byte) (int, error) { f(); return len(p), nil }

func TestCancellationInterruptsAndKeepsNames(t *testing.T) {
	vm := machine(t, template(t, nil))
	ctx, cancel := context.WithCancel(context.Background())
	_, err := vm.Run(ctx, engine.Request{Code: []byte("kept = 5; print(1, flush=True)\nwhile True: pass"), Stdout: writerFunc(cancel)})
	if !errors.Is(err, engine.ErrCanceled) || !errors.Is(err, context.Canceled) || !usable(err) {
		t.Fatalf("error %v", err)
	}
	output(t, vm, "print(kept)", "5\n")
}

func TestCloseEndsARunUnderWay(t *testing.T) {
	vm, err := template(t, nil).New(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	started := make(chan struct{})
	done := make(chan error, 1)
	go func() {
		_, err := vm.Run(context.Background(), engine.Request{Code: []byte("print(1, flush=True); sum(range(10**13))"), Stdout: writerFunc(func() { close(started) })})
		done <- err
	}()
	<-started
	if err := vm.Close(); err != nil {
		t.Error(err)
	}
	if err := <-done; !errors.Is(err, engine.ErrCanceled) {
		t.Error(err)
	}
}

func TestLimitsAreRefusedInWords(t *testing.T) {
	vm := machine(t, template(t, nil))
	for _, r := range []engine.Request{
		{Code: make([]byte, engine.DefaultCodeBytes+1)},
		{MaxCode: engine.MaxCodeBytes + 1},
		{MaxOutput: engine.MaxOutputBytes + 1},
		{Timeout: -1},
		{Filename: strings.Repeat("x", 300)},
		{Argv: make([]byte, engine.MaxArgvBytes+1)},
		{Argv: []byte("a")},
	} {
		_, err := vm.Run(context.Background(), r)
		if !errors.Is(err, engine.ErrRefused) || !usable(err) {
			t.Errorf("%v", err)
		}
	}
	output(t, vm, "print(6*7)", "42\n")
}

func TestAProgramFindsItsArgumentsAndTheNextOneDoesNot(t *testing.T) {
	vm := machine(t, template(t, nil))
	const show = "import sys; print(sys.argv)"
	long := strings.Repeat("x", engine.MaxArgvBytes-len("\x00prog.py\x00"))
	for _, r := range []struct{ argv, want string }{
		{"\x00prog.py\x00a\x00\x00b c\x00\xffü\x00--", `['prog.py', 'a', '', 'b c', '\udcffü', '--']`},
		{"\x00", `['']`},
		{"\x00-c", `['-c']`},
		{"\x00prog.py\x00" + long, `['prog.py', '` + long + `']`},
	} {
		// Tracebacks still know the file, and the arguments do not outlive a program
		// that fails.
		for _, code := range []string{show, show + "; sys.exit('over')", show + "; 1/0"} {
			res, err := vm.Run(context.Background(), engine.Request{Code: []byte(code), Filename: "f.py", Argv: []byte(r.argv), Timeout: patience(engine.DefaultTimeout)})
			if err != nil || string(res.Stdout) != r.want+"\n" {
				t.Errorf("%.40q: %v, %.200q", r.argv, err, res.Stdout)
			}
			if strings.HasSuffix(code, "1/0") && !strings.Contains(string(res.Stderr), `File "f.py", line 1`) {
				t.Errorf("%.40q: %s", r.argv, res.Stderr)
			}
			output(t, vm, show, "['']\n")
		}
	}
	if err := vm.Reset(context.Background()); err != nil {
		t.Fatal(err)
	}
	output(t, vm, show, "['']\n")
	// What a program sets itself is its own.
	output(t, vm, "import sys; sys.argv = ['own']", "")
	output(t, vm, show, "['own']\n")
}

func TestLargeSourceReachesTheInterpreterWhole(t *testing.T) {
	vm := machine(t, template(t, nil))
	var b strings.Builder
	b.WriteString("n = 0\n")
	for b.Len() < 1<<20-64 {
		b.WriteString("n += 1 # " + strings.Repeat("x", 200) + "\n")
	}
	lines := strings.Count(b.String(), "\n") - 1
	b.WriteString("print(n)\n")
	output(t, vm, b.String(), fmt.Sprintf("%d\n", lines))
}

func TestEchoGivesTheReprOfATrailingExpression(t *testing.T) {
	vm := machine(t, template(t, nil))
	for _, c := range []struct{ code, value, stdout string }{
		{"6*7", "42", ""},
		{"x = 1", "", ""},
		{"print('a'); 'b'", "'b'", "a\n"},
		{"None", "", ""},
		{"_", "'b'", ""},
		{"'x' * 100000", "'" + strings.Repeat("x", engine.MaxValueBytes-1), ""},
	} {
		res, err := vm.Run(context.Background(), engine.Request{Code: []byte(c.code), Echo: true})
		if err != nil || res.Value != c.value || string(res.Stdout) != c.stdout {
			t.Errorf("%.20q: value %.20q, stdout %q, error %v; stderr %s", c.code, res.Value, res.Stdout, err, res.Stderr)
		}
	}
}

func TestOutputArrivesAsItIsFlushed(t *testing.T) {
	vm := machine(t, template(t, nil))
	var out, errs strings.Builder
	res, err := vm.Run(context.Background(), engine.Request{
		Code: []byte("import sys\nfor i in range(3): print(i, flush=True); print('e', i, file=sys.stderr)"), Stdout: &out, Stderr: &errs,
	})
	if err != nil || out.String() != "0\n1\n2\n" || errs.String() != "e 0\ne 1\ne 2\n" || out.String() != string(res.Stdout) {
		t.Errorf("%q %q %v", out.String(), errs.String(), err)
	}
}

// The guest may use the driver's descriptors itself; that is only a claim.
func TestAGuestThatForgesTheDriverProtocolHurtsItselfOnly(t *testing.T) {
	for _, code := range []string{
		"import os; os.preadv(1<<20, [bytearray(56), bytearray(10)], 1<<50)",
		"import os; os.preadv(1<<20, [bytearray(1), bytearray(1)], 0)",
		"import os; os.preadv((1<<20)+1, [bytearray(100), bytearray(100)], 0); print('x')",
		"import os; os.write((1<<20)+3, b'value'); os.preadv((1<<20)+2, [bytearray(5)], 1<<40)",
	} {
		vm := machine(t, template(t, nil))
		_, first := vm.Run(context.Background(), engine.Request{Code: []byte(code)})
		_, second := vm.Run(context.Background(), engine.Request{Code: []byte("print(6*7)")})
		for _, err := range []error{first, second} {
			if errors.Is(err, engine.ErrInternal) {
				t.Errorf("%s: %v", code, err)
			}
		}
		// Whatever it did, a machine that resets is as good as new.
		if vm.Retired() == "" {
			reset(t, vm)
			output(t, vm, "print(6*7)", "42\n")
		}
	}
}

func TestADamagedTemplateIsNeverUsed(t *testing.T) {
	dir := filepath.Join(scratch, "damaged")
	verified := ""
	open := func() (*engine.Template, string) {
		var said strings.Builder
		tm := template(t, func(c *engine.Config) {
			c.Cache, c.Verified = dir, verified
			c.Progress = func(s string) { said.WriteString(s + "\n") }
		})
		tm.Sync()
		return tm, said.String()
	}
	tm, _ := open()
	if tm.Info().Cached {
		t.Fatal("the first template came from the cache")
	}
	for range 2 { // the second time without verifying
		tm, said := open()
		if !tm.Info().Cached || tm.Info().Stamp == "" {
			t.Fatalf("the next template was booted: %s", said)
		}
		// A file that is replaced has another stamp.
		verified = tm.Info().Stamp
	}
	// Beside them may be a mark that one was verified; it names the very file.
	var files []string
	for _, suffix := range []string{".mem", ".state"} {
		found, err := filepath.Glob(filepath.Join(dir, "*"+suffix))
		if err != nil || len(found) != 1 {
			t.Fatalf("%v %v", found, err)
		}
		files = append(files, found[0])
	}
	for _, f := range files {
		good, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		replace := func(b []byte) {
			t.Helper()
			if err := errors.Join(os.Remove(f), os.WriteFile(f, b, 0o400)); err != nil {
				t.Fatal(err)
			}
		}
		damage := map[string][]byte{"truncated": good[:len(good)/2], "empty": nil}
		places := []int{0, len(good) / 3, len(good) / 2, len(good) - 1}
		if strings.HasSuffix(f, ".mem") {
			places = []int{bytes.IndexFunc(good, func(r rune) bool { return r != 0 })}
		}
		for _, at := range places {
			flip := append([]byte(nil), good...)
			flip[at] ^= 1
			damage[fmt.Sprintf("flipped at %d", at)] = flip
		}
		for name, bad := range damage {
			replace(bad)
			tm, said := open()
			if tm.Info().Cached || !strings.Contains(said, "damaged") {
				t.Errorf("%s %s: used; %s", filepath.Base(f), name, said)
			}
			output(t, machine(t, tm), "print(6*7)", "42\n")
		}
		// What replaced it is sound again.
		if tm, said := open(); !tm.Info().Cached {
			t.Errorf("not made again: %s", said)
		}
	}
	if err := os.Chmod(files[0], 0o466); err != nil {
		t.Fatal(err)
	}
	if tm, _ := open(); tm.Info().Cached {
		t.Error("a file that others can write to was used")
	}
}

func TestMemoryIsASizeOfTheMachineNotOfTheTemplate(t *testing.T) {
	for _, mib := range []int64{64, 256, 1024} {
		tm := template(t, func(c *engine.Config) { c.Memory = mib << 20 })
		vm := machine(t, tm)
		output(t, vm, fmt.Sprintf("b = bytearray(%d << 20); print(len(b) >> 20)", mib/4), fmt.Sprintf("%d\n", mib/4))
		if res := run(t, vm, fmt.Sprintf("b = None; b = bytearray(%d << 20)", mib)); res.ExitCode != 1 || !strings.Contains(string(res.Stderr), "MemoryError") {
			t.Errorf("%d MiB: exit %d %s", mib, res.ExitCode, res.Stderr)
		}
		reset(t, vm)
		output(t, vm, "print(6*7)", "42\n")
	}
	_, err := engine.Open(context.Background(), engine.Config{Image: imageOf(t, image.Options{}), Platform: hosttest.Open(t), Memory: 1 << 20})
	if !errors.Is(err, engine.ErrRefused) {
		t.Errorf("1 MiB: %v", err)
	}
}

func TestAnImageThatIsNotTheOneAskedForIsRefused(t *testing.T) {
	tm := template(t, nil)
	id := tm.Info().Image
	template(t, func(c *engine.Config) { c.ImageID = id })
	for _, other := range []string{strings.Repeat("0", 64), strings.ToUpper(id), id[:63], "\x1b[2J"} {
		_, err := engine.Open(context.Background(), engine.Config{Image: imageOf(t, image.Options{}), ImageID: other, Platform: hosttest.Open(t)})
		if !errors.Is(err, engine.ErrRefused) || !strings.Contains(err.Error(), id) || strings.ContainsRune(err.Error(), 0x1b) {
			t.Errorf("%q: %v", other, err)
		}
	}
}

func TestLiveOutputArrivesLineByLine(t *testing.T) {
	vm := machine(t, template(t, nil))
	for _, live := range []bool{true, false, true} {
		var pieces []string
		_, err := vm.Run(context.Background(), engine.Request{
			Code: []byte("for i in range(3): print(i)"), Live: live, Stdout: pieceWriter(func(p string) { pieces = append(pieces, p) }),
		})
		want := []string{"0\n1\n2\n"}
		if live {
			want = []string{"0\n", "1\n", "2\n"}
		}
		if err != nil || strings.Join(pieces, "|") != strings.Join(want, "|") {
			t.Errorf("live %v: %q %v", live, pieces, err)
		}
	}
}

type pieceWriter func(p string)

func (f pieceWriter) Write(p []byte) (int, error) { f(string(p)); return len(p), nil }
