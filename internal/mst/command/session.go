package command

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/maf-sandbox/maf-sandbox-go/control"
	"github.com/maf-sandbox/maf-sandbox-go/internal/mst/fleet"
	"github.com/maf-sandbox/maf-sandbox-go/internal/mst/view"
	"github.com/maf-sandbox/maf-sandbox-go/internal/pyjson"
)

// completionTime bounds what a shell waits for ids.
const completionTime = 2 * time.Second

// withHosts opens the fleet that the flags name for as long as work takes, and
// until a signal ends it.
func (f *Factory) withHosts(cmd *cobra.Command, c *connection, work func(context.Context, *fleet.Fleet) error) error {
	if err := c.check(); err != nil {
		return err
	}
	return withSignals(cmd.Context(), func(ctx context.Context) error {
		hosts, err := f.open(c)
		if err != nil {
			return err
		}
		return errors.Join(work(ctx, hosts), hosts.Close())
	})
}

// waiting does work of hosts. Where a person looks on, a line says what is going
// on if it takes long: a host that does not answer is waited for.
func waiting[T any](f *Factory, what string, work func() (T, error)) (T, error) {
	progress := f.Streams.Progress()
	defer progress.Done()
	progress.Say(what)
	return work()
}

// sayAsking is what is going on during most questions.
const sayAsking = "waiting for the answers of all hosts"

func (f *Factory) open(c *connection) (*fleet.Fleet, error) {
	return fleet.Open(fleet.Config{Demo: c.demo, Endpoint: c.endpoint, Source: c.source, Directory: f.Directory})
}

func (c *connection) check() error {
	if c.demo && c.endpoint != "" {
		return usagef("--demo and --endpoint are mutually exclusive")
	}
	return nil
}

// warn writes one line for each failure.
func (f *Factory) warn(failures []*control.HostError) {
	for _, failure := range failures {
		f.warnf("%s: %s", view.Name(failure.SourceID), failure.Message)
	}
}

func (f *Factory) warnf(format string, args ...any) {
	// If this fails there is nowhere left to say so.
	_, _ = fmt.Fprintf(f.Streams.Err, "%s: warning: %s\n", Program, view.Sentence(fmt.Sprintf(format, args...)))
}

// describe is a failure with its host's name.
func describe(failure *control.HostError) string { return failure.SourceID + ": " + failure.Message }

// incomplete is the error of an answer that was given without some hosts.
func incomplete(failures []*control.HostError) error {
	if len(failures) > 0 {
		return statusError(ExitFailed)
	}
	return nil
}

// The sentences for a sandbox that is not there. The protocol's own begins with
// "The"; those of the command line do not.
const (
	sayAbsent      = "Sandbox is already gone or its generation changed."
	sayUnavailable = "Sandbox was not found, but one or more hosts were unavailable."
)

// locate finds one sandbox for show and delete, by its id or, if no sandbox has
// that, by the beginning of its id. An absence is said and returned as an error;
// hosts that fail are warned about.
func (f *Factory) locate(ctx context.Context, hosts *fleet.Fleet, instanceID string, use use, how format) (fleet.Found, error) {
	found, err := waiting(f, sayAsking, func() (fleet.Found, error) { return hosts.Locate(ctx, instanceID) })
	if err != nil {
		return found, err
	}
	unsure := false
	switch {
	case found.Record == nil:
		var whole string
		if whole, unsure, err = f.expand(ctx, hosts, found, instanceID, use); whole != "" {
			return f.locate(ctx, hosts, whole, wholeOnly, how)
		}
	case use == agreed:
		err = f.sayIfAlsoBeginning(ctx, hosts, found)
	}
	if err != nil {
		return found, err
	}
	f.warn(found.Failures)
	if found.Record != nil {
		return found, nil
	}
	if found.Hosts == 0 {
		f.warnf("no opted-in MAF hosts were discovered")
	}
	word, absent := "not_found", &absentError{sayAbsent, ExitAbsent}
	if found.Hosts == 0 || !found.Certain || unsure {
		word, absent = "unavailable", &absentError{sayUnavailable, ExitFailed}
	}
	if !how.isJSON() {
		return found, absent
	}
	var o pyjson.Object
	o.String("status", word)
	o.String("instance_id", instanceID)
	o.String("message", absent.sentence)
	if err := f.writeJSON(how, o.Bytes()); err != nil {
		return found, err
	}
	return found, statusError(absent.status)
}

// completeProperty has shells complete a property of the sandboxes that there
// are and that the other flags select.
func (f *Factory) completeProperty(c *connection, property string) cobra.CompletionFunc {
	return func(cmd *cobra.Command, _ []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
		column, err := view.ColumnNamed(property)
		if err != nil {
			return nil, cobra.ShellCompDirectiveError
		}
		records, directive := f.completable(cmd, c)
		others := view.Selection{Exact: make(map[string]string)}
		for _, e := range exactFlags {
			if flag := cmd.Flags().Lookup(e.flag); flag != nil && flag.Changed && e.column != property {
				others.Exact[e.column] = flag.Value.String()
			}
		}
		var values []cobra.Completion
		for _, r := range records {
			if !others.Keeps(&r, f.Now()) {
				continue
			}
			value, shown := column.Exact(&r, f.Now())
			if value != "" && shown && !slices.Contains(values, value) {
				values = append(values, value)
			}
		}
		return values, directive
	}
}

// completeIDs has shells complete the ids of sandboxes.
func (f *Factory) completeIDs(c *connection) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		records, directive := f.completable(cmd, c)
		var ids []cobra.Completion
		for _, r := range records {
			// What would have to be quoted is not offered.
			if view.IsWord(r.InstanceID) {
				ids = append(ids, cobra.CompletionWithDesc(r.InstanceID, view.Name(r.LogicalName())))
			}
		}
		return ids, directive
	}
}

// completable are the sandboxes that there are, as far as they can be had
// while a person waits.
func (f *Factory) completable(cmd *cobra.Command, c *connection) ([]control.Record, cobra.ShellCompDirective) {
	if c.check() != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	hosts, err := f.open(c)
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	defer func() { _ = hosts.Close() }()
	ctx, cancel := context.WithTimeout(cmd.Context(), completionTime)
	defer cancel()
	inventory, err := hosts.Inventory(ctx)
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	return inventory.Records, cobra.ShellCompDirectiveNoFileComp
}

// add gives a command the flags that say which hosts to ask.
func (c *connection) add(flags *pflag.FlagSet) {
	c.hosts(flags)
	c.output(flags)
}
