// Command mst stands for the operator console in the tests of its update: it
// knows its version and can update itself.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"runtime/debug"
	"strings"

	"github.com/maf-sandbox/maf-sandbox-go/internal/selfupdate"
)

// stamped is set by the linker, as in a wheel.
var stamped string

const module = "github.com/maf-sandbox/maf-sandbox-go"

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "mst:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	version := stamped
	if info, ok := debug.ReadBuildInfo(); version == "" && ok {
		version = strings.TrimPrefix(info.Main.Version, "v")
	}
	o := selfupdate.Options{
		Program:  selfupdate.Program{Name: "mst", Distribution: "maf-sandbox-mst", Module: module, Package: module + "/cmd/mst", Version: version},
		Progress: func(s selfupdate.Step, text string) { fmt.Fprintf(os.Stderr, "%s: %s\n", s, text) },
	}
	if len(args) == 0 {
		return fmt.Errorf("a command is needed")
	}
	f := flag.NewFlagSet("mst", flag.ContinueOnError)
	asJSON := f.Bool("json", false, "")
	f.BoolVar(&o.Check, "check", false, "")
	f.StringVar(&o.To, "to", "", "")
	f.BoolVar(&o.Prerelease, "prerelease", false, "")
	f.DurationVar(&o.Timeout, "timeout", 0, "")
	if err := f.Parse(args[1:]); err != nil {
		return err
	}
	switch args[0] {
	case "version":
		if *asJSON {
			return json.NewEncoder(os.Stdout).Encode(map[string]string{"name": "maf-sandbox-mst", "version": version})
		}
		fmt.Println("mst", version)
		return nil
	case "detect":
		inst, err := selfupdate.Detect(ctx, o)
		if err != nil {
			return err
		}
		return json.NewEncoder(os.Stdout).Encode(inst)
	case "update":
		report, err := selfupdate.Run(ctx, o)
		if err != nil {
			return err
		}
		return json.NewEncoder(os.Stdout).Encode(report)
	}
	return fmt.Errorf("unknown command %q", args[0])
}
