// Package run is the command that runs one Python program in a fresh sandbox.
package run

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/maf-sandbox/maf-sandbox-go/internal/cli"
	"github.com/maf-sandbox/maf-sandbox-go/microvm"
	"github.com/maf-sandbox/maf-sandbox-go/sandbox"
)

// Options are all inputs of the command.
type Options struct {
	Factory *cli.Factory

	// Source is what to run, Args what it finds in sys.argv behind its own name.
	Source Source
	Args   []string
	// Request limits.
	Timeout   cli.Duration
	MaxOutput cli.Size
	// Machine says what to run it in.
	Machine cli.MachineFlags
	// Echo asks for the repr of a trailing expression.
	Echo bool
	// JSON reports everything as one object instead of streaming output.
	JSON bool
	// Raw lets control sequences through to a terminal.
	Raw bool
}

// NewCmd makes the command; runF, if not nil, takes the place of its work.
func NewCmd(f *cli.Factory, runF func(context.Context, *Options) error) *cobra.Command {
	o := &Options{
		Factory:   f,
		Timeout:   cli.Duration{Value: sandbox.DefaultTimeout},
		MaxOutput: cli.Size{Bytes: microvm.DefaultMaxOutput, Min: 1, Max: microvm.MaxMaxOutput},
	}
	cmd := &cobra.Command{
		Use:   "run (FILE | - | -c CODE) [[--] ARG...]",
		Short: "Run a Python program in a fresh sandbox",
		Long: `Run a Python program in a fresh sandbox.

The program is a FILE, standard input (-) or the text given with -c. It finds
each ARG in sys.argv. Behind -- anything is an argument; without it none may
begin with a dash, and the text of -c takes none. Its output appears as it is
written. The exit status is the program's own; 124 means that
the time limit was reached, 125 that the sandbox failed or refused, with one
line on standard error that says why, and 130 that Ctrl-C was pressed.

On a terminal, control sequences in the program's output are shown rather than
obeyed (--raw lets them through); pipes and files get every byte as it is.`,
		Example: `  maf-sandbox run analysis.py
  maf-sandbox run --timeout 5s report.py 2026
  maf-sandbox run report.py -- --format csv
  maf-sandbox run -c 'print(6*7)'
  echo 'print("hello")' | maf-sandbox run -
  maf-sandbox run -c 'while True: pass' --timeout 500ms`,
		Args: cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			hasCode := cmd.Flags().Changed("code")
			switch {
			case hasCode && len(args) > 0 && cmd.ArgsLenAtDash() != 0:
				// Options may follow CODE, so that an argument could be one.
				return cli.Usagef("arguments for the text of -c go behind --")
			case hasCode:
				o.Args = args
			case len(args) == 0:
				return cli.Usagef("nothing to run: give a FILE, - for standard input, or -c CODE")
			case args[0] == "":
				return cli.Usagef("the name of the FILE is empty")
			default:
				o.Source.File, o.Args = args[0], args[1:]
				if cmd.ArgsLenAtDash() != 0 {
					var err error
					if o.Args, err = arguments(args[1:]); err != nil {
						return err
					}
				}
			}
			if err := o.check(); err != nil {
				return err
			}
			if runF != nil {
				return runF(cmd.Context(), o)
			}
			return run(cmd.Context(), o)
		},
	}
	cmd.SetFlagErrorFunc(func(_ *cobra.Command, err error) error {
		var unknown *pflag.NotExistError
		if errors.As(err, &unknown) {
			err = fmt.Errorf("%w (what is for the program goes behind --)", err)
		}
		return cli.FlagError(err)
	})
	fl := cmd.Flags()
	// Whoever passes somebody's words to a program passes no options of the
	// sandbox, and whoever writes an option too late is told.
	fl.SetInterspersed(false)
	fl.StringVarP(&o.Source.Code, "code", "c", "", "run this `CODE`")
	fl.Var(&o.Timeout, "timeout", "stop the program after this time")
	fl.Var(&o.MaxOutput, "max-output", "stop the program when it has written more than this")
	fl.BoolVar(&o.Echo, "echo", false, "show the value of a trailing expression")
	fl.BoolVar(&o.JSON, "json", false, "report the result as one JSON object")
	fl.BoolVar(&o.Raw, "raw", false, "let control sequences through to the terminal")
	o.Machine.Register(fl)
	o.Machine.RegisterHosts(fl)
	return cmd
}

