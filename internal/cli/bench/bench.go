// Package bench is the command that measures the promises of the product.
package bench

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/maf-sandbox/maf-sandbox-go/internal/bench"
	"github.com/maf-sandbox/maf-sandbox-go/internal/cli"
	"github.com/maf-sandbox/maf-sandbox-go/microvm"
)

// YardstickEnv names the environment variable that stands in for --yardstick.
const YardstickEnv = "MAF_SANDBOX_YARDSTICK"

// Options are all inputs of the command.
type Options struct {
	Factory *cli.Factory
	// JSON reports one object instead of a table.
	JSON bool
	// Only names the benchmark or family to run; empty means all.
	Only string
	// Quick takes fewer samples.
	Quick bool
	// Limits is how the memory of sandboxes is bounded.
	Limits cli.Choice
	// Soak goes through all the cycles of N12 that are promised.
	Soak bool
	// Yardstick is a command line that prints another product's numbers.
	Yardstick string
	// Image is the name of a stored image or an image file; Native is the
	// interpreter on this machine that it is compared with.
	Image, Native string
	// Engine is what runs the sandboxes.
	Engine cli.Choice
	// ImageFile finds the image, Suite opens the benchmarks and says on what
	// they run; stop releases everything.
	ImageFile func(ctx context.Context, dir, name string, progress func(string)) (string, error)
	Suite     func(context.Context, bench.Config) (all []bench.Benchmark, m bench.Machine, stop func() error, err error)
}

// NewCmd makes the command; runF, if not nil, takes the place of its work.
func NewCmd(f *cli.Factory, runF func(context.Context, *Options) error) *cobra.Command {
	o := &Options{Factory: f, ImageFile: cli.ImageFile, Suite: bench.Open}
	cmd := &cobra.Command{
		Use:   "bench",
		Short: "Measure what the product promises",
		Long: `Measure what the product promises: median, 95th and 99th percentile, and
whether the target is met.

A yardstick is a command that prints another product's medians as JSON,
{"name": "...", "N1": {"p50_ms": 0.16}}; it runs after the benchmarks.`,
		Example: `  maf-sandbox bench
  maf-sandbox bench --only N1 --json
  maf-sandbox bench --quick --yardstick bench/yardstick.sh`,
		Args: cli.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := o.check(cmd.Flags()); err != nil {
				return err
			}
			if o.Yardstick == "" {
				o.Yardstick = os.Getenv(YardstickEnv)
			}
			if runF != nil {
				return runF(cmd.Context(), o)
			}
			return run(cmd.Context(), o)
		},
	}
	fl := cmd.Flags()
	fl.BoolVar(&o.JSON, "json", false, "as one JSON object")
	fl.StringVar(&o.Only, "only", "", "run just the benchmark with this `ID`, such as N1 or N2.reset")
	fl.BoolVar(&o.Quick, "quick", false, "take fewer samples")
	fl.BoolVar(&o.Soak, "soak", false, "N12 with all 100,000 cycles, which takes most of an hour")
	cli.ImageFlag(fl, &o.Image)
	cli.EngineFlag(fl, &o.Engine)
	cli.LimitsFlag(fl, &o.Limits)
	fl.StringVar(&o.Native, "native", "", "compare with the interpreter at this `PATH` (default: python3)")
	fl.StringVar(&o.Yardstick, "yardstick", "", "compare with the numbers that this `COMMAND` prints (default: $"+YardstickEnv+")")
	return cmd
}

// uses are the flags that few families of benchmarks heed.
var uses = []struct {
	flag     string
	families []string
}{
	{"native", []string{"N4", "N7"}},
	{"soak", []string{"N12"}},
}

// check refuses flags that would have no effect.
func (o *Options) check(fl *pflag.FlagSet) error {
	if o.Quick && o.Soak {
		return cli.Usagef("--quick and --soak exclude each other: fewer samples, or all of them")
	}
	family, _, _ := strings.Cut(o.Only, ".")
	for _, u := range uses {
		heeds := func(f string) bool { return strings.EqualFold(f, family) }
		if o.Only != "" && fl.Changed(u.flag) && !slices.ContainsFunc(u.families, heeds) {
			return cli.Usagef("--%s has no effect with --only %s: it is for %s", u.flag, o.Only, strings.Join(u.families, " and "))
		}
	}
	return nil
}

func run(ctx context.Context, o *Options) (err error) {
	ctx, release := o.Factory.Interruptible(ctx)
	defer release()
	report, err := measure(ctx, o)
	if cause := cli.StopCause(ctx); err != nil && cause != nil {
		return cause
	}
	if errors.Is(err, bench.ErrUnknown) {
		return cli.Usagef("--only: %w", err)
	}
	if err != nil {
		return err
	}
	if o.JSON {
		err = cli.WriteJSON(o.Factory.Streams, report)
	} else {
		err = o.Factory.Streams.WriteOut([]byte(report.Table()))
	}
	if n := report.Failed(); err == nil && n > 0 {
		err = fmt.Errorf("%d benchmarks could not be measured", n)
	}
	return err
}

func measure(ctx context.Context, o *Options) (r bench.Report, err error) {
	p := o.Factory.Streams.Progress()
	defer p.Done()
	c, err := configure(ctx, o, p.Say)
	if err != nil {
		return r, err
	}
	all, machine, stop, err := o.Suite(ctx, c)
	if err != nil {
		return r, cli.StartFailure(err)
	}
	defer func() { err = errors.Join(err, stop()) }()
	picked, err := bench.Select(all, o.Only)
	if err != nil {
		return r, err
	}
	r.Machine, r.Results = machine, []bench.Result{}
	for _, b := range picked {
		p.Say(b.ID + " " + b.Name)
		x, err := bench.Measure(ctx, b, o.Quick)
		switch {
		case ctx.Err() != nil:
			return r, ctx.Err()
		case err != nil:
			r.Failures = append(r.Failures, bench.Failure{ID: b.ID, Name: b.Name, Error: cli.Explain(err), Skipped: errors.Is(err, bench.ErrSkipped)})
		default:
			r.Results = append(r.Results, x)
		}
	}
	if o.Yardstick == "" {
		return r, nil
	}
	p.Say("yardstick")
	rival, err := bench.RunRival(ctx, o.Yardstick)
	if err != nil {
		return r, err
	}
	rival.Apply(r.Results)
	return r, nil
}

func configure(ctx context.Context, o *Options, progress func(string)) (bench.Config, error) {
	c := bench.Config{Engine: cmp.Or(microvm.Engine(o.Engine.Value), microvm.EngineAuto), Native: o.Native, Limits: cli.Enforcements(o.Limits.Value)[0], Progress: progress}
	if o.Soak {
		c.Cycles = bench.SoakCycles
	}
	var err error
	if c.CacheDir, err = o.Factory.CacheDir(); err != nil {
		return c, err
	}
	images, err := o.Factory.ImageDir()
	if err != nil {
		return c, err
	}
	if c.Image, err = o.ImageFile(ctx, images, o.Image, progress); err != nil {
		return c, err
	}
	self, err := os.Executable()
	if err != nil {
		return c, err
	}
	c.Run = []string{self, os.Args[0], "run", "--engine", string(c.Engine), "--image", c.Image, "--limits", string(c.Limits), "-c", "print(6*7)"}
	return c, nil
}
