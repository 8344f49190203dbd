package command

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/maf-sandbox/maf-sandbox-go/control"
	"github.com/maf-sandbox/maf-sandbox-go/internal/selfupdate"
	"github.com/maf-sandbox/maf-sandbox-go/internal/streams"
)

// outcome is what a command line did.
type outcome struct {
	status      int
	out, errOut string
}

// player runs command lines in this process.
type player struct {
	directory string
	stdin     string
	terminal  bool // standard input is one
	change    func(*Factory)
}

func installed(context.Context) (selfupdate.Installation, error) {
	return selfupdate.Installation{Manager: selfupdate.VirtualEnvironment, Prefix: "<venv>"}, nil
}

// scriptedUpdate answers as the recorded index did.
func scriptedUpdate(ctx context.Context, o selfupdate.Options) (selfupdate.Report, error) {
	where, _ := installed(ctx)
	o.Progress(selfupdate.StepLookup, "look")
	switch {
	case o.Check:
		return selfupdate.Report{Status: selfupdate.StatusAvailable, Current: "0.1.0", Latest: "0.5.0", Channel: "stable", Installation: where}, nil
	case o.To == "0.1.0":
		return selfupdate.Report{Status: selfupdate.StatusCurrent, Previous: o.To, Installed: o.To, Installation: where}, nil
	case strings.Contains(o.To, " "):
		return selfupdate.Report{}, fmt.Errorf("%w %q", selfupdate.ErrVersion, o.To)
	}
	return selfupdate.Report{}, &selfupdate.RefusedError{
		Installation: where, Reason: "MST is a part of a project.", Requirement: "maf-sandbox-mst==" + o.To, Command: "uv add maf-sandbox-mst==" + o.To,
	}
}

func (p player) run(t *testing.T, args ...string) outcome {
	t.Helper()
	s, out, errOut := streams.Test(p.stdin)
	s.InTTY = p.terminal
	f := &Factory{Streams: s, Now: time.Now, Directory: p.directory, Installation: installed, SelfUpdate: scriptedUpdate}
	if p.change != nil {
		p.change(f)
	}
	status := Run(t.Context(), f, args)
	return outcome{status, out.String(), errOut.String()}
}

// scripted is a control that does as its mode says.
type scripted struct {
	records []control.Record
	mode    string
}

var errScripted = errors.New("x")

func (s *scripted) wait(ctx context.Context, mode string) error {
	if s.mode != mode {
		return nil
	}
	<-ctx.Done()
	return ctx.Err()
}

func (s *scripted) List(ctx context.Context) ([]control.Record, error) {
	if s.mode == "list_raises" {
		return nil, errScripted
	}
	return s.records, s.wait(ctx, "list_slow")
}

func (s *scripted) Get(ctx context.Context, id string) (control.Record, bool, error) {
	records, err := s.List(ctx)
	if err != nil {
		return control.Record{}, false, err
	}
	var found []control.Record
	for _, r := range records {
		if r.InstanceID == id {
			found = append(found, r)
		}
	}
	switch len(found) {
	case 0:
		return control.Record{}, false, nil
	case 1:
		return found[0], true, nil
	}
	return control.Record{}, false, control.ErrDuplicate
}

func (s *scripted) Dispose(ctx context.Context, id string, _ time.Duration) (control.DisposalResult, error) {
	if err := s.wait(ctx, "dispose_slow"); err != nil {
		return control.DisposalResult{}, err
	}
	if s.mode == "dispose_failed" {
		return control.DisposalResult{Status: control.DisposalFailed, InstanceID: id, Message: "scripted failure"}, nil
	}
	return control.DisposalResult{Status: control.Disposed, InstanceID: id, Message: "scripted disposal"}, nil
}

func (s *scripted) Purge(ctx context.Context, scope, thread string, _ time.Duration) (control.PurgeResult, error) {
	if err := s.wait(ctx, "purge_slow"); err != nil {
		return control.PurgeResult{}, err
	}
	if s.mode == "purge_partial" {
		return control.PurgeResult{Status: control.PurgePartial, Scope: scope, ThreadID: thread, Disposed: 1, Message: "scripted partial"}, nil
	}
	return control.PurgeResult{Status: control.Purged, Scope: scope, ThreadID: thread, Disposed: 2, Message: "scripted purge"}, nil
}

// record is a sandbox as the recording had it.
func record(id, source string, change func(*control.Record)) control.Record {
	now := control.At(time.Now())
	r := control.Record{
		SourceID: source, Backend: "hyperlight", Scope: "tenant-a", ThreadID: "t-1", AgentID: "analyst", CallID: "call-7",
		Kind: "python", InstanceID: id, State: control.StateReady, CreatedAt: now - 4000, LastActivityAt: now - 100.5,
		EgressTargets: []string{"a.example", "b.example"},
	}
	if change != nil {
		change(&r)
	}
	return r
}

// serve starts a host and gives its endpoint and its end.
func serve(t *testing.T, directory, source string, c control.Control) (endpoint string, stop func()) {
	t.Helper()
	server, err := control.NewServer(control.ServerConfig{Control: c, SourceID: source, Directory: directory})
	if err != nil {
		t.Fatal(err)
	}
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = server.Close() }) // most often closed already
	manifest, err := server.Manifest()
	if err != nil {
		t.Fatal(err)
	}
	return manifest.Endpoint, func() {
		if err := server.Close(); err != nil {
			t.Error(err)
		}
	}
}

// failing is a writer that always fails.
type failing struct{ err error }

func (f failing) Write([]byte) (int, error) { return 0, f.err }
