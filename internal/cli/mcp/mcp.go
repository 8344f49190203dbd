// Package mcp is the command that serves sandboxes to MCP clients.
package mcp

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"runtime/debug"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/maf-sandbox/maf-sandbox-go/codeact"
	"github.com/maf-sandbox/maf-sandbox-go/control"
	"github.com/maf-sandbox/maf-sandbox-go/internal/cli"
	"github.com/maf-sandbox/maf-sandbox-go/internal/egress"
	"github.com/maf-sandbox/maf-sandbox-go/internal/mcp"
	"github.com/maf-sandbox/maf-sandbox-go/internal/platform/host"
	"github.com/maf-sandbox/maf-sandbox-go/microvm"
	"github.com/maf-sandbox/maf-sandbox-go/router"
	"github.com/maf-sandbox/maf-sandbox-go/sandbox"
)

// The words of --cleanup.
const (
	cleanupSession = "session"
	cleanupReset   = "reset"
	cleanupDispose = "dispose"
)

// Options are all inputs of the command.
type Options struct {
	Factory *cli.Factory

	// Sandboxes.
	Image     string
	Memory    cli.Size
	Timeout   cli.Duration
	MaxOutput cli.Size
	// MaxShown is how much of standard output, and of standard error, clients get.
	MaxShown cli.Size
	Engine   cli.Choice
	Limits   cli.Choice
	// Cleanup says when a sandbox is cleaned: one of the words above.
	Cleanup      cli.Choice
	MinIsolation cli.Choice
	// Allow are hosts that programs may reach, AllowPrivate those that may be on
	// private networks as well.
	Allow, AllowPrivate []string

	// HTTP is the address to serve at; empty for standard input and output.
	HTTP        string
	TokenFile   string
	Origins     []string
	MaxSessions int
	Idle        cli.Duration

	// Control lets operators see and remove the sandboxes, under ControlName if
	// that is not empty.
	Control     bool
	ControlName string

	Log, LogFormat cli.Choice

	// Backend makes the backend of the sandboxes.
	Backend func(o *Options, private []sandbox.Host, logger *slog.Logger) (sandbox.Backend, error)
}

