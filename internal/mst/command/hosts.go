package command

import (
	"context"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/maf-sandbox/maf-sandbox-go/control"
	"github.com/maf-sandbox/maf-sandbox-go/internal/mst/fleet"
	"github.com/maf-sandbox/maf-sandbox-go/internal/mst/view"
	"github.com/maf-sandbox/maf-sandbox-go/internal/pyjson"
)

type hostsOptions struct {
	*Factory
	connection *connection
	output     output
	noHeaders  bool
}

func newHostsCmd(f *Factory, c *connection) *cobra.Command {
	o := &hostsOptions{Factory: f, connection: c}
	cmd := &cobra.Command{
		Use:   "hosts",
		Short: "List the hosts that announced themselves, and their health",
		Long: `List the hosts that announced themselves on this machine, and whether they answer.

The exit status is 1 when one of them does not.`,
		Example: "  mst hosts\n  mst hosts --json",
		Args:    noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			how, err := o.output.format(c.json)
			if err != nil {
				return err
			}
			return f.withHosts(cmd, c, func(ctx context.Context, hosts *fleet.Fleet) error { return o.run(ctx, hosts, how) })
		},
	}
	c.add(cmd.Flags())
	o.output.add(cmd, "table", "json", "jsonl")
	cmd.Flags().BoolVar(&o.noHeaders, "no-headers", false, sayNoHeaders)
	return cmd
}

func (o *hostsOptions) run(ctx context.Context, hosts *fleet.Fleet, how format) error {
	found, err := waiting(o.Factory, sayAsking, func() ([]control.DiscoveredHost, error) { return hosts.Hosts(ctx) })
	if err != nil {
		return err
	}
	if how.isJSON() {
		err = o.writeHostsJSON(found, how)
	} else {
		err = o.Streams.WriteOut([]byte(o.table(found)))
	}
	if err != nil {
		return err
	}
	for _, host := range found {
		if host.Err != nil {
			return statusError(ExitFailed)
		}
	}
	return nil
}

func health(host control.DiscoveredHost) (status, detail string) {
	if host.Err != nil {
		return "unavailable", host.Err.Error()
	}
	return "healthy", ""
}

// named says whether the operator named the host. All others announced
// themselves, each with a process, be it 0.
func (o *hostsOptions) named() bool { return o.connection.endpoint != "" }

func (o *hostsOptions) process(m control.Manifest) string {
	if o.named() {
		return view.Process(0)
	}
	return strconv.Itoa(m.ProcessID)
}

func (o *hostsOptions) table(hosts []control.DiscoveredHost) string {
	switch {
	case len(hosts) == 0 && o.noHeaders:
		return ""
	case len(hosts) == 0:
		return "No opted-in MAF hosts.\n"
	}
	rows := make([][]string, len(hosts))
	for i, host := range hosts {
		m := host.Client.Manifest()
		status, detail := health(host)
		rows[i] = []string{view.Name(m.SourceID), status, o.process(m), view.Name(m.Endpoint), view.Sentence(detail)}
	}
	return view.Table([]string{"SOURCE", "STATUS", "PID", "ENDPOINT", "DETAIL"}, rows, !o.noHeaders, o.styleStates(1))
}

func (o *hostsOptions) writeHostsJSON(hosts []control.DiscoveredHost, how format) error {
	all := make([][]byte, len(hosts))
	for i, host := range hosts {
		m := host.Client.Manifest()
		status, detail := health(host)
		var j pyjson.Object
		j.String("source_id", m.SourceID)
		j.String("endpoint", m.Endpoint)
		if o.named() {
			j.Raw("process_id", []byte("null"))
		} else {
			j.Int("process_id", m.ProcessID)
		}
		j.Int("protocol_version", control.ProtocolVersion)
		j.String("status", status)
		j.OptionalString("error", detail)
		all[i] = j.Bytes()
	}
	return o.writeEach(how, all)
}
