// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/agentplatform/agentplatform/internal/restclient"
)

// connectorsOptions are the flags of `connectors`.
type connectorsOptions struct {
	restOptions
	output

	environment string

	api *apiClient
}

func newConnectorsCommand() *cobra.Command {
	o := &connectorsOptions{}
	cmd := &cobra.Command{
		Use:   "connectors",
		Short: "List connectors, with the last and the next tick of cron connectors",
		Long: `List the connectors of a project with their environment, type, mode and state. For cron
connectors the list has the last and the next tick, in UTC.`,
		Example: `  agentctl connectors
  agentctl connectors --environment production -o json`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			if o.api, err = o.newClient(); err != nil {
				return err
			}
			return o.listConnectors(cmd.Context(), cmd.OutOrStdout())
		},
	}
	flags := cmd.Flags()
	o.restOptions.bindFlags(flags)
	o.output.bindFlags(flags)
	flags.StringVar(&o.environment, "environment", "", "slug or ID of an environment; default: all that the key can see")
	cmd.AddCommand(newConnectorsTestCommand(), newConnectorsRotateCommand())
	return cmd
}

// connector is a connector with the slug of its environment.
type connector struct {
	restclient.Document[restclient.Connector]
	environment string
}

// enabled returns the text for whether the connector works, or why it does not.
func (c connector) enabled() string {
	switch reason := restclient.ValueOf(c.Value.DisabledReason); {
	case c.Value.Retired:
		return "retired"
	case reason != "":
		return printable(reason)
	case !c.Value.Enabled:
		return "no"
	}
	return "yes"
}

func (o *connectorsOptions) listConnectors(ctx context.Context, out io.Writer) error {
	all, _, err := o.api.connectorCandidates(ctx, o.environment)
	if err != nil {
		return err
	}
	if o.output != outputText {
		return o.printValue(out, all)
	}
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "ENVIRONMENT\tNAME\tTYPE\tMODE\tENABLED\tLAST TICK\tNEXT TICK\tID")
	for _, c := range all {
		fmt.Fprintln(table, strings.Join([]string{
			c.environment, printable(c.Value.Name), string(c.Value.Type), string(c.Value.Mode), c.enabled(),
			formatTick(restclient.PointerTo(c.Value.LastTickAt)), formatTick(restclient.PointerTo(c.Value.NextTickAt)), c.Value.ID,
		}, "\t"))
	}
	return table.Flush()
}

// formatTick formats the time of a tick, "-" for nil.
func formatTick(at *time.Time) string {
	if at == nil {
		return "-"
	}
	return at.UTC().Format(time.RFC3339)
}
