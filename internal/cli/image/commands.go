package image

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/maf-sandbox/maf-sandbox-go/internal/cli"
	"github.com/maf-sandbox/maf-sandbox-go/internal/image"
	"github.com/maf-sandbox/maf-sandbox-go/internal/streams"
)

func newBuildCmd(c *common) *cobra.Command {
	var o image.Options
	var buildName string
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "build [--python PATH | --venv DIR] [--name NAME]",
		Short: "Capture a Python",
		Example: `  maf-sandbox image build
  maf-sandbox image build --venv .venv --name data`,
		Args: cli.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if o.Python != "" && o.Venv != "" {
				return cli.Usagef("give either --python or --venv, not both")
			}
			for _, name := range []string{"python", "venv", "name"} {
				if f := cmd.Flags().Lookup(name); f.Changed && f.Value.String() == "" {
					return cli.Usagef("--%s is empty", name)
				}
			}
			return c.build(cmd.Context(), o, buildName, asJSON)
		},
	}
	fl := cmd.Flags()
	fl.StringVar(&o.Python, "python", "", "capture the interpreter at this `PATH` (default: the first python3)")
	fl.StringVar(&o.Venv, "venv", "", "capture the virtual environment in this `DIR`")
	fl.StringVar(&buildName, "name", image.DefaultName, "call the image `NAME`")
	fl.BoolVar(&asJSON, "json", false, "as one JSON object")
	return cmd
}

func (c *common) build(ctx context.Context, o image.Options, name string, asJSON bool) error {
	ctx, release := c.factory.Interruptible(ctx)
	defer release()
	if err := absolute(&o); err != nil {
		return err
	}
	store, err := c.store()
	if err != nil {
		return err
	}
	p := c.factory.Streams.Progress()
	defer p.Done()
	o.Log = p.Say
	e, err := store.Build(ctx, o, name)
	if cause := cli.StopCause(ctx); err != nil && cause != nil {
		return cause
	}
	if errors.Is(err, image.ErrName) {
		return cli.Usagef("--name: %w", err)
	}
	if err != nil {
		return err
	}
	p.Done()
	if asJSON {
		return cli.WriteJSON(c.factory.Streams, e)
	}
	return c.print(table([]image.Info{e}))
}

// absolute makes o independent of the current folder: the programs that help
// with a capture run in another one. A Python without a slash is looked for on
// PATH.
func absolute(o *image.Options) (err error) {
	if o.Venv != "" {
		o.Venv, err = filepath.Abs(o.Venv)
	}
	if err == nil && strings.ContainsRune(o.Python, '/') {
		o.Python, err = filepath.Abs(o.Python)
	}
	return err
}

func newListCmd(c *common) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use: "ls", Aliases: []string{"list"}, Short: "List the images",
		Args: cli.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			store, err := c.store()
			if err != nil {
				return err
			}
			list, err := store.List()
			switch {
			case err != nil:
				return err
			case asJSON && list == nil:
				return cli.WriteJSON(c.factory.Streams, []image.Info{})
			case asJSON:
				return cli.WriteJSON(c.factory.Streams, list)
			}
			return c.print(table(list))
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "as one JSON array")
	return cmd
}

// named checks that images are named.
func named(_ *cobra.Command, args []string) error {
	switch {
	case len(args) == 0:
		return cli.Usagef("give the NAME of an image: '%s image ls' lists them", cli.Program)
	case slices.Contains(args, ""):
		return cli.Usagef("a NAME is empty")
	}
	return nil
}

func newShowCmd(c *common) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use: "show NAME", Short: "Say what is in an image",
		Args: named,
		RunE: func(_ *cobra.Command, args []string) error {
			if len(args) > 1 {
				return cli.Usagef("give the NAME of one image, not of %d", len(args))
			}
			store, err := c.store()
			if err != nil {
				return err
			}
			d, err := store.Show(args[0])
			if err != nil {
				return err
			}
			if asJSON {
				err = cli.WriteJSON(c.factory.Streams, d)
			} else {
				err = c.print(detail(d))
			}
			if err == nil && d.Manifest == nil {
				err = &cli.StatusError{Status: cli.ExitSandbox} // why is shown
			}
			return err
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "as one JSON object")
	return cmd
}

func newRemoveCmd(c *common) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use: "rm NAME...", Aliases: []string{"remove"}, Short: "Remove images",
		Args: named,
		RunE: func(_ *cobra.Command, args []string) error { return c.remove(args, asJSON) },
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "as one JSON object")
	return cmd
}

// remove removes as many of the images as it can and reports the rest.
func (c *common) remove(names []string, asJSON bool) error {
	store, err := c.store()
	if err != nil {
		return err
	}
	removed := struct {
		Removed []string `json:"removed"`
	}{[]string{}}
	var errs []error
	for _, name := range names {
		if err := store.Remove(name); err != nil {
			errs = append(errs, err) // names the image
			continue
		}
		removed.Removed = append(removed.Removed, name)
	}
	if asJSON {
		errs = append(errs, cli.WriteJSON(c.factory.Streams, removed))
	} else if len(removed.Removed) > 0 {
		errs = append(errs, c.print("removed "+streams.OneLine(strings.Join(removed.Removed, ", "))+"\n"))
	}
	return errors.Join(errs...)
}

func (c *common) print(text string) error { return c.factory.Streams.WriteOut([]byte(text)) }

func table(list []image.Info) string {
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintln(w, "NAME\tPYTHON\tPACKAGES\tSIZE\tCREATED\tID") // into a builder
	for _, e := range list {
		python, packages := "damaged", "-"
		if m := e.Manifest; m != nil {
			python, packages = streams.OneLine(m.Python), fmt.Sprint(len(m.Packages))
		}
		_, _ = fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%.12s\n", names(e), python, packages, mib(e.Size), e.Created.UTC().Format("2006-01-02 15:04"), e.ID)
	}
	_ = w.Flush() // into a builder
	return b.String()
}

func detail(e image.Info) string {
	rows := [][2]string{
		{"id", e.ID},
		{"names", names(e)},
		{"path", e.Path},
		{"size", mib(e.Size)},
		{"created", e.Created.UTC().Format("2006-01-02 15:04:05 UTC")},
	}
	if m := e.Manifest; m == nil {
		rows = append(rows, [2]string{"damaged", e.Problem})
	} else {
		rows = append(rows,
			[2]string{"python", m.Python},
			[2]string{"libc", m.Libc},
			[2]string{"files", fmt.Sprintf("%d, %s", m.Files, mib(m.Bytes))},
			[2]string{"packages", fmt.Sprint(len(m.Packages))})
		for _, p := range m.Packages {
			rows = append(rows, [2]string{"", p.Name + " " + p.Version})
		}
	}
	var b strings.Builder
	for _, r := range rows {
		b.WriteString(strings.TrimRight(fmt.Sprintf("%-9s %s", r[0], streams.OneLine(r[1])), " ") + "\n")
	}
	return b.String()
}

func names(e image.Info) string {
	if len(e.Names) == 0 {
		return "-"
	}
	return streams.Visible(strings.Join(e.Names, ", "))
}

func mib(n int64) string { return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20)) }
