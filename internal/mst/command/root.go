package command

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/maf-sandbox/maf-sandbox-go/internal/exits"
	"github.com/maf-sandbox/maf-sandbox-go/internal/helptext"
	"github.com/maf-sandbox/maf-sandbox-go/internal/mst/fleet"
)

// Main runs the program with the process's arguments and returns its exit
// status.
func Main(f *Factory) int {
	// A write to a closed pipe is to be an error that ends the program in
	// good order, not a signal that ends it at once.
	signal.Ignore(syscall.SIGPIPE)
	return Run(context.Background(), f, os.Args[1:])
}

// Run runs the command line args and returns the exit status.
func Run(ctx context.Context, f *Factory, args []string) int {
	cmd, err := execute(ctx, f, args)
	if msg := Message(err); msg != "" {
		if exits.Is[*UsageError](err) {
			msg += fmt.Sprintf("Try '%s --help'.\n", cmd.CommandPath())
		}
		_, _ = fmt.Fprint(f.Streams.Err, msg) // if this fails there is nowhere left to say so
	}
	return ExitStatus(err)
}

// execute runs the command line. An option that is unknown and the beginning of
// exactly one other is taken for that one: the Python program did so. Each
// time round, one more option is whole, so there is an end.
func execute(ctx context.Context, f *Factory, args []string) (*cobra.Command, error) {
	for {
		started := false
		root := NewCmd(f)
		// Cobra's way of asking for help has no place for an error.
		var shown error
		root.SetHelpFunc(func(c *cobra.Command, _ []string) { shown = helptext.Write(f.Streams, c) })
		root.PersistentPreRunE = func(*cobra.Command, []string) error {
			started = true
			if root.Flags().Changed("help") { // before a command
				return cmp.Or[error](helptext.Write(f.Streams, root), statusError(0))
			}
			return nil
		}
		// No arguments at all would be the process's own to Cobra.
		root.SetArgs(append([]string{}, args...))
		cmd, err := root.ExecuteContextC(ctx)
		var unknown *pflag.NotExistError
		if !started && errors.As(err, &unknown) {
			if whole, ok := completeName(cmd, args, unknown.GetSpecifiedName()); ok {
				args = whole
				continue
			}
		}
		if err != nil && !started && !exits.Is[*UsageError](err) {
			err = &UsageError{Err: err}
		}
		return cmd, cmp.Or(err, shown)
	}
}

// completeName gives the arguments with the beginning of an option's name made
// whole.
func completeName(cmd *cobra.Command, args []string, beginning string) ([]string, bool) {
	if len(beginning) < 2 {
		return nil, false // a letter is an option of its own kind
	}
	var names []string
	cmd.Flags().VisitAll(func(flag *pflag.Flag) {
		if strings.HasPrefix(flag.Name, beginning) {
			names = append(names, flag.Name)
		}
	})
	if len(names) != 1 {
		return nil, false
	}
	whole := slices.Clone(args)
	for i, arg := range whole {
		if arg == "--" {
			break
		}
		if name, value, valued := strings.Cut(arg, "="); name == "--"+beginning {
			whole[i] = "--" + names[0]
			if valued {
				whole[i] += "=" + value
			}
			return whole, true
		}
	}
	return nil, false
}

// NewCmd makes the whole command tree.
func NewCmd(f *Factory) *cobra.Command {
	c := &connection{source: fleet.DefaultSource}
	cmd := &cobra.Command{
		Use:   Program,
		Short: "See and dispose of the sandboxes of this machine's MAF hosts",
		Long: `See and dispose of the sandboxes of the MAF hosts on this machine.

Without a command it opens the console; with --json alone it lists. Hosts are
those that let themselves be controlled: they announce themselves in a folder
that only you can read. mst asks them, and never touches a sandbox itself.

The exit status is 0 when all went well, 1 when a host could not be asked or
something was not done wholly, 2 for a wrong command line or a missing --yes, 3
when a sandbox is not there, 4 when you declined, and 130 after Ctrl-C.`,
		Example: `  mst                                  the console
  mst --demo                           the console over three sandboxes that do not exist
  mst list --state failed
  mst delete INSTANCE_ID
  mst purge-thread --scope SCOPE --thread ID`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				return unknown(cmd, args[0])
			}
			return nil
		},
		RunE:             func(cmd *cobra.Command, _ []string) error { return f.bare(cmd, c) },
		SilenceErrors:    true,
		SilenceUsage:     true,
		TraverseChildren: true, // options may stand before the command
	}
	cmd.SetIn(f.Streams.In)
	cmd.SetOut(f.Streams.Out)
	cmd.SetErr(f.Streams.Err)
	cmd.SetHelpCommand(helptext.NewCmd(f.Streams))
	cmd.InitDefaultHelpFlag()
	c.add(cmd.Flags())
	cmd.Flags().BoolVar(&c.version, "version", false, "the same as the command version")
	list := newListCmd(f, c)
	cmd.AddCommand(
		list, newHostsCmd(f, c), newShowCmd(f, c), newWatchCmd(f, c), newDeleteCmd(f, c), newPurgeCmd(f, c),
		newVersionCmd(f, c), newUpdateCmd(f, c), newManCmd(f),
	)
	// No command takes a file.
	cmd.CompletionOptions.SetDefaultShellCompDirective(cobra.ShellCompDirectiveNoFileComp)
	// Shells that there is no script for are wrong command lines.
	cmd.InitDefaultCompletionCmd("completion")
	if completion, _, err := cmd.Find([]string{"completion"}); err == nil {
		completion.Args = func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				return unknown(cmd, args[0])
			}
			return usagef("%s needs a shell: bash, fish, powershell or zsh", cmd.CommandPath())
		}
		completion.RunE = func(*cobra.Command, []string) error { return nil } // without it, Args is not asked
	}
	return cmd
}

// unknown is the error of a command that does not exist. What was perhaps meant
// is named.
func unknown(cmd *cobra.Command, name string) error {
	cmd.SuggestionsMinimumDistance = 2
	if near := cmd.SuggestionsFor(name); len(near) > 0 {
		return usagef("unknown command %q; did you mean %s?", name, strings.Join(near, " or "))
	}
	return usagef("unknown command %q", name)
}

// bare is mst without a command.
func (f *Factory) bare(cmd *cobra.Command, c *connection) error {
	if c.version {
		return withSignals(cmd.Context(), func(ctx context.Context) error { return f.version(ctx, c.json) })
	}
	if c.json {
		o := &listOptions{Factory: f, connection: c}
		how, err := o.layout.check(true)
		if err != nil {
			return err
		}
		selection := o.selection.selection(cmd.Flags())
		return f.withHosts(cmd, c, func(ctx context.Context, hosts *fleet.Fleet) error { return o.run(ctx, hosts, selection, how) })
	}
	if f.Console == nil || !f.Streams.InTTY || !f.Streams.OutTTY || f.Terminal == "dumb" {
		return usagef("the console needs a terminal that can place text; 'mst list' and 'mst watch' work anywhere")
	}
	return f.withHosts(cmd, c, f.Console)
}
