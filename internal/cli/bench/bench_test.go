package bench

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/maf-sandbox/maf-sandbox-go/internal/bench"
	"github.com/maf-sandbox/maf-sandbox-go/internal/cli"
	"github.com/maf-sandbox/maf-sandbox-go/internal/cli/clitest"
	"github.com/maf-sandbox/maf-sandbox-go/internal/streams"
)

// suite plays the benchmarks; it tells what it was opened with.
func suite(stopped *bool, opened *bench.Config) func(context.Context, bench.Config) ([]bench.Benchmark, bench.Machine, func() error, error) {
	one := func(_ context.Context, n int) (bench.Samples, error) {
		return bench.Samples{Values: make([]float64, n)}, nil
	}
	all := []bench.Benchmark{
		{ID: "N1", Name: "warm", Unit: bench.Milliseconds, N: 10, Quick: 2, Run: one},
		{ID: "N2", Name: "broken", N: 1, Quick: 1, Run: func(context.Context, int) (bench.Samples, error) { return bench.Samples{}, errors.New("boom") }},
		{ID: "N3", Name: "waits", N: 1, Run: func(ctx context.Context, _ int) (bench.Samples, error) {
			<-ctx.Done()
			return bench.Samples{}, ctx.Err()
		}},
		{ID: "N5", Name: "lacks something", N: 1, Run: func(context.Context, int) (bench.Samples, error) {
			return bench.Samples{}, fmt.Errorf("%w: only root can", bench.ErrSkipped)
		}},
	}
	return func(_ context.Context, c bench.Config) ([]bench.Benchmark, bench.Machine, func() error, error) {
		*opened = c
		return all, bench.Machine{Note: "a note"}, func() error { *stopped = true; return nil }, nil
	}
}

func measureWith(t *testing.T, o Options, sig os.Signal) (status int, stdout string) {
	t.Helper()
	status, stdout, _ = measureIn(t, o, sig)
	return status, stdout
}

func measureIn(t *testing.T, o Options, sig os.Signal) (status int, stdout string, c bench.Config) {
	t.Helper()
	s, out, _ := streams.Test("")
	f, signals := (&clitest.Engine{}).Factory(s, t.TempDir())
	stopped := false
	o.Limits.Value = "rlimit"
	o.Factory, o.Suite = f, suite(&stopped, &c)
	o.ImageFile = func(context.Context, string, string, func(string)) (string, error) { return "image", nil }
	if sig != nil {
		signals <- sig
	}
	err := run(context.Background(), &o)
	if !stopped {
		t.Error("the suite was not stopped")
	}
	return cli.ExitStatus(err), out.String(), c
}

func TestBenchPrintsATableOrJSON(t *testing.T) {
	if status, out := measureWith(t, Options{Only: "N1", Quick: true}, nil); status != 0 || !strings.Contains(out, "a note") || !strings.Contains(out, "N1") {
		t.Errorf("got %d, %s", status, out)
	}
	status, out := measureWith(t, Options{Only: "N1", JSON: true, Yardstick: `echo '{"name":"w","N1":{"p50_ms":1}}'`}, nil)
	if status != 0 || !strings.HasPrefix(out, `{"machine":{`) || !strings.Contains(out, `"results":[{"id":"N1","name":"warm","n":10,`) || !strings.Contains(out, `"yardstick":{"name":"w",`) {
		t.Errorf("got %d, %s", status, out)
	}
}

func TestBenchEndsByWhatWentWrong(t *testing.T) {
	for _, r := range []struct {
		name   string
		o      Options
		sig    os.Signal
		status int
		stdout string
	}{
		{"an unknown benchmark", Options{Only: "N99"}, nil, 2, ""},
		{"a benchmark that fails", Options{Only: "N2"}, nil, 125, "not measured: N2 (broken): boom\n"},
		{"a benchmark that this user cannot measure", Options{Only: "N5"}, nil, 0, "not measured: N5 (lacks something): skipped: only root can\n"},
		{"a yardstick that fails", Options{Only: "N1", Yardstick: "false"}, nil, 125, ""},
		{"an interrupt", Options{Only: "N3"}, os.Interrupt, 130, ""},
	} {
		t.Run(r.name, func(t *testing.T) {
			if status, out := measureWith(t, r.o, r.sig); status != r.status || !strings.HasSuffix(out, r.stdout) || r.stdout == "" && out != "" {
				t.Errorf("got %d, %q; want %d, %q", status, out, r.status, r.stdout)
			}
		})
	}
}

func TestBenchSaysWhereAndHowLongToMeasure(t *testing.T) {
	for soak, want := range map[bool]int{false: 0, true: bench.SoakCycles} {
		_, _, c := measureIn(t, Options{Only: "N1", Soak: soak}, nil)
		if c.Cycles != want || c.Image != "image" || c.CacheDir == "" || c.Limits != "rlimit" {
			t.Errorf("soak %v: %+v", soak, c)
		}
		if args := strings.Join(c.Run[1:], " "); !strings.HasSuffix(args, "run --engine auto --image image --limits rlimit -c print(6*7)") {
			t.Errorf("N4 runs %q", args)
		}
	}
}

func TestBenchRefusesFlagsWithoutEffect(t *testing.T) {
	for _, r := range []struct {
		args []string
		want string
	}{
		{[]string{"--native", "python3", "--only", "N1"}, "--native has no effect with --only N1: it is for N4 and N7"},
		{[]string{"--soak", "--only", "N7.fib"}, "--soak has no effect with --only N7.fib: it is for N12"},
		{[]string{"--soak", "--quick"}, "--quick and --soak exclude each other"},
		{[]string{"--native", "python3", "--only", "n7.fib"}, ""},
		{[]string{"--native", "python3", "--only", "N4"}, ""},
		{[]string{"--soak", "--only", "N12"}, ""},
		{[]string{"--native", "python3", "--soak"}, ""},
	} {
		s, _, _ := streams.Test("")
		f, _ := (&clitest.Engine{}).Factory(s, t.TempDir())
		began := false
		cmd := NewCmd(f, func(context.Context, *Options) error { began = true; return nil })
		cmd.SetArgs(r.args)
		cmd.SilenceErrors, cmd.SilenceUsage = true, true
		err := cmd.ExecuteContext(t.Context())
		var usage *cli.UsageError
		switch {
		case r.want == "" && (err != nil || !began):
			t.Errorf("%v: began %v, %v", r.args, began, err)
		case r.want != "" && (began || !errors.As(err, &usage) || !strings.Contains(err.Error(), r.want)):
			t.Errorf("%v: began %v, %v; want %q", r.args, began, err, r.want)
		}
	}
}
