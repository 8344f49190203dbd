package run

import (
	"encoding/base64"
	"errors"
	"time"
	"unicode/utf8"

	"github.com/maf-sandbox/maf-sandbox-go/internal/cli"
	"github.com/maf-sandbox/maf-sandbox-go/microvm"
	"github.com/maf-sandbox/maf-sandbox-go/sandbox"
)

// outcome is what there is to say about a run.
type outcome struct {
	result     microvm.Result
	info       microvm.Info
	generation string
}

// report is the object that --json prints; the order of its fields is the
// order of the keys.
type report struct {
	Stdout string `json:"stdout"`
	Stderr string `json:"stderr"`
	// ExitCode equals the exit status of the command.
	ExitCode   int      `json:"exit_code"`
	Error      *failure `json:"error"`
	DurationMS float64  `json:"duration_ms"`
	Engine     string   `json:"engine"`
	Isolation  string   `json:"isolation"`
	Generation string   `json:"generation"`
	// Limits is how the kernel bounds the sandbox's process.
	Limits microvm.Enforcement `json:"limits"`
	// The bytes themselves, where they are not UTF-8.
	StdoutBase64 string `json:"stdout_base64,omitempty"`
	StderrBase64 string `json:"stderr_base64,omitempty"`
}

type failure struct {
	Kind    string `json:"kind"`
	Message string `json:"message"`
	Usable  bool   `json:"usable"`
}

// echoReport has the value in addition, null where there is none.
type echoReport struct {
	report
	Value *string `json:"value"`
}

func newReport(out outcome, err error, echo bool) any {
	r := report{
		// The encoder replaces what is not UTF-8.
		Stdout:       string(out.result.Stdout),
		Stderr:       string(out.result.Stderr),
		ExitCode:     cli.ExitStatus(err),
		Error:        newFailure(err),
		DurationMS:   float64(out.result.Duration.Round(time.Microsecond)) / float64(time.Millisecond),
		Engine:       out.info.Engine,
		Isolation:    out.info.Isolation,
		Generation:   out.generation,
		Limits:       out.info.Limits,
		StdoutBase64: unlessText(out.result.Stdout),
		StderrBase64: unlessText(out.result.Stderr),
	}
	if !echo {
		return r
	}
	e := echoReport{report: r}
	if out.result.Value != "" {
		e.Value = &out.result.Value
	}
	return e
}

func newFailure(err error) *failure {
	var status *cli.StatusError
	if err == nil || errors.As(err, &status) {
		return nil
	}
	return &failure{Kind: cli.Kind(err), Message: cli.Line(err), Usable: sandbox.Usable(err)}
}

func unlessText(p []byte) string {
	if utf8.Valid(p) {
		return ""
	}
	return base64.StdEncoding.EncodeToString(p)
}
