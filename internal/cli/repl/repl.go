// Package repl is the command that keeps one sandbox for a conversation in
// Python.
package repl

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"github.com/maf-sandbox/maf-sandbox-go/internal/cli"
	"github.com/maf-sandbox/maf-sandbox-go/internal/streams"
	"github.com/maf-sandbox/maf-sandbox-go/microvm"
)

// Options are all inputs of the command.
type Options struct {
	Factory *cli.Factory

	Timeout   cli.Duration
	MaxOutput cli.Size
	Machine   cli.MachineFlags
	// Raw lets control sequences through to a terminal.
	Raw bool

	// Editor asks for lines.
	Editor func(*streams.Streams, string) Editor
	// Now is the clock of :time.
	Now func() time.Time
}

// NewCmd makes the command; runF, if not nil, takes the place of its work.
func NewCmd(f *cli.Factory, runF func(context.Context, *Options) error) *cobra.Command {
	o := &Options{
		Factory:   f,
		Timeout:   cli.Duration{Value: cli.MaxDuration},
		MaxOutput: cli.Size{Bytes: microvm.MaxMaxOutput, Min: 1, Max: microvm.MaxMaxOutput},
		Editor:    NewEditor,
		Now:       time.Now,
	}
	cmd := &cobra.Command{
		Use:   "repl",
		Short: "Talk to Python in a sandbox that stays",
		Long: `Talk to Python in a sandbox that stays: names live until :reset or the end.

Compound statements end with an empty line. Ctrl-C interrupts the program and
keeps the names; Ctrl-D or :quit ends. Without a terminal, lines are read from
standard input and no prompt is shown.

` + commandHelp(),
		Example: `  maf-sandbox repl
  printf 'x = 6\nx * 7\n' | maf-sandbox repl`,
		Args: cli.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if runF != nil {
				return runF(cmd.Context(), o)
			}
			return run(cmd.Context(), o)
		},
	}
	fl := cmd.Flags()
	fl.Var(&o.Timeout, "timeout", "stop each statement after this time")
	fl.Var(&o.MaxOutput, "max-output", "stop a statement when it has written more than this")
	fl.BoolVar(&o.Raw, "raw", false, "let control sequences through to the terminal")
	o.Machine.Register(fl)
	o.Machine.RegisterHosts(fl)
	return cmd
}

func run(ctx context.Context, o *Options) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	signals, stop := o.Factory.Signals()
	defer stop()

	s := &session{o: o, ctx: ctx, cancel: cancel, signals: signals}
	s.stdout, s.stderr = o.Factory.Streams.Guest(o.Raw, cancel)
	defer s.close()
	if err := s.open(); err != nil {
		return err
	}
	if line := cli.Lower(s.info, o.Machine); line != "" && s.o.Factory.Streams.ErrTTY {
		s.say("%s", line)
	}
	if s.o.Factory.Streams.ErrTTY && s.info.Limits == microvm.EnforceRlimit && o.Machine.Limits.Value == cli.LimitsAuto {
		s.say("the sandbox's memory is bounded by rlimit; '%s doctor' tells how to have control groups do it", cli.Program)
	}
	// Without a place for it there is simply no history.
	dir, _ := o.Factory.CacheDir()
	s.editor = o.Editor(o.Factory.Streams, historyPath(dir))
	return s.loop()
}
