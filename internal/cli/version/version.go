// Package version is the command that says which build this is.
package version

import (
	"fmt"
	"runtime"
	"runtime/debug"
	"strings"

	"github.com/spf13/cobra"

	"github.com/maf-sandbox/maf-sandbox-go/internal/cli"
)

// Build describes a build of the program.
type Build struct {
	Version string `json:"version"`
	// Revision is the version control revision, empty if the build does not
	// know it; Modified says that files had been changed since.
	Revision string   `json:"revision,omitempty"`
	Modified bool     `json:"modified,omitempty"`
	Go       string   `json:"go"`
	Platform string   `json:"platform"`
	Engines  []string `json:"engines"`
}

// Options are all inputs of the command.
type Options struct {
	Factory *cli.Factory
	JSON    bool
}

// NewCmd makes the command; runF, if not nil, takes the place of its work.
func NewCmd(f *cli.Factory, runF func(*Options) error) *cobra.Command {
	o := &Options{Factory: f}
	cmd := &cobra.Command{
		Use:   "version",
		Short: "Say which build this is",
		Args:  cli.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			if runF != nil {
				return runF(o)
			}
			return run(o)
		},
	}
	cmd.Flags().BoolVar(&o.JSON, "json", false, "as one JSON object")
	return cmd
}

func run(o *Options) error {
	info, _ := debug.ReadBuildInfo()
	b := describe(info)
	if o.JSON {
		return cli.WriteJSON(o.Factory.Streams, b)
	}
	return o.Factory.Streams.WriteOut([]byte(b.text()))
}

// describe reads info, which may be nil.
func describe(info *debug.BuildInfo) Build {
	b := Build{Version: "(devel)", Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH, Engines: []string{"kvm", "ptrace"}}
	if info == nil {
		return b
	}
	if info.Main.Version != "" {
		b.Version = info.Main.Version
	}
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			b.Revision = s.Value
		case "vcs.modified":
			b.Modified = s.Value == "true"
		}
	}
	return b
}

func (b Build) text() string {
	var s strings.Builder
	fmt.Fprintf(&s, "%s %s\n", cli.Program, b.Version)
	if b.Revision != "" {
		dirty := ""
		if b.Modified {
			dirty = " (modified)"
		}
		fmt.Fprintf(&s, "revision %s%s\n", b.Revision, dirty)
	}
	fmt.Fprintf(&s, "go       %s %s\nengines  %s\n", b.Go, b.Platform, strings.Join(b.Engines, ", "))
	return s.String()
}
