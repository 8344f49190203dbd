package sandboxtest_test

import (
	"context"
	"errors"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/maf-sandbox/maf-sandbox-go/sandbox"
	"github.com/maf-sandbox/maf-sandbox-go/sandbox/sandboxtest"
)

var (
	someKey  = sandbox.Key{Scope: "tenant", ThreadID: "thread", AgentID: "agent"}
	someSpec = sandbox.Spec{Kind: "python", Requires: sandbox.SetOf(sandbox.CapRunCode)}
)

func acquire(t *testing.T, b *sandboxtest.Backend) sandbox.Sandbox {
	t.Helper()
	s, err := b.Acquire(t.Context(), someKey, someSpec)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestScriptedFailuresMeetOneCallEach(t *testing.T) {
	t.Parallel()
	boom := errors.New("boom")
	for _, c := range []struct {
		op sandboxtest.Op
		do func(ctx context.Context, b *sandboxtest.Backend, s sandbox.Sandbox) error
	}{
		{sandboxtest.OpAcquire, func(ctx context.Context, b *sandboxtest.Backend, _ sandbox.Sandbox) error {
			other := someKey
			other.AgentID = "other"
			_, err := b.Acquire(ctx, other, someSpec)
			return err
		}},
		{sandboxtest.OpRunCode, func(ctx context.Context, _ *sandboxtest.Backend, s sandbox.Sandbox) error {
			_, err := s.RunCode(ctx, "", 0)
			return err
		}},
		{sandboxtest.OpReset, func(ctx context.Context, _ *sandboxtest.Backend, s sandbox.Sandbox) error { return s.Reset(ctx) }},
		{sandboxtest.OpDispose, func(ctx context.Context, b *sandboxtest.Backend, _ sandbox.Sandbox) error {
			return b.Dispose(ctx, someKey, sandbox.DisposeOptions{})
		}},
		{sandboxtest.OpDisposeScope, func(ctx context.Context, b *sandboxtest.Backend, _ sandbox.Sandbox) error {
			return b.DisposeScope(ctx, "tenant", "thread").Err()
		}},
		{sandboxtest.OpClose, func(_ context.Context, b *sandboxtest.Backend, _ sandbox.Sandbox) error { return b.Close() }},
	} {
		t.Run(string(c.op), func(t *testing.T) {
			b := sandboxtest.New(sandboxtest.Config{})
			s := acquire(t, b)
			before := b.Count(c.op)
			b.Script(c.op, sandboxtest.Step{Err: boom})
			err := c.do(t.Context(), b, s)
			if err == nil || !strings.Contains(err.Error(), "boom") {
				t.Errorf("the first call returned %v", err)
			}
			if c.op == sandboxtest.OpRunCode || c.op == sandboxtest.OpReset {
				if sandbox.Usable(err) {
					t.Errorf("an untyped failure left the sandbox usable")
				}
				s = acquire(t, b)
			}
			if err := c.do(t.Context(), b, s); err != nil {
				t.Errorf("the second call returned %v", err)
			}
			if n := b.Count(c.op) - before; n < 2 {
				t.Errorf("%d calls were counted", n)
			}
		})
	}
}

func TestAGateHoldsACallUntilItIsReleased(t *testing.T) {
	t.Parallel()
	b := sandboxtest.New(sandboxtest.Config{})
	s := acquire(t, b)
	gate := sandboxtest.NewGate()
	b.Script(sandboxtest.OpRunCode, sandboxtest.Step{Gate: gate})
	ended := make(chan error, 1)
	go func() {
		_, err := s.RunCode(context.Background(), `print "x"`, time.Minute)
		ended <- err
	}()
	<-gate.Entered()
	if calls := b.Calls(); calls[len(calls)-1].Done {
		t.Errorf("the held call is recorded as done")
	}
	gate.Release()
	gate.Release()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	calls := b.Calls()
	if last := calls[len(calls)-1]; !last.Done || last.Code != `print "x"` || last.Timeout != time.Minute {
		t.Errorf("the record is %+v", last)
	}
}

func TestAHeldCallEndsWithItsContextOrItsSandbox(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(b *sandboxtest.Backend, cancel context.CancelFunc) error{
		"canceled": func(_ *sandboxtest.Backend, cancel context.CancelFunc) error { cancel(); return nil },
		"disposed": func(b *sandboxtest.Backend, _ context.CancelFunc) error {
			return b.Dispose(context.Background(), someKey, sandbox.DisposeOptions{})
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := sandboxtest.New(sandboxtest.Config{})
			s := acquire(t, b)
			gate := sandboxtest.NewGate()
			b.Script(sandboxtest.OpReset, sandboxtest.Step{Gate: gate})
			ctx, cancel := context.WithCancel(context.Background())
			defer cancel()
			ended := make(chan error, 1)
			go func() { ended <- s.Reset(ctx) }()
			<-gate.Entered()
			if err := end(b, cancel); err != nil {
				t.Error(err)
			}
			if err := <-ended; err == nil || sandbox.Usable(err) {
				t.Errorf("the held reset returned %v", err)
			}
		})
	}
}

