//go:build linux && amd64

// Cpython runs CPython's own test suite in sandboxes and in the same
// interpreter outside, and compares the outcomes test by test. Every difference
// needs a reason in the manifest of the interpreter's version.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

type options struct {
	python, minor string
	parallel      int
	fast          bool
	update        bool
	again, reuse  bool
	capture       bool
	limits        Limits
	folder        string
	cache         string
	names         []string
	say           func(string)
}

func main() {
	o := options{say: func(s string) { fmt.Fprintln(os.Stderr, s) }}
	flag.StringVar(&o.python, "python", "", "interpreter with its test package (default: one that is found)")
	flag.StringVar(&o.minor, "version", "3.12", "version of the interpreter to look for")
	flag.IntVar(&o.parallel, "parallel", 2, "modules at the same time")
	flag.BoolVar(&o.fast, "fast", false, "only the modules of fast.txt")
	flag.BoolVar(&o.update, "update", false, "write the differences of the modules that ran to the manifest")
	flag.BoolVar(&o.again, "again", false, "run outside the sandbox again, instead of taking kept outcomes")
	flag.BoolVar(&o.reuse, "reuse", false, "take the sandbox's outcomes of the last run, where there are any")
	flag.BoolVar(&o.capture, "capture", false, "capture the interpreter again, instead of taking the kept image")
	flag.DurationVar(&o.limits.Module, "timeout", 20*time.Minute, "time for one module")
	flag.DurationVar(&o.limits.Stall, "stall", time.Minute, "time for one test")
	flag.StringVar(&o.folder, "folder", "test/cpython", "folder of the manifest")
	flag.Usage = func() {
		_, _ = fmt.Fprintln(flag.CommandLine.Output(), "usage: go run ./test/cpython [flags] [module...]")
		flag.PrintDefaults()
	}
	flag.Parse()
	o.names = flag.Args()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, o, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "cpython:", err)
		os.Exit(1)
	}
}

// cacheFolder is where images and outcomes are kept between runs.
func cacheFolder() (string, error) {
	dir, err := os.UserCacheDir()
	return filepath.Join(dir, "maf-sandbox-check", "cpython"), err
}

func run(ctx context.Context, o options, out io.Writer) error {
	var err error
	if o.cache == "" {
		if o.cache, err = cacheFolder(); err != nil {
			return err
		}
	}
	if err := os.MkdirAll(o.cache, 0o700); err != nil {
		return err
	}
	var p *Interpreter
	if o.python != "" {
		p, err = openInterpreter(ctx, o.python)
	} else {
		p, err = findInterpreter(ctx, o.minor)
	}
	if err != nil {
		return err
	}
	list, err := selection(o, p)
	if err != nil {
		return err
	}
	m, err := loadManifest(o.manifest(p))
	if err != nil {
		return err
	}
	js, err := runAll(ctx, o, p, m, list)
	if err != nil {
		return err
	}
	if o.update {
		m = m.update(js)
		if err := m.save(o.manifest(p)); err != nil {
			return err
		}
	}
	return judge(m, js, out)
}

func (o *options) manifest(p *Interpreter) string {
	return filepath.Join(o.folder, "manifest-"+p.Minor+".tsv")
}

func loadManifest(name string) (Manifest, error) {
	f, err := os.Open(name)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	m, err := readManifest(f)
	if err = errors.Join(err, f.Close()); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return m, nil
}

func (m Manifest) save(name string) error {
	f, err := os.Create(name)
	if err != nil {
		return err
	}
	return errors.Join(m.write(f), f.Close())
}

func loadList(name string) (map[string]string, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	list, err := readList(f)
	if err = errors.Join(err, f.Close()); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return list, nil
}

// selection gives the modules to run: those that are named, or the fast ones,
// or all that are not excluded.
func selection(o options, p *Interpreter) ([]string, error) {
	if len(o.names) > 0 {
		names := slices.Clone(o.names)
		for i, n := range names {
			if !strings.HasPrefix(n, "test.") {
				names[i] = "test." + n
			}
		}
		return names, nil
	}
	all, err := p.modules()
	if err != nil {
		return nil, err
	}
	if o.fast {
		fast, err := loadList(filepath.Join(o.folder, "fast.txt"))
		if err != nil {
			return nil, err
		}
		return slices.DeleteFunc(all, func(n string) bool {
			_, ok := fast[n]
			return !ok
		}), nil
	}
	excluded, err := loadList(filepath.Join(o.folder, "excluded.tsv"))
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(all, func(n string) bool {
		_, ok := excluded[n]
		return ok
	}), nil
}

// judge reports and fails when something is not as the manifest says.
func judge(m Manifest, js []*judged, out io.Writer) error {
	ran := make(map[string]bool)
	counts := map[string]int{}
	var bad []string
	for _, j := range js {
		ran[j.module] = true
		ds := compare(j.module, j.guest, j.native)
		rest := m.explain(ds)
		counts["modules"]++
		counts["tests"] += len(j.native)
		counts["explained differences"] += len(ds) - len(rest)
		if len(ds) == 0 {
			counts["equal modules"]++
		}
		for _, d := range rest {
			bad = append(bad, "unexplained: "+d.String())
		}
	}
	for _, e := range m.stale(ran) {
		bad = append(bad, fmt.Sprintf("stale: the manifest says that %s %s differs, and it does not", e.Module, e.Test))
	}
	for _, e := range m.unreasoned(ran) {
		bad = append(bad, fmt.Sprintf("without a reason: %s %s: %s", e.Module, e.Test, e.Reason))
	}
	for _, line := range bad {
		if _, err := fmt.Fprintln(out, line); err != nil {
			return err
		}
	}
	_, err := fmt.Fprintf(out, "%d modules (%d without a difference), %d tests, %d explained differences, %d problems\n",
		counts["modules"], counts["equal modules"], counts["tests"], counts["explained differences"], len(bad))
	if err == nil && len(bad) > 0 {
		err = fmt.Errorf("%d problems", len(bad))
	}
	return err
}