// arguments are what follows a FILE.
func arguments(args []string) ([]string, error) {
	for i, arg := range args {
		if arg == "--" {
			return append(args[:i:i], args[i+1:]...), nil
		}
		if len(arg) > 1 && arg[0] == '-' {
			return nil, cli.Usagef("%q stands behind the program: options go before it, and its arguments behind -- if one begins with a dash", arg)
		}
	}
	return args, nil
}

// check refuses options that make no sense, before anything is read.
func (o *Options) check() error {
	if o.JSON && o.Raw {
		return cli.Usagef("--raw has no effect with --json: a report has no control sequences that a terminal could obey")
	}
	_, err := o.Machine.Options(nil)
	return err
}

func run(ctx context.Context, o *Options) error {
	code, err := o.Source.read(o.Factory.Streams.In)
	if err != nil {
		return finish(o, outcome{}, &cli.NotRunError{Err: err})
	}
	ctx, release := o.Factory.Interruptible(ctx)
	defer release()

	m, info, err := open(ctx, o)
	if err != nil {
		return finish(o, outcome{info: info}, stopped(ctx, err))
	}
	defer func() { _ = m.Close() }() // the program is over: nobody is left to use what fails to close

	req := microvm.Request{
		Code:      string(code),
		Filename:  o.Source.name(),
		Argv:      append([]string{o.Source.argv0()}, o.Args...),
		Timeout:   o.Timeout.Value,
		MaxOutput: int(o.MaxOutput.Bytes),
		Echo:      o.Echo,
	}
	if o.JSON {
		res, err := m.Run(ctx, req)
		return finish(o, outcome{res, info, m.ID()}, stopped(ctx, ended(res, err)))
	}
	if line := cli.Lower(info, o.Machine); line != "" && o.Factory.Streams.ErrTTY {
		_, _ = fmt.Fprintf(o.Factory.Streams.Err, "%s: %s\n", cli.Program, line) // a terminal that is gone shows elsewhere
	}
	req.Live = o.Factory.Streams.OutTTY
	return stream(ctx, o, m, req)
}

// open opens the machine with a progress line for as long as it takes.
func open(ctx context.Context, o *Options) (cli.Machine, microvm.Info, error) {
	p := o.Factory.Streams.Progress()
	defer p.Done()
	options, err := o.Machine.Options(p.Say)
	if err != nil {
		return nil, microvm.Info{}, err
	}
	return o.Factory.Open(ctx, options)
}

// stream runs req with its output going to the user as it is written. Output
// that cannot be delivered ends the run: nobody would see the rest.
func stream(ctx context.Context, o *Options, m cli.Machine, req microvm.Request) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	stdout, stderr := o.Factory.Streams.Guest(o.Raw, cancel)
	req.Stdout, req.Stderr = stdout, stderr

	res, err := m.Run(ctx, req)
	err = ended(res, err)
	if o.Echo && res.Value != "" {
		_, _ = stdout.Write([]byte(res.Value + "\n")) // the sink keeps the error
	}
	_ = stdout.Close() // the second one reports the failure of either
	lost := stderr.Close()
	switch {
	case lost != nil:
		err = lost
	case err != nil:
		err = stopped(ctx, err)
	case res.ExitCode != 0:
		err = &cli.StatusError{Status: res.ExitCode}
	}
	if cli.Message(err) != "" && stderr.MidLine() {
		_, _ = io.WriteString(o.Factory.Streams.Err, "\n") // so that the message begins a line
	}
	return err
}

// ended takes the error away from a program that has ended its interpreter
// itself: that is the end of the sandbox, which nobody needs any more, and its
// status is the program's own.
func ended(res microvm.Result, err error) error {
	if res.Exited && errors.Is(err, sandbox.ErrGuestCrash) {
		return nil
	}
	return err
}

// stopped replaces an error that only says that ctx ended by why it ended.
func stopped(ctx context.Context, err error) error {
	if cause := cli.StopCause(ctx); cause != nil && errors.Is(err, context.Canceled) {
		return fmt.Errorf("%w: %w", err, cause)
	}
	return err
}

// finish ends a run that has not streamed its output.
func finish(o *Options, out outcome, err error) error {
	if err == nil && out.result.ExitCode != 0 {
		err = &cli.StatusError{Status: out.result.ExitCode}
	}
	if !o.JSON {
		return err
	}
	if werr := cli.WriteJSON(o.Factory.Streams, newReport(out, err, o.Echo)); werr != nil {
		return werr
	}
	return err
}
