// Package fleet is the set of hosts that an operator's console works with: those
// that announced themselves, the one that the operator named, or a
// demonstration. Every question looks for hosts anew, for hosts come and go.
package fleet

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/maf-sandbox/maf-sandbox-go/control"
)

// DemoSource is the name of the demonstration's host.
const DemoSource = "mst-demo"

// DefaultSource is the label of a host that the operator named by its endpoint.
const DefaultSource = "manual"

// ErrNoSource says that the label of a named host is empty.
var ErrNoSource = errors.New("source_id must be a nonempty string; give --source a label")

// Config says where hosts come from. Its zero value is the user's discovery
// folder.
type Config struct {
	// Demo has a host of its own serve three records in memory, for as long as
	// the fleet is open. It excludes Endpoint.
	Demo bool
	// Endpoint is the one host to ask, instead of those that announced
	// themselves.
	Endpoint string
	// Source is the label of the host at Endpoint.
	Source string
	// Directory is the discovery folder; empty for the user's own.
	Directory string
}

// Fleet asks hosts. Its methods may be called at the same time.
type Fleet struct {
	directory string
	named     *control.Client
	demo      *control.Server
	temporary string
}

// Open checks the configuration and, for a demonstration, starts its host. It
// asks no host: one that is not there is found out by the first question.
func Open(config Config) (*Fleet, error) {
	f := &Fleet{directory: config.Directory}
	switch {
	case config.Demo:
		return f, f.startDemo()
	case config.Endpoint != "":
		if config.Source == "" {
			return nil, ErrNoSource
		}
		client, err := control.NewClient(control.Manifest{
			SourceID: config.Source, Endpoint: strings.TrimSuffix(config.Endpoint, "/"),
		})
		if err != nil {
			return nil, err
		}
		f.named = client
	}
	return f, nil
}

// startDemo makes a real host in a folder of its own, so that a demonstration
// goes the same way as everything else.
func (f *Fleet) startDemo() error {
	temporary, err := os.MkdirTemp("", "mst-demo-")
	if err != nil {
		return fmt.Errorf("start the demonstration: %w", err)
	}
	f.temporary, f.directory = temporary, filepath.Join(temporary, "hosts")
	f.demo, err = control.NewServer(control.ServerConfig{
		Control:   control.NewMemory(control.DemoRecords(DemoSource, time.Now())...),
		SourceID:  DemoSource,
		Directory: f.directory,
	})
	if err == nil {
		err = f.demo.Start()
	}
	if err != nil {
		return fmt.Errorf("start the demonstration: %w", errors.Join(err, f.Close()))
	}
	return nil
}

// Close ends the demonstration, if there is one.
func (f *Fleet) Close() error {
	var problems []error
	if f.demo != nil {
		problems = append(problems, f.demo.Close())
	}
	if f.temporary != "" {
		problems = append(problems, os.RemoveAll(f.temporary))
	}
	return errors.Join(problems...)
}

// Hosts looks for hosts and asks each who it is. Those that do not answer well
// are among them, with the reason. A missing discovery folder has none; one
// that is not this user's alone is an error that matches
// control.ErrUnsafeDirectory.
func (f *Fleet) Hosts(ctx context.Context) ([]control.DiscoveredHost, error) {
	if f.named != nil {
		return []control.DiscoveredHost{{Client: f.named, Err: f.named.Health(ctx)}}, ctx.Err()
	}
	hosts, err := control.Discover(ctx, f.directory)
	if err != nil {
		return nil, err
	}
	return hosts, ctx.Err()
}

// Announced are the hosts that there are now, without asking them.
func (f *Fleet) Announced() ([]control.Manifest, error) {
	if f.named != nil {
		return []control.Manifest{f.named.Manifest()}, nil
	}
	return control.Manifests(f.directory)
}

// Ask asks one host who it is and for its sandboxes. The error is a
// [*control.HostError].
func (f *Fleet) Ask(ctx context.Context, manifest control.Manifest) ([]control.Record, error) {
	client, err := control.NewClient(manifest)
	if err != nil {
		return nil, &control.HostError{SourceID: manifest.SourceID, Message: err.Error(), Cause: err}
	}
	if err := client.Health(ctx); err != nil {
		return nil, err
	}
	return client.List(ctx)
}

