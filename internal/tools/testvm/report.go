package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"time"

	"github.com/maf-sandbox/maf-sandbox-go/internal/tools/testvm/plan"
)

// maxLine bounds what is kept of a line that does not end.
const maxLine = 1 << 20

// reporter takes apart what process 1 and the tests write, and gives the tests'
// part to testreport as "go test -json" would.
type reporter struct {
	steps  []plan.Step
	series string // of the kernel
	// whole: no test was left out by name, so that each step has some.
	whole bool
	line  []byte

	show    *exec.Cmd // testreport
	events  io.WriteCloser
	convert func(pkg string) (*converter, error)

	current *converter
	n       int // the step that runs
	passed  int // its tests
	start   time.Time
	ended   int
	failed  bool
	done    bool
	err     error
}

func (b *built) newReporter(ctx context.Context, steps []plan.Step, series string, o options) (*reporter, error) {
	r := &reporter{steps: steps, series: series, whole: len(o.args) == 0}
	r.show = exec.CommandContext(ctx, b.testreport(), "-skips", o.skips)
	r.show.Stdout, r.show.Stderr = os.Stdout, os.Stderr
	var err error
	if r.events, err = r.show.StdinPipe(); err != nil {
		return nil, err
	}
	r.convert = func(pkg string) (*converter, error) { return newConverter(ctx, b.test2json(), pkg, r.events) }
	if err := r.show.Start(); err != nil {
		return nil, err
	}
	return r, nil
}

// Write implements io.Writer for QEMU's output. It never fails, because the VM
// must not hang on it.
func (r *reporter) Write(p []byte) (int, error) {
	for rest := p; len(rest) > 0; {
		n := bytes.IndexByte(rest, '\n') + 1
		whole := n > 0
		if !whole {
			n = len(rest)
		}
		r.line = append(r.line, rest[:n]...)
		rest = rest[n:]
		if whole || len(r.line) > maxLine {
			r.take(r.line)
			r.line = r.line[:0]
		}
	}
	return len(p), nil
}

func (r *reporter) take(line []byte) {
	report, ok := plan.Parse(line)
	if !ok {
		if r.current == nil {
			return
		}
		if bytes.Contains(line, []byte("--- PASS: ")) {
			r.passed++
		}
		r.fail(r.current.write(line))
		return
	}
	switch report.Kind {
	case plan.Start:
		if report.N >= len(r.steps) || r.current != nil {
			r.fail(fmt.Errorf("step %d began out of turn", report.N))
			return
		}
		var err error
		r.n, r.passed, r.start = report.N, 0, time.Now()
		r.current, err = r.convert(r.name())
		r.fail(err)
	case plan.End:
		r.end(report)
	case plan.Failed:
		r.fail(fmt.Errorf("in the VM: %s", report.Words))
	case plan.Done:
		r.done = true
	}
}

// name is the package's, such that a reader sees where the test ran.
func (r *reporter) name() string {
	name := r.steps[r.n].Package + "@linux-" + r.series
	if v := r.steps[r.n].Variant; v != plan.Root {
		name += "-" + string(v)
	}
	return name
}

func (r *reporter) end(report plan.Report) {
	if r.current == nil || report.N != r.n {
		r.fail(fmt.Errorf("step %d ended out of turn", report.N))
		return
	}
	r.fail(r.current.close(report.Status))
	r.current = nil
	r.ended++
	if report.Status == 0 && r.passed == 0 && r.whole {
		r.fail(fmt.Errorf("no test of %s ran", r.name()))
	}
	word := "ok  "
	if report.Status != 0 {
		word = "FAIL"
		r.failed = true
	}
	line := fmt.Sprintf("%s\t%s\t%.3fs\n", word, r.name(), time.Since(r.start).Seconds())
	r.fail(r.event("output", "", line))
	step := r.steps[r.n]
	for _, e := range exclusions {
		if step.Package == module+"/"+e.pkg && slices.Contains(step.Args, skipFlag+skipPattern(e.pkg)) {
			r.fail(errors.Join(r.event("output", e.test, e.reason+"\n"), r.event("skip", e.test, "")))
		}
	}
}

// event gives testreport an event of our own.
func (r *reporter) event(action, test, output string) error {
	return json.NewEncoder(r.events).Encode(map[string]string{
		"Action": action, "Package": r.name(), "Test": test, "Output": output,
	})
}

// fail keeps the first error.
func (r *reporter) fail(err error) {
	if r.err == nil {
		r.err = err
	}
}

// finish gives errTests when all steps ran and some failed, and another error
// when they did not all run.
func (r *reporter) finish() error {
	if r.current != nil {
		r.fail(errors.Join(fmt.Errorf("the VM ended during the tests of %s", r.name()), r.current.close(-1)))
	}
	r.fail(r.events.Close())
	var exit *exec.ExitError
	if err := r.show.Wait(); err != nil && !errors.As(err, &exit) {
		r.fail(err)
	} else if err != nil {
		r.failed = true
	}
	switch {
	case r.err != nil:
		return fmt.Errorf("the tests did not run to their end: %w", r.err)
	case !r.done || r.ended != len(r.steps):
		return errors.New("the tests did not run to their end: the VM did not report")
	case r.failed:
		return errTests
	}
	return nil
}

// converter is a test2json process.
type converter struct {
	cmd *exec.Cmd
	in  io.WriteCloser
}

func newConverter(ctx context.Context, program, pkg string, out io.Writer) (*converter, error) {
	c := &converter{cmd: exec.CommandContext(ctx, program, "-p", pkg)}
	var err error
	if c.in, err = c.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	c.cmd.Stdout, c.cmd.Stderr = out, os.Stderr
	return c, c.cmd.Start()
}

func (c *converter) write(line []byte) error {
	_, err := c.in.Write(line)
	return err
}

// close ends the stream of a test program that gave a status.
func (c *converter) close(status int) error {
	var err error
	if status != 0 {
		// What the go command adds; it makes a program that died a failure.
		err = c.write([]byte(fmt.Sprintf("exit status %d\nFAIL\n", status)))
	}
	return errors.Join(err, c.in.Close(), c.cmd.Wait())
}
