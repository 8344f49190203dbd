// Command testvm runs the project's tests in a virtual machine with an ordinary
// KVM: QEMU emulates an AMD processor in software, so no KVM of the host takes
// part, and Debian's kernel offers its /dev/kvm inside. test/vm/run builds and
// starts it.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"strings"
	"syscall"
	"time"
)

// Exit statuses.
const (
	exitFailed = 1 // a test failed
	exitUsage  = 2
	// exitUnable: this machine lacks what the VM takes; the reason is on
	// standard error. The number is the one that test harnesses take for a skip.
	exitUnable = 77
	// exitLost: the tests did not run to their end, whatever their results so
	// far.
	exitLost = 125
)

// errTests: the tests ran, and some failed.
var errTests = errors.New("tests failed in the VM")

// unableError says what this machine lacks.
type unableError struct{ lack string }

func (e *unableError) Error() string { return e.lack }

// unable makes one line of the reason: it is listed among the skipped tests.
func unable(format string, args ...any) error {
	return &unableError{strings.ReplaceAll(fmt.Sprintf(format, args...), "\n", "; ")}
}

type options struct {
	kernels []string
	rows    []row
	// strict: variants were asked for by name, and none may be left out.
	strict  bool
	skips   string
	log     string
	console string
	timeout time.Duration
	memory  int // MiB
	words   string
	args    []string
}

func main() {
	o, err := parse(os.Args[1:])
	if err != nil {
		if !errors.Is(err, flag.ErrHelp) {
			fmt.Fprintln(os.Stderr, "testvm:", err)
		}
		os.Exit(exitUsage)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err = run(ctx, o)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "testvm:", err)
	}
	os.Exit(status(err))
}

func status(err error) int {
	var lack *unableError
	switch {
	case err == nil:
		return 0
	case errors.Is(err, errTests):
		return exitFailed
	case errors.As(err, &lack):
		return exitUnable
	default:
		return exitLost
	}
}

func parse(args []string) (options, error) {
	o := options{}
	f := flag.NewFlagSet("testvm", flag.ContinueOnError)
	kernel := f.String("kernel", defaultKernel, "`series` of Debian's kernel, several with commas, or \"all\"")
	packages := f.String("packages", "", "`folders` of the packages whose tests run, with commas (default: those that meet KVM, processes or control groups)")
	variants := f.String("variants", "", "`variants` that must run, with commas: "+groupNames()+" (default: all that can)")
	f.StringVar(&o.skips, "skips", "", "`file` to which skipped tests are appended")
	f.StringVar(&o.log, "log", "", "`file` to which all that the tests write is appended")
	f.StringVar(&o.console, "console", "", "`file` for the messages of kernel and systemd (default: shown when the VM fails)")
	f.DurationVar(&o.timeout, "timeout", 30*time.Minute, "bound for a VM that hangs")
	f.IntVar(&o.memory, "memory", 3072, "`MiB` of memory of the VM")
	f.StringVar(&o.words, "append", "", "more `words` for the kernel's command line")
	f.Usage = func() {
		_, _ = fmt.Fprintf(f.Output(), "usage: test/vm/run [flags] [-- test flags such as -test.run=Name]\n\n")
		f.PrintDefaults()
		_, _ = fmt.Fprintf(f.Output(), "\nexit status: 0, or %d: tests failed, %d: this machine lacks something, %d: the tests did not run\n",
			exitFailed, exitUnable, exitLost)
	}
	if err := f.Parse(args); err != nil {
		return o, err
	}
	o.args = f.Args()
	o.strict = *variants != ""
	var err error
	if o.rows, err = choose(list(*variants), list(*packages)); err != nil {
		return o, err
	}
	o.kernels = strings.Split(*kernel, ",")
	if *kernel == "all" {
		o.kernels = nil
		for _, k := range kernels {
			o.kernels = append(o.kernels, k.series)
		}
	}
	for _, k := range o.kernels {
		if suiteOf(k) == "" {
			return o, fmt.Errorf("unknown kernel %q: known are %s and all", k, known())
		}
	}
	return o, nil
}

// list takes a list with commas apart.
func list(words string) []string {
	if words == "" {
		return nil
	}
	return strings.Split(words, ",")
}

// run tests on every kernel. That tests did not run weighs more than that some
// failed.
func run(ctx context.Context, o options) error {
	if runtime.GOOS != "linux" || runtime.GOARCH != "amd64" {
		return unable("needs Linux on x86-64, this is %s on %s", runtime.GOOS, runtime.GOARCH)
	}
	if err := needs(ctx); err != nil {
		return err
	}
	work, err := os.MkdirTemp("", "testvm-*")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(work) }()
	b, err := build(ctx, work, o)
	if err != nil {
		return err
	}
	var failed error
	for _, series := range o.kernels {
		k, err := kernelFor(ctx, series)
		if err == nil {
			err = b.test(ctx, k, o)
		}
		if err != nil {
			err = fmt.Errorf("kernel %s: %w", series, err)
			if !errors.Is(err, errTests) {
				return err
			}
			failed = err
		}
	}
	return failed
}
