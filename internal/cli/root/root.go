// Package root puts the commands of maf-sandbox together.
package root

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/maf-sandbox/maf-sandbox-go/internal/cli"
	"github.com/maf-sandbox/maf-sandbox-go/internal/cli/bench"
	"github.com/maf-sandbox/maf-sandbox-go/internal/cli/doctor"
	"github.com/maf-sandbox/maf-sandbox-go/internal/cli/image"
	"github.com/maf-sandbox/maf-sandbox-go/internal/cli/mcp"
	"github.com/maf-sandbox/maf-sandbox-go/internal/cli/repl"
	"github.com/maf-sandbox/maf-sandbox-go/internal/cli/run"
	"github.com/maf-sandbox/maf-sandbox-go/internal/cli/version"
	"github.com/maf-sandbox/maf-sandbox-go/internal/helptext"
)

// Main runs the program with the process's arguments and streams and returns
// its exit status.
func Main() int {
	// A write to a closed pipe is to be an error that ends the program in
	// good order, not a signal that ends it at once.
	signal.Ignore(syscall.SIGPIPE)
	return Run(context.Background(), cli.New(), os.Args[1:])
}

// Run runs the command line args and returns the exit status.
func Run(ctx context.Context, f *cli.Factory, args []string) int {
	cmd := NewCmd(f)
	cmd.SetArgs(args)
	ran, err := cmd.ExecuteContextC(ctx)
	if msg := cli.Message(err); msg != "" {
		if cli.ExitStatus(err) == cli.ExitUsage {
			msg += fmt.Sprintf("\nTry '%s --help'.", ran.CommandPath())
		}
		_, _ = fmt.Fprintln(f.Streams.Err, msg) // if this fails there is nowhere left to say so
	}
	return cli.ExitStatus(err)
}

// NewCmd makes the whole command tree.
func NewCmd(f *cli.Factory) *cobra.Command {
	cmd := cli.Group(&cobra.Command{
		Use:   cli.Program,
		Short: "Run untrusted Python in a micro-VM",
		Long: `Run untrusted Python in a micro-VM that starts in milliseconds.

The Python in the sandbox is your own: the first run captures this machine's
python3, and nothing else of the machine is visible inside.`,
		Example: `  maf-sandbox run -c 'print(6*7)'
  maf-sandbox repl
  maf-sandbox doctor`,
		SilenceErrors: true,
		SilenceUsage:  true,
	})
	cmd.SetIn(f.Streams.In)
	cmd.SetOut(f.Streams.Out)
	cmd.SetErr(f.Streams.Err)
	cmd.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return cli.FlagError(err) })
	// Help has no way to report a failure; a closed pipe is none anyway.
	cmd.SetHelpFunc(func(c *cobra.Command, _ []string) { _ = helptext.Write(f.Streams, c) })
	cmd.SetHelpCommand(helptext.NewCmd(f.Streams))
	say := version.NewCmd(f, nil)
	cmd.AddCommand(
		run.NewCmd(f, nil),
		repl.NewCmd(f, nil),
		mcp.NewCmd(f, nil),
		image.NewCmd(f),
		doctor.NewCmd(f, nil),
		bench.NewCmd(f, nil),
		say,
		newManCmd(f),
	)
	showVersion := cmd.Flags().Bool("version", false, "the same as the command version")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if *showVersion {
			return say.RunE(say, args)
		}
		return cmd.Help()
	}
	cmd.InitDefaultCompletionCmd()
	for _, sub := range cmd.Commands() {
		if sub.Name() == "completion" {
			cli.Group(sub)
			for _, shell := range sub.Commands() {
				shell.Args = cli.NoArgs
			}
		}
	}
	return cmd
}
