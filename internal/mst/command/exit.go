package command

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/maf-sandbox/maf-sandbox-go/control"
	"github.com/maf-sandbox/maf-sandbox-go/internal/exits"
	"github.com/maf-sandbox/maf-sandbox-go/internal/mst/view"
	"github.com/maf-sandbox/maf-sandbox-go/internal/selfupdate"
	"github.com/maf-sandbox/maf-sandbox-go/internal/streams"
)

// The exit statuses. They are those of the Python program, and 128 plus a
// signal's number for what a signal ended.
const (
	// ExitFailed: a host could not be asked, or something was not done wholly.
	ExitFailed = 1
	// ExitUsage: the command line makes no sense, or a confirmation is missing.
	ExitUsage = 2
	// ExitAbsent: no host has the sandbox, and all hosts were asked.
	ExitAbsent = 3
	// ExitDeclined: the operator said no.
	ExitDeclined = 4
	// ExitPipe: nobody reads what is written.
	ExitPipe = 128 + int(syscall.SIGPIPE)
)

// exitMeanings say what each status means, for the manual page and the
// documentation.
var exitMeanings = []struct {
	status  int
	meaning string
}{
	{0, "All went well. Nothing to show is well too, if every host answered."},
	{ExitFailed, "A host could not be asked, or something was not done wholly. What is known was printed."},
	{ExitUsage, "The command line makes no sense, or a confirmation is missing."},
	{ExitAbsent, "The sandbox is not there, and every host was asked."},
	{ExitDeclined, "The operator said no."},
	{exits.Signal(os.Interrupt), "Ctrl-C. Other signals end with 128 and their number too: SIGTERM 143, SIGHUP 129."},
	{ExitPipe, "Nobody reads what is written; nothing is said."},
}

// UsageError is a command line that makes no sense.
type UsageError = exits.UsageError

func usagef(format string, args ...any) error { return exits.Usagef(format, args...) }

// statusError ends the program with a status; all there is to say was said.
type statusError int

func (e statusError) Error() string { return fmt.Sprintf("exit status %d", int(e)) }

// absentError says, in a sentence of the protocol, that a sandbox was not found,
// or not for certain.
type absentError struct {
	sentence string
	status   int
}

func (e *absentError) Error() string { return e.sentence }

// SignalError says which signal ended a command.
type SignalError struct{ Signal os.Signal }

// Error names the signal.
func (e *SignalError) Error() string { return fmt.Sprintf("ended by signal: %v", e.Signal) }

var errAbsentHosts = errors.New("nothing was disposed of: first every host must answer, for another one may have this id too")

var errUnconfirmed = errors.New("confirmation required; pass --yes")

// statuses is the one table from error class to exit status.
var statuses = exits.Table{
	{Match: exits.Is[statusError], Status: func(err error) int { return int(exits.As[statusError](err)) }, Silent: true},
	{Match: exits.Is[*UsageError], Status: exits.Fixed(ExitUsage)},
	{Match: exits.Is[*ambiguousError], Status: exits.Fixed(ExitUsage)},
	{Match: exits.Same(errUnconfirmed), Status: exits.Fixed(ExitUsage)},
	{Match: exits.Is[*absentError], Status: func(err error) int { return exits.As[*absentError](err).status }},
	{Match: exits.Same(streams.ErrPipe), Status: exits.Fixed(ExitPipe), Silent: true},
	{Match: exits.Is[*SignalError], Status: func(err error) int { return exits.Signal(exits.As[*SignalError](err).Signal) }, Silent: true},
	{Match: exits.Any, Status: exits.Fixed(ExitFailed)},
}

// ExitStatus gives the exit status for what a command returned.
func ExitStatus(err error) int {
	status, _ := statuses.Classify(err)
	return status
}

// Message gives the lines to show for err, empty if there is nothing to say.
func Message(err error) string {
	if _, silent := statuses.Classify(err); silent {
		return ""
	}
	return Program + ": " + view.Sentence(err.Error()) + "\n" + hint(err)
}

// hint are further lines that say what to do, where that is not plain.
func hint(err error) string {
	if exits.Is[*ambiguousError](err) {
		return exits.As[*ambiguousError](err).list()
	}
	if errors.Is(err, control.ErrUnsafeDirectory) {
		return "Nobody but you may have access to this folder, and a link is not followed: " + mendFolder + "; MAF_SANDBOX_TUI_RUNTIME_DIR names another one.\n"
	}
	if errors.Is(err, selfupdate.ErrRefused) || errors.Is(err, selfupdate.ErrNoRelease) {
		return "As long as no release is published, 'go build ./cmd/mst' in a checkout makes a newer mst.\n"
	}
	return ""
}

// withSignals runs work under a context that the signals that ask a program to
// stop end. If one came, its error is a [*SignalError].
func withSignals(ctx context.Context, work func(context.Context) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	signals := make(chan os.Signal, 1)
	for _, s := range []os.Signal{os.Interrupt, syscall.SIGTERM, syscall.SIGHUP} {
		// Who started the program with one ignored, as nohup does, meant it.
		if !signal.Ignored(s) {
			signal.Notify(signals, s)
		}
	}
	defer signal.Stop(signals)
	watched, worked := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(watched)
		select {
		case s := <-signals:
			cancel(&SignalError{s})
			// The next one is not waited for: it ends the process. It may be the
			// same one, though: timeout(1) tells the process and then its group.
			select {
			case <-time.After(exits.Echo):
			case <-worked:
			}
			signal.Stop(signals)
		case <-ctx.Done():
		}
	}()
	err := work(ctx)
	close(worked)
	ended := context.Cause(ctx)
	cancel(nil)
	<-watched
	if exits.Is[*SignalError](ended) {
		return ended
	}
	return err
}
