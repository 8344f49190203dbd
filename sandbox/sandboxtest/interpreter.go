package sandboxtest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"
)

// Program is one run, as an [Interpreter] sees it.
type Program struct {
	// Code is the source text.
	Code string
	// Names is what programs of the sandbox have stored; it lives until a
	// reset. Only the running program may touch it.
	Names map[string]string
	// Stdout and Stderr take the output. A write fails when the output limit
	// is reached; the program should then end.
	Stdout, Stderr io.Writer
	// CallTool calls a tool of the host: arguments is a JSON object, the result
	// is JSON. The error is why there is no result, in words for the program.
	CallTool func(ctx context.Context, name string, arguments json.RawMessage) (json.RawMessage, error)
}

// Interpreter runs programs for a [Backend] in memory. It returns the exit code
// and must return when ctx ends. An error is a fault of the interpreter, not of
// the program, and costs the sandbox, unless it is an error of package sandbox
// that says otherwise.
type Interpreter func(ctx context.Context, program *Program) (exitCode int, err error)

// Interpret is the interpreter of backends that name none. A program is a list
// of lines, each a command and its arguments; texts are quoted as in Go.
// [CommandPrograms] writes such programs.
//
//	print "text"      text on standard output
//	eprint "text"     text on standard error
//	set "name" "v"    store under a name
//	get "name"        print what is stored; without it, exit 1
//	call "tool" "{}"  call a tool of the host and print the result; fails like raise
//	exit N            end with an exit code
//	raise "message"   end as by an uncaught error
//	spam N            N bytes on standard output
//	sleep "1ms"       let time pass
//	forever           never end
func Interpret(ctx context.Context, program *Program) (int, error) {
	for line := range strings.Lines(program.Code) {
		code, done, err := command(ctx, program, strings.TrimSpace(line))
		switch {
		case errors.Is(err, errCommand):
			_, _ = fmt.Fprintln(program.Stderr, err) // beyond the limit there is nowhere to say it
			return 1, nil
		case err != nil:
			return 0, err
		case done:
			return code, nil
		}
	}
	return 0, nil
}

// errCommand is a mistake in a program.
var errCommand = errors.New("bad command")

func command(ctx context.Context, program *Program, line string) (code int, done bool, err error) {
	name, rest, _ := strings.Cut(line, " ")
	if name == "" {
		return 0, false, ctx.Err()
	}
	args, err := arguments(rest)
	if err != nil {
		return 0, false, err
	}
	switch {
	case name == "print" && len(args) == 1:
		_, err = io.WriteString(program.Stdout, args[0])
	case name == "eprint" && len(args) == 1:
		_, err = io.WriteString(program.Stderr, args[0])
	case name == "set" && len(args) == 2:
		program.Names[args[0]] = args[1]
	case name == "get" && len(args) == 1:
		value, ok := program.Names[args[0]]
		if !ok {
			_, err = fmt.Fprintf(program.Stderr, "name %q is not defined\n", args[0])
			return 1, true, err
		}
		_, err = io.WriteString(program.Stdout, value)
	case name == "raise" && len(args) == 1:
		_, err = fmt.Fprintf(program.Stderr, "error: %s\n", args[0])
		return 1, true, err
	case name == "call" && len(args) == 2:
		return called(ctx, program, args[0], args[1])
	case name == "sleep" && len(args) == 1:
		err = pause(ctx, args[0])
	case name == "forever":
		<-ctx.Done()
	case name == "exit" || name == "spam":
		return numbered(program, name, rest)
	default:
		return 0, false, fmt.Errorf("%w: %.100q", errCommand, line)
	}
	if err == nil {
		err = ctx.Err()
	}
	return 0, false, err
}

func called(ctx context.Context, program *Program, tool, arguments string) (code int, done bool, err error) {
	result, err := program.CallTool(ctx, tool, json.RawMessage(arguments))
	switch {
	case ctx.Err() != nil:
		return 0, false, ctx.Err()
	case err != nil:
		_, err = fmt.Fprintf(program.Stderr, "error: %s: %v\n", tool, err)
		return 1, true, err
	}
	_, err = program.Stdout.Write(result)
	return 0, false, err
}

func numbered(program *Program, name, argument string) (code int, done bool, err error) {
	n, err := strconv.Atoi(argument)
	if err != nil || n < 0 {
		return 0, false, fmt.Errorf("%w: %s needs a number", errCommand, name)
	}
	if name == "exit" {
		return n, true, nil
	}
	chunk := bytes.Repeat([]byte{'x'}, 4096)
	for ; n > 0; n -= len(chunk) {
		if _, err := program.Stdout.Write(chunk[:min(n, len(chunk))]); err != nil {
			return 0, false, err
		}
	}
	return 0, false, nil
}

func pause(ctx context.Context, text string) error {
	d, err := time.ParseDuration(text)
	if err != nil {
		return fmt.Errorf("%w: %w", errCommand, err)
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// arguments reads texts in Go's quotes. What is not quoted is left to the
// command.
func arguments(rest string) ([]string, error) {
	var args []string
	for rest = strings.TrimSpace(rest); strings.HasPrefix(rest, `"`); rest = strings.TrimSpace(rest) {
		quoted, err := strconv.QuotedPrefix(rest)
		if err != nil {
			return nil, fmt.Errorf("%w: %w", errCommand, err)
		}
		text, err := strconv.Unquote(quoted)
		if err != nil {
			return nil, fmt.Errorf("%w: %w", errCommand, err)
		}
		args = append(args, text)
		rest = rest[len(quoted):]
	}
	return args, nil
}

// errFull is what a write beyond the output limit returns.
var errFull = errors.New("output limit reached")

// output collects both streams within one bound.
type output struct {
	stdout, stderr bytes.Buffer
	limit          int
	full           bool
}

func (o *output) write(stream *bytes.Buffer, p []byte) (int, error) {
	left := o.limit - o.stdout.Len() - o.stderr.Len()
	if len(p) > left {
		o.full = true
		n, _ := stream.Write(p[:left]) // a Buffer's Write returns no error
		return n, errFull
	}
	return stream.Write(p)
}

// stream is one of the two, as a writer.
type stream struct {
	output *output
	buffer *bytes.Buffer
}

func (s stream) Write(p []byte) (int, error) { return s.output.write(s.buffer, p) }