// Inventory is what all hosts together have.
type Inventory struct {
	// Records are sorted by source, key and kind.
	Records []control.Record
	// Failures are the hosts whose sandboxes are not among the records.
	Failures []*control.HostError
}

// Complete says whether no host is missing.
func (i Inventory) Complete() bool { return len(i.Failures) == 0 }

// Inventory asks all hosts for their sandboxes, at once. Hosts that fail make it
// incomplete; an error means that nothing could be asked.
func (f *Fleet) Inventory(ctx context.Context) (Inventory, error) {
	hosts, err := f.unasked()
	if err != nil {
		return Inventory{}, err
	}
	records, err := together(hosts).List(ctx)
	failures, err := failed(hosts, err)
	if err != nil {
		return Inventory{}, err
	}
	return Inventory{records, failures}, nil
}

// Found is the answer to where a sandbox is.
type Found struct {
	// Hosts counts the hosts that were found, well or not.
	Hosts int
	// Record is the sandbox, nil when no host that answered has it.
	Record *control.Record
	// Failures are the hosts that did not answer well.
	Failures []*control.HostError
	// Certain: hosts answered, and those that failed are gone (control.ErrGone)
	// and so have no sandboxes.
	Certain bool

	answered []*control.Client
}

// Locate asks all hosts for one sandbox. An id that several hosts report is an
// error that matches control.ErrDuplicate: it names none.
func (f *Fleet) Locate(ctx context.Context, instanceID string) (Found, error) {
	hosts, err := f.unasked()
	if err != nil {
		return Found{}, err
	}
	record, there, err := together(hosts).Get(ctx, instanceID)
	found := Found{Hosts: len(hosts)}
	if found.Failures, err = failed(hosts, err); err != nil {
		return Found{}, err
	}
	found.Certain = len(found.Failures) < len(hosts) && !slices.ContainsFunc(found.Failures, func(failure *control.HostError) bool { return !errors.Is(failure, control.ErrGone) })
	if there {
		found.Record = &record
	}
	// Names tell nothing: a host may have that of another.
	for _, h := range hosts {
		if h.hasAnswered() {
			found.answered = append(found.answered, h.Client)
		}
	}
	return found, nil
}

// Beginning asks the hosts that answered where a sandbox is for the sandboxes
// whose ids begin with a text. Those that did not are not waited for again. The
// failures are the hosts that do not say which sandboxes they have, though they
// answered before: nobody knows then how many ids begin so.
func (f *Fleet) Beginning(ctx context.Context, found Found, text string) ([]control.Record, []*control.HostError, error) {
	members := make([]control.Member, len(found.answered))
	for i, client := range found.answered {
		members[i] = control.Member{SourceID: client.Manifest().SourceID, Control: client}
	}
	records, err := control.NewComposite(members, nil).List(ctx)
	failures, err := failed(nil, err)
	if err != nil {
		return nil, nil, err
	}
	return slices.DeleteFunc(records, func(r control.Record) bool { return !strings.HasPrefix(r.InstanceID, text) }), failures, nil
}

// hostError gives the failure of a host the host's name.
func hostError(host control.DiscoveredHost, err error) *control.HostError {
	var failure *control.HostError
	if errors.As(err, &failure) {
		return failure
	}
	return &control.HostError{SourceID: host.Client.Manifest().SourceID, Message: err.Error(), Cause: err}
}

// Dispose disposes of exactly the sandbox with the id, if every host answers
// and exactly one has it.
func (f *Fleet) Dispose(ctx context.Context, instanceID string, timeout time.Duration) (control.DisposalResult, error) {
	hosts, err := f.Hosts(ctx)
	if err != nil {
		return control.DisposalResult{}, err
	}
	return control.Unite(hosts).Dispose(ctx, instanceID, timeout)
}

// Purge disposes of a conversation's sandboxes on every host. The failures are
// the hosts that were not there to be asked.
func (f *Fleet) Purge(ctx context.Context, scope, thread string, timeout time.Duration) (control.PurgeResult, []*control.HostError, error) {
	hosts, err := f.Hosts(ctx)
	if err != nil {
		return control.PurgeResult{}, nil, err
	}
	var failures []*control.HostError
	for _, host := range hosts {
		if host.Err != nil {
			failures = append(failures, hostError(host, host.Err))
		}
	}
	result, err := control.Unite(hosts).Purge(ctx, scope, thread, timeout)
	return result, failures, err
}
