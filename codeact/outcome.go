package codeact

import (
	"fmt"
	"strings"
	"time"

	"github.com/maf-sandbox/maf-sandbox-go/sandbox"
)

// Failure is why a program did not come to an end of its own. Empty means that
// it did.
type Failure string

// The failures.
const (
	// FailureNoThread: the caller is in no conversation. Nothing was started.
	FailureNoThread Failure = "no_thread"
	// FailureTooLarge: the program is longer than MaxCode. Nothing was started.
	FailureTooLarge Failure = "too_large"
	// FailureUnavailable: no sandbox was to be had, or the policy refuses it.
	FailureUnavailable Failure = "unavailable"
	// FailureQueued: time ran out before the program's turn.
	FailureQueued Failure = "queued"
	// FailureRefused: the backend does not take this program. It was not started.
	FailureRefused Failure = "refused"
	// FailureTimeout: the program reached its time limit.
	FailureTimeout Failure = "timeout"
	// FailureOutput: it printed more than it may.
	FailureOutput Failure = "output_limit"
	// FailureMemory: it reached the memory ceiling.
	FailureMemory Failure = "memory"
	// FailureDeadlock: each of its threads waits for another.
	FailureDeadlock Failure = "deadlock"
	// FailureCrash: it brought its interpreter down.
	FailureCrash Failure = "crash"
	// FailureDisposed: its sandbox was disposed of while it ran, such as by an
	// operator.
	FailureDisposed Failure = "disposed"
	// FailureOther: everything else; the host's log has the details.
	FailureOther Failure = "failed"
)

// Outcome is what came of a call.
type Outcome struct {
	// Stdout and Stderr are what the program printed, whole; beside a failure,
	// until then.
	Stdout, Stderr string
	// ExitCode is what a process running the program would report. It means
	// nothing beside a failure.
	ExitCode int
	// Failure is why the program did not come to an end of its own.
	Failure Failure
	// Lost says that what earlier calls left is gone, though the tool keeps it.
	Lost bool
	// Duration is the time from the call, all waiting included.
	Duration time.Duration

	// message is the failure for the model, after "Error: ".
	message  string
	shape    Shape
	maxShown int
	// had says that there was a sandbox for it.
	had bool
}

// OK says whether the program ended by itself and with success.
func (o Outcome) OK() bool { return o.Failure == "" && o.ExitCode == 0 }

// Message is the failure in words; empty without one.
func (o Outcome) Message() string { return o.message }

// Texts are what the model reads, in the tool's shape: one text or several.
func (o Outcome) Texts() []string {
	if o.shape == ShapePlain {
		return []string{o.Report()}
	}
	if o.Failure != "" {
		texts := []string{"The workload did not reach a definitive result."}
		switch o.Failure {
		case FailureUnavailable:
			texts = append(texts, "Error: the sandbox could not be acquired.")
		case FailureTooLarge:
			texts = append(texts, "Error: the program could not be staged.")
		}
		return append(texts, o.Report())
	}
	result := "Result: ok"
	if o.ExitCode != 0 {
		result = "Result: failed"
	}
	return []string{"The workload ran to a definitive result.", result, o.Report()}
}

// nothing is what the model is told of a program that printed nothing: without
// it models take an empty answer for a broken tool.
const nothing = "The program ran and printed nothing. Only what you print is read back as text — end the program with print(...) of what you need to see."

// lost is what a tool that keeps state says when it could not.
const lost = "The sandbox was lost: names, imports and files of earlier calls are gone."

// Report is the plain report: sections joined by blank lines.
func (o Outcome) Report() string {
	var sections []string
	add := func(title, text string) {
		if text = strings.TrimRight(text, "\n"); text != "" {
			sections = append(sections, title+":\n"+text)
		}
	}
	if o.Failure != "" {
		sections = append(sections, "Error: "+o.message)
	}
	stdout, stderr, _ := o.Shown()
	add("stdout", stdout)
	add("stderr", stderr)
	if o.Failure == "" && o.ExitCode != 0 {
		sections = append(sections, fmt.Sprintf("exit code: %d", o.ExitCode))
	}
	if o.Lost {
		sections = append(sections, lost)
	}
	if len(sections) == 0 {
		return nothing
	}
	return strings.Join(sections, "\n\n")
}

// take takes over what a program printed. What is left of the sandbox is told
// apart from that.
func (o *Outcome) take(r sandbox.ExecResult) {
	o.Stdout, o.Stderr, o.ExitCode = r.StdoutText(), r.StderrText(), r.ExitCode
}

func (o *Outcome) fail(f Failure, message string) { o.Failure, o.message = f, message }