func TestADisposalWaitsForAnAcquireThatCameFirst(t *testing.T) {
	t.Parallel()
	b := sandboxtest.New(sandboxtest.Config{})
	gate := sandboxtest.NewGate()
	b.Script(sandboxtest.OpAcquire, sandboxtest.Step{Gate: gate})
	acquired := make(chan error, 1)
	go func() {
		_, err := b.Acquire(context.Background(), someKey, someSpec)
		acquired <- err
	}()
	<-gate.Entered()

	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	var failure *sandbox.DisposalFailure
	if err := b.Dispose(ctx, someKey, sandbox.DisposeOptions{}); !errors.As(err, &failure) || failure.Code != sandbox.DisposalTimeout {
		t.Errorf("a disposal that could not wait returned %v", err)
	}
	gate.Release()
	if err := <-acquired; err != nil {
		t.Error(err)
	}
	if purge := b.DisposeScope(t.Context(), "tenant", "thread"); purge != (sandbox.ScopePurge{Disposed: 1}) {
		t.Errorf("the purge found %+v", purge)
	}
}

func TestALostSandboxThatIsNotConfirmedGoneBlocksItsKey(t *testing.T) {
	t.Parallel()
	b := sandboxtest.New(sandboxtest.Config{})
	first := acquire(t, b).ID()
	b.Always(sandboxtest.OpDispose, sandboxtest.Step{Err: errors.New("stuck")})
	if err := b.Dispose(t.Context(), someKey, sandbox.DisposeOptions{}); err == nil {
		t.Fatal("the disposal did not fail")
	}
	if _, err := b.Acquire(t.Context(), someKey, someSpec); !errors.Is(err, sandbox.ErrUnavailable) {
		t.Errorf("acquire returned %v", err)
	}
	if n := b.Registered(); n != 1 {
		t.Errorf("%d sandboxes are registered", n)
	}
	b.Always(sandboxtest.OpDispose, sandboxtest.Step{})
	if acquire(t, b).ID() == first {
		t.Error("the id came again")
	}
}

func TestCommandProgramsFailInWords(t *testing.T) {
	t.Parallel()
	s := acquire(t, sandboxtest.New(sandboxtest.Config{}))
	for _, code := range []string{"dance", `print "open`, "print", `set "a"`, "exit many", "exit -1", `sleep "long"`, `get "x" "y"`} {
		result, err := s.RunCode(t.Context(), code, 0)
		if err != nil || result.ExitCode == 0 || len(result.Stderr) == 0 {
			t.Errorf("%q: exit %d, stderr %q, %v", code, result.ExitCode, result.Stderr, err)
		}
	}
}

func TestPythonProgramsAreWhatTheSuiteExpects(t *testing.T) {
	t.Parallel()
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("needs python3 on PATH")
	}
	p := sandboxtest.PythonPrograms()
	text := "a\nGrüße \"'\\ \x00 \U0001F600"
	for name, c := range map[string]struct {
		code, stdout, stderr string
		exit                 int
	}{
		"print":       {code: p.Print(text), stdout: text},
		"print error": {code: p.PrintError(text), stderr: text},
		"set and get": {code: p.Set("name", text) + p.Get("name"), stdout: text},
		"get nothing": {code: p.Get("name"), exit: 1, stderr: "NameError"},
		"exit":        {code: p.Exit(3), exit: 3},
		"raise":       {code: p.Raise("quite wrong"), exit: 1, stderr: "quite wrong"},
		"busy":        {code: p.Busy(time.Millisecond)},
		"spam":        {code: p.Spam(3), stdout: "xxx"},
		"print bytes": {code: p.PrintBytes([]byte("\xff\xfe")), stdout: "\xff\xfe"},
	} {
		t.Run(name, func(t *testing.T) {
			var stdout, stderr strings.Builder
			cmd := exec.CommandContext(t.Context(), python, "-X", "utf8", "-c", c.code)
			cmd.Stdout, cmd.Stderr = &stdout, &stderr
			_ = cmd.Run() // the exit code says it
			if stdout.String() != c.stdout || !strings.Contains(stderr.String(), c.stderr) || cmd.ProcessState.ExitCode() != c.exit {
				t.Errorf("stdout %q, stderr %q, exit %d", stdout.String(), stderr.String(), cmd.ProcessState.ExitCode())
			}
		})
	}
}
