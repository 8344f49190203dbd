package codeact_test

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"testing"

	"github.com/maf-sandbox/maf-sandbox-go/codeact"
	"github.com/maf-sandbox/maf-sandbox-go/router"
	"github.com/maf-sandbox/maf-sandbox-go/sandbox"
	"github.com/maf-sandbox/maf-sandbox-go/sandbox/sandboxtest"
)

// The model cannot mend it and hears nothing of the host's policy; the host does.
func TestTheHostHearsOfTwoToolsThatCannotShareAConversation(t *testing.T) {
	r, err := router.New(router.Config{
		Backends: []sandbox.Backend{sandboxtest.New(sandboxtest.Config{Isolation: sandbox.IsolationMicroVM})}, MinCleanup: sandbox.CleanupReset,
	})
	if err != nil {
		t.Fatal(err)
	}
	var log bytes.Buffer
	var last codeact.Outcome
	for _, instructions := range []string{"One place.", "Another place."} {
		tool, err := codeact.NewTool(r, codeact.Config{
			AgentID: "a", Caller: func(context.Context) codeact.Caller { return codeact.Caller{Scope: "s", ThreadID: "t"} },
			Instructions: instructions, Logger: slog.New(slog.NewTextHandler(&log, nil)),
		})
		if err != nil {
			t.Fatal(err)
		}
		if last, err = tool.Execute(t.Context(), `print "x"`); err != nil {
			t.Fatal(err)
		}
	}
	if last.Failure != codeact.FailureUnavailable || strings.Contains(last.Message(), "contract") {
		t.Errorf("the model hears of %s: %s", last.Failure, last.Message())
	}
	for _, want := range []string{"level=WARN", "failure=unavailable", "error_type=configuration_changed", "execution_contract"} {
		if !strings.Contains(log.String(), want) {
			t.Errorf("the host hears %s, without %q", &log, want)
		}
	}
}