// NewCmd makes the command; runF, if not nil, takes the place of its work.
func NewCmd(f *cli.Factory, runF func(context.Context, *Options) error) *cobra.Command {
	o := &Options{
		Factory:      f,
		Memory:       cli.Size{Bytes: microvm.DefaultMemory, Min: microvm.MinMemory, Max: microvm.MaxMemory},
		Timeout:      cli.Duration{Value: codeact.DefaultTimeout},
		MaxOutput:    cli.Size{Bytes: microvm.DefaultMaxOutput, Min: 1, Max: microvm.MaxMaxOutput},
		MaxShown:     cli.Size{Bytes: defaultMaxShown, Min: codeact.MinShown, Max: microvm.MaxMaxOutput},
		Cleanup:      cli.Choice{Value: cleanupSession, Choices: []string{cleanupSession, cleanupReset, cleanupDispose}},
		MinIsolation: cli.Choice{Value: router.DefaultMinIsolation.String(), Choices: isolations()},
		Idle:         cli.Duration{Value: mcp.DefaultIdle},
		Log:          cli.Choice{Value: "warn", Choices: []string{"debug", "info", "warn", "error"}},
		LogFormat:    cli.Choice{Value: "text", Choices: []string{"text", "json"}},
		Backend:      newBackend,
	}
	cmd := &cobra.Command{
		Use:   "mcp",
		Short: "Serve sandboxes to MCP clients",
		Long: `Serve sandboxes to clients of the Model Context Protocol, over standard input
and output or, with --http, over streamable HTTP at the path ` + mcp.Path + `.

The tools are ` + codeact.Name + ` and ` + mcp.ResetName + `. Each session has a sandbox of its
own, which is gone when the session ends. Names stay from one call to the next
unless --cleanup says otherwise. A program may print up to --max-output; of more
than --max-shown the client gets the beginning and the end, since models have
little room. A message may have 8 MiB; a line that is no message of JSON-RPC is
answered with an error.

HTTP is for this machine's loopback address. Any other address needs a bearer
token from a file, and a proxy in front that encrypts. Requests of web pages are
refused unless their origin is the server's own or is named by --allow-origin.
A connection that is lost stops no program: its client can ask for the answer
again, and stops the program with notifications/cancelled.

With --control the operator console mst shows the sandboxes, whose client and
session each is for, and removes them: a program that runs is stopped, and the
client's next one gets a new sandbox and is told that its names are gone. Hosts
announce themselves to mst in a folder of this user, which
MAF_SANDBOX_TUI_RUNTIME_DIR changes for both. The control is on a loopback port:
any local user can reach it.`,
		Example: `  maf-sandbox mcp
  maf-sandbox mcp --image data --memory 1GiB --timeout 5m
  maf-sandbox mcp --control
  maf-sandbox mcp --http 127.0.0.1:8080`,
		Args: cli.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := checkNeeds(cmd.Flags()); err != nil {
				return err
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
	fl := cmd.Flags()
	cli.ImageFlag(fl, &o.Image)
	fl.Var(&o.Memory, "memory", "memory for Python objects")
	fl.Var(&o.Timeout, "timeout", "stop a program after this time")
	fl.Var(&o.MaxOutput, "max-output", "stop a program when it has written more than this")
	fl.Var(&o.MaxShown, "max-shown", "of more output than this give clients the beginning and the end; a result has it twice, as text and structured")
	cli.EngineFlag(fl, &o.Engine)
	cli.LimitsFlag(fl, &o.Limits)
	fl.Var(&o.Cleanup, "cleanup", "when a sandbox is cleaned: after the "+cleanupSession+", or after each call by "+cleanupReset+" or "+cleanupDispose)
	fl.Var(&o.MinIsolation, "min-isolation", "refuse to serve with less isolation than this: "+o.MinIsolation.Words())
	fl.StringArrayVar(&o.Allow, "allow", nil, "let programs reach this `HOST` over HTTP; can be repeated")
	fl.StringArrayVar(&o.AllowPrivate, "allow-private", nil, "the same for a `HOST` on a private or loopback address")
	fl.StringVar(&o.HTTP, "http", "", "serve over HTTP at this `ADDRESS`, host:port")
	fl.StringVar(&o.TokenFile, "token-file", "", "ask for the bearer token in this `FILE`")
	fl.StringArrayVar(&o.Origins, "allow-origin", nil, "let web pages of this `ORIGIN` make requests, such as https://agents.example; can be repeated")
	fl.IntVar(&o.MaxSessions, "max-sessions", mcp.DefaultMaxSessions, "at most this `NUMBER` of sessions at once, over HTTP")
	fl.Var(&o.Idle, "idle", "end a session that has been silent for this long, over HTTP")
	fl.BoolVar(&o.Control, "control", false, "let operators see and remove the sandboxes, with mst")
	fl.StringVar(&o.ControlName, "control-name", "", "the `NAME` of this server for operators (default mcp-PID)")
	fl.Var(&o.Log, "log", "what to log on standard error: "+o.Log.Words())
	fl.Var(&o.LogFormat, "log-format", "how to write the log: "+o.LogFormat.Words())
	return cmd
}

// defaultMaxShown keeps a result within what clients give to a model: that of Claude
// Code is 25,000 tokens, some 100 KB.
const defaultMaxShown = 32 << 10

// isolations are the words of the rungs, weakest first.
func isolations() (words []string) {
	for rung := sandbox.IsolationNone; rung <= sandbox.IsolationVM; rung++ {
		words = append(words, rung.String())
	}
	return words
}

// maxSessions bounds --max-sessions: each has a process of its own.
const maxSessions = 1024

// needs are the flags that mean something beside another one only, and what there
// is to say of them without it.
var needs = []struct {
	flags []string
	with  string
	why   string
}{
	{[]string{"control-name"}, "control", "operators do not see the server"},
	{[]string{"token-file", "allow-origin"}, "http", "standard input and output belong to whoever started the program"},
	{[]string{"max-sessions", "idle"}, "http", "on standard input and output there is one session, which lasts as long as its client"},
}

// checkNeeds refuses flags without the one that they are for, and values that are
// empty, such as those of a shell's unset variable: whoever gives them expects an
// effect.
func checkNeeds(fl *pflag.FlagSet) error {
	for _, name := range []string{"http", "token-file", "control-name"} {
		if fl.Changed(name) && !given(fl, name) {
			return cli.Usagef("the value of --%s is empty", name)
		}
	}
	for _, n := range needs {
		for _, name := range n.flags {
			if fl.Changed(name) && !given(fl, n.with) {
				return cli.Usagef("--%s is for --%s: without it %s", name, n.with, n.why)
			}
		}
	}
	return nil
}

// given says whether a flag has another value than that of its absence.
func given(fl *pflag.FlagSet, name string) bool {
	f := fl.Lookup(name)
	return f.Value.String() != f.DefValue
}

// check refuses options that make no sense.
func (o *Options) check() error {
	if len(o.ControlName) > control.MaxSourceIDBytes {
		return cli.Usagef("--control-name has %d bytes: at most %d are allowed", len(o.ControlName), control.MaxSourceIDBytes)
	}
	if !utf8.ValidString(o.ControlName) || strings.ContainsFunc(o.ControlName, func(r rune) bool { return !unicode.IsPrint(r) }) {
		return cli.Usagef("--control-name %q has characters that cannot be seen: want a name that operators can read and type", o.ControlName)
	}
	if o.HTTP == "" {
		return nil
	}
	loopback, err := mcp.ListenAddress(o.HTTP)
	switch {
	case err != nil:
		return &cli.UsageError{Err: fmt.Errorf("--http: %w", err)}
	case !loopback && o.TokenFile == "":
		return cli.Usagef("--http %s can be reached by others: give --token-file FILE, or an address of this machine alone such as 127.0.0.1:8080", o.HTTP)
	case o.MaxSessions < 1 || o.MaxSessions > maxSessions:
		return cli.Usagef("--max-sessions must be from 1 to %d", maxSessions)
	}
	for _, origin := range o.Origins {
		u, err := url.Parse(origin)
		if err != nil || u.Scheme == "" || u.Host == "" || u.Scheme+"://"+u.Host != origin {
			return cli.Usagef("--allow-origin %q is no origin: want scheme://host or scheme://host:port", origin)
		}
	}
	return nil
}

// network is what the options let programs reach: rules for all of it, and the
// hosts that may be on private addresses. What cannot be enforced is refused
// here, since a refusal at the first program would reach a model only.
func (o *Options) network() (rules []sandbox.EgressRule, private []sandbox.Host, err error) {
	open, private, err := cli.Hosts(o.Allow, o.AllowPrivate)
	if err != nil {
		return nil, nil, err
	}
	for _, h := range slices.Concat(open, private) {
		rules = append(rules, sandbox.EgressRule{Host: h})
	}
	if len(rules) > 0 {
		_, err = egress.NewPolicy(cli.Program, sandbox.Spec{Egress: sandbox.EgressAllowlist, EgressAllow: rules}, private...)
	}
	return rules, private, err
}

func run(ctx context.Context, o *Options) (err error) {
	rules, private, err := o.network()
	if err != nil {
		return err
	}
	serveHTTP := mcp.HTTP{Origins: o.Origins, MaxSessions: o.MaxSessions, Idle: o.Idle.Value}
	if o.TokenFile != "" {
		if serveHTTP.Token, err = mcp.ReadToken(o.TokenFile); err != nil {
			return fmt.Errorf("--token-file: %w", err)
		}
	}
	logger := o.logger()
	backend, err := o.Backend(o, private, logger)
	if err != nil {
		return err
	}
	// After the server, whose sessions end first.
	defer func() { err = errors.Join(err, backend.Close()) }()
	routed := backend
	var monitor *control.Monitor
	if o.Control {
		monitor = control.NewMonitor(backend)
		routed = monitor
	}
	r, err := o.router(routed, newRequests(logger, rules))
	if err != nil {
		return err
	}
	warmed := make(chan struct{})
	server, err := o.server(r, rules, factsOf(backend, warmed, logger), logger)
	if err != nil {
		return err
	}
	defer server.Close()
	if o.Control {
		operators, err := o.startControl(monitor, r, server, logger)
		if err != nil {
			return err
		}
		defer func() {
			if err := operators.Close(); err != nil {
				logger.Warn("the control has not ended in good order", "error", err)
			}
		}()
	}

	ctx, release := o.Factory.Interruptible(ctx)
	defer release()
	in := o.Factory.Streams.In
	if warm, ok := backend.(interface{ Warm(context.Context) }); ok {
		in = held{in, warmed}
		go func() { defer close(warmed); warm.Warm(ctx) }()
		defer func() { release(); <-warmed }()
	}
	if o.HTTP == "" {
		if o.Factory.Streams.InTTY {
			_, _ = fmt.Fprintf(o.Factory.Streams.Err, "%s: waiting for an MCP client on standard input; Ctrl-C ends\n", cli.Program) // a hint only
		}
		err := server.ServeStreams(ctx, in, o.Factory.Streams.Out)
		if err != nil && ctx.Err() == nil {
			return fmt.Errorf("the client's connection: %w", err)
		}
		return err
	}
	listener, err := net.Listen("tcp", o.HTTP)
	if err != nil {
		return fmt.Errorf("serve HTTP: %w", err)
	}
	_, _ = fmt.Fprintf(o.Factory.Streams.Err, "%s: serving MCP at http://%s%s\n", cli.Program, listener.Addr(), mcp.Path) // a hint only
	return server.ServeHTTP(ctx, listener, serveHTTP)
}

// router makes the router over a backend.
func (o *Options) router(backend sandbox.Backend, observer router.Observer) (*router.Router, error) {
	var isolation sandbox.Isolation
	if err := isolation.UnmarshalText([]byte(o.MinIsolation.Value)); err != nil {
		return nil, err
	}
	cleanup := sandbox.CleanupReset
	if o.Cleanup.Value == cleanupDispose {
		cleanup = sandbox.CleanupDispose
	}
	r, err := router.New(router.Config{
		Backends: []sandbox.Backend{backend}, MinIsolation: isolation, MinCleanup: cleanup, Observer: observer,
	})
	if errors.Is(err, sandbox.ErrIsolationNotPermitted) {
		return nil, o.tooWeak(backend.Isolation())
	}
	return r, err
}

// tooWeak says that the sandboxes are of less isolation than is asked for, and what
// to do about it.
func (o *Options) tooWeak(reached sandbox.Isolation) error {
	if reached == sandbox.IsolationUnset {
		return fmt.Errorf("nothing here can run a sandbox, neither KVM nor a traced process: 'maf-sandbox doctor' says what is missing: %w", sandbox.ErrIsolationNotPermitted)
	}
	what, mend := "--engine "+o.Engine.Value+" is", ""
	if o.Engine.Value == host.Auto && reached < sandbox.IsolationMicroVM {
		what, mend = "without KVM a traced process stands in for the virtual machine,", "'maf-sandbox doctor' says what KVM needs, and "
	}
	return fmt.Errorf("%s of isolation %s: %s--min-isolation %[2]s is content with less than %[4]s: %[5]w",
		what, reached, mend, o.MinIsolation.Value, sandbox.ErrIsolationNotPermitted)
}

// server makes the server over a router.
func (o *Options) server(r *router.Router, rules []sandbox.EgressRule, facts func(context.Context) sandbox.Facts, logger *slog.Logger) (*mcp.Server, error) {
	return mcp.New(mcp.Config{
		Router: r, KeepState: o.Cleanup.Value == cleanupSession, Version: version(), Facts: facts, Logger: logger,
		Tool: codeact.Config{
			Timeout: o.Timeout.Value, Allow: rules, MaxShown: int(o.MaxShown.Bytes),
			Bounds: codeact.Bounds{
				Memory: o.Memory.Bytes, MaxOutput: o.MaxOutput.Bytes, MaxCode: microvm.DefaultMaxCode,
				HTTPBody: microvm.MaxHTTPBody, HTTPTime: microvm.MaxHTTPTime,
			},
		},
	})
}

// logger writes to standard error, which clients show to people; it quotes
// what a terminal would obey.
func (o *Options) logger() *slog.Logger {
	var level slog.Level
	if level.UnmarshalText([]byte(o.Log.Value)) != nil {
		level = slog.LevelWarn // not one of the choices
	}
	options := &slog.HandlerOptions{Level: level}
	if o.LogFormat.Value == "json" {
		return slog.New(slog.NewJSONHandler(o.Factory.Streams.Err, options))
	}
	return slog.New(slog.NewTextHandler(o.Factory.Streams.Err, options))
}

func version() string {
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" {
		return info.Main.Version
	}
	return "(devel)"
}
