// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
)

// connectorsOptions are the flags of `connectors`.
type connectorsOptions struct {
	restOptions
	output

	environment string

	api *rest
}

func newConnectorsCommand() *cobra.Command {
	o := &connectorsOptions{}
	cmd := &cobra.Command{
		Use:   "connectors",
		Short: "List connectors, with the last and the next tick of cron connectors",
		Long: `List connectors of a project: their environment, what they are, whether they work,
and of cron connectors the last and the next tick, in UTC.`,
		Example: `  agentctl connectors
  agentctl connectors --environment production -o json`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			if o.api, err = o.client(); err != nil {
				return err
			}
			return o.run(cmd.Context(), cmd.OutOrStdout())
		},
	}
	flags := cmd.Flags()
	o.restOptions.bind(flags)
	o.output.bind(flags)
	flags.StringVar(&o.environment, "environment", "", "slug or id of an environment; without it all that the key may see")
	cmd.AddCommand(newConnectorsTestCommand(), newConnectorsRotateCommand())
	return cmd
}

// listedConnector is what is shown of a connector.
type listedConnector struct {
	ID             string     `json:"id"`
	Name           string     `json:"name"`
	Type           string     `json:"type"`
	Mode           string     `json:"mode"`
	Enabled        bool       `json:"enabled"`
	Retired        bool       `json:"retired"`
	InCode         bool       `json:"defined_in_code"`
	DisabledReason string     `json:"disabled_reason"`
	WebhookURL     string     `json:"webhook_url"`
	NextTickAt     *time.Time `json:"next_tick_at"`
	LastTickAt     *time.Time `json:"last_tick_at"`

	// environment is the slug of its environment.
	environment string
	// shown is all that the REST API says of it.
	shown json.RawMessage
}

// UnmarshalJSON keeps the text beside what is read of it.
func (c *listedConnector) UnmarshalJSON(text []byte) error {
	type plain listedConnector
	if err := json.Unmarshal(text, (*plain)(c)); err != nil {
		return err
	}
	c.shown = slices.Clone(text)
	return nil
}

// MarshalJSON is what the REST API says.
func (c listedConnector) MarshalJSON() ([]byte, error) { return c.shown, nil }

// works says whether it does, or why not.
func (c listedConnector) works() string {
	switch {
	case c.Retired:
		return "retired"
	case c.DisabledReason != "":
		return printable(c.DisabledReason)
	case !c.Enabled:
		return "no"
	}
	return "yes"
}

func (o *connectorsOptions) run(ctx context.Context, out io.Writer) error {
	all, _, err := o.api.connectorsWithin(ctx, o.environment)
	if err != nil {
		return err
	}
	if o.output != outputText {
		return o.write(out, all)
	}
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "ENVIRONMENT\tNAME\tTYPE\tMODE\tENABLED\tLAST TICK\tNEXT TICK\tID")
	for _, c := range all {
		fmt.Fprintln(table, strings.Join([]string{
			c.environment, printable(c.Name), c.Type, c.Mode, c.works(), tickTime(c.LastTickAt), tickTime(c.NextTickAt), c.ID,
		}, "\t"))
	}
	return table.Flush()
}

// tickTime is when a tick was or will be, "-" where there is none.
func tickTime(at *time.Time) string {
	if at == nil {
		return "-"
	}
	return at.UTC().Format(time.RFC3339)
}
