package command

import (
	"context"
	"fmt"
	"runtime"

	"github.com/spf13/cobra"

	"github.com/maf-sandbox/maf-sandbox-go/internal/mst/view"
	"github.com/maf-sandbox/maf-sandbox-go/internal/pyjson"
)

func newVersionCmd(f *Factory, c *connection) *cobra.Command {
	cmd := &cobra.Command{
		Use:     "version",
		Short:   "Say which version this is and how it was installed",
		Example: "  mst version\n  mst version --json",
		Args:    noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return withSignals(cmd.Context(), func(ctx context.Context) error { return f.version(ctx, c.json) })
		},
	}
	c.output(cmd.Flags())
	return cmd
}

func (f *Factory) version(ctx context.Context, asJSON bool) error {
	installation, err := f.Installation(ctx)
	if err != nil {
		return err
	}
	if !asJSON {
		word := "disabled"
		if installation.SelfUpdatable {
			word = "enabled"
		}
		return f.Streams.WriteOut(fmt.Appendf(nil, "%s %s\ninstallation: %s (self-update %s)\n",
			Program, Version(), view.Name(string(installation.Manager)), word))
	}
	var j pyjson.Object
	j.String("name", distribution)
	j.String("version", Version())
	// The Python program names its interpreter here; there is none.
	j.Raw("python", []byte("null"))
	j.Raw("installation", encodeInstallation(installation))
	j.String("go", runtime.Version())
	return f.writeJSON(formatJSON, j.Bytes())
}
