// Command wheel builds the wheels that carry one of this repository's programs.
//
//	go run ./internal/tools/wheel -package ./cmd/mst -version 0.1.0 -out dist
//
// What is distributed has its name, and the variable that the version is
// written to, in the table products; other programs need -name and -stamp.
// It needs Go alone. The same source, version and release of Go give the same
// bytes on every machine: paths, build identities and times are left out, and
// SOURCE_DATE_EPOCH sets the files' time. Licence texts of the modules that a
// program is linked with go into the wheel.
package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"time"

	"github.com/maf-sandbox/maf-sandbox-go/internal/wheel"
)

type options struct {
	pkg, binary, stamp     string
	name, command, version string
	summary, readme        string
	license, out           string
	targets                []wheel.Target
	time                   time.Time
	goCommand              string
}

// products are the programs that are distributed as wheels, by their -package.
// A wheel whose version is not stamped would not know which it is, and no update
// to it could be verified.
var products = map[string]struct{ name, stamp, summary, readme string }{
	"./cmd/mst": {
		name: "maf-sandbox-mst", stamp: "github.com/maf-sandbox/maf-sandbox-go/internal/mst/command.stamped",
		summary: "Operator console: see and dispose of the sandboxes of this machine's MAF hosts", readme: "docs/mst.md",
	},
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	o, err := parse(os.Args[1:], os.Getenv("SOURCE_DATE_EPOCH"))
	if errors.Is(err, flag.ErrHelp) {
		return
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "wheel:", err)
		os.Exit(2)
	}
	paths, err := run(ctx, o)
	for _, p := range paths {
		fmt.Println(p)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "wheel:", err)
		os.Exit(1)
	}
}

func parse(args []string, epoch string) (options, error) {
	o := options{goCommand: "go"}
	var targets string
	f := flag.NewFlagSet("wheel", flag.ContinueOnError)
	f.StringVar(&o.pkg, "package", "", "main package to build, such as ./cmd/mst")
	f.StringVar(&o.binary, "binary", "", "executable to take instead of building one; needs one target")
	f.StringVar(&o.stamp, "stamp", "", "string variable that the linker sets to the version, such as main.version")
	f.StringVar(&o.name, "name", "", "name of the distribution")
	f.StringVar(&o.command, "command", "", "name of the command (the last element of -package)")
	f.StringVar(&o.version, "version", "", "version, in a spelling of PEP 440")
	f.StringVar(&o.summary, "summary", "", "one line about the program")
	f.StringVar(&o.readme, "readme", "", "Markdown file with the description")
	f.StringVar(&o.license, "license", "MIT", "SPDX expression")
	f.StringVar(&o.out, "out", "dist", "folder for the wheels")
	f.StringVar(&targets, "targets", "", "targets, such as linux/amd64,darwin/arm64 (all)")
	if err := f.Parse(args); err != nil {
		return o, err
	}
	if p, known := products[o.pkg]; known {
		o.name, o.stamp = cmp.Or(o.name, p.name), cmp.Or(o.stamp, p.stamp)
		o.summary, o.readme = cmp.Or(o.summary, p.summary), cmp.Or(o.readme, p.readme)
	}
	switch {
	case f.NArg() > 0:
		return o, fmt.Errorf("unexpected argument %q", f.Arg(0))
	case (o.pkg == "") == (o.binary == ""):
		return o, errors.New("one of -package and -binary is needed")
	case o.name == "" || o.version == "":
		return o, errors.New("-name and -version are needed")
	}
	if o.command == "" {
		if o.pkg == "" {
			return o, errors.New("-binary needs -command")
		}
		o.command = o.pkg[strings.LastIndexByte(o.pkg, '/')+1:]
	}
	o.targets = wheel.Targets()
	if targets != "" {
		o.targets = nil
		for s := range strings.SplitSeq(targets, ",") {
			t, err := wheel.ParseTarget(s)
			if err != nil {
				return o, err
			}
			o.targets = append(o.targets, t)
		}
	}
	if o.binary != "" && len(o.targets) != 1 {
		return o, errors.New("-binary needs exactly one target in -targets")
	}
	if epoch != "" {
		seconds, err := strconv.ParseInt(epoch, 10, 64)
		if err != nil {
			return o, fmt.Errorf("SOURCE_DATE_EPOCH is no number of seconds: %w", err)
		}
		o.time = time.Unix(seconds, 0).UTC()
	}
	return o, nil
}
