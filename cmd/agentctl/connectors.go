// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
)

// connectorsOptions are the flags of `connectors`.
type connectorsOptions struct {
	restOptions

	environment string
	json        bool

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
  agentctl connectors --environment production --json`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			if o.api, err = o.client(); err != nil {
				return err
			}
			return o.run(cmd.Context(), cmd.OutOrStdout())
		},
	}
	flags := cmd.Flags()
	o.bind(flags)
	flags.StringVar(&o.environment, "environment", "", "id or slug of an environment; without it all that the key may see")
	flags.BoolVar(&o.json, "json", false, "write a line of JSON for each, as the REST API shows it")
	cmd.AddCommand(newConnectorsTestCommand())
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
	DisabledReason string     `json:"disabled_reason"`
	NextTickAt     *time.Time `json:"next_tick_at"`
	LastTickAt     *time.Time `json:"last_tick_at"`
}

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
	environments, err := o.api.environments(ctx)
	if o.environment != "" {
		environments = make([]environment, 1)
		environments[0], err = o.api.environment(ctx, o.environment)
	}
	if err != nil {
		return err
	}
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	if !o.json {
		fmt.Fprintln(table, "ENVIRONMENT\tNAME\tTYPE\tMODE\tENABLED\tLAST TICK\tNEXT TICK\tID")
	}
	for _, e := range environments {
		if err := o.list(ctx, e, table, out); err != nil {
			return err
		}
	}
	return table.Flush()
}

// list writes the connectors of an environment.
func (o *connectorsOptions) list(ctx context.Context, e environment, table, out io.Writer) error {
	var shown []json.RawMessage
	if err := o.api.call(ctx, http.MethodGet, "/connectors?environment_id="+url.QueryEscape(e.ID), "", nil, &shown); err != nil {
		return fmt.Errorf("listing the connectors of environment %s: %w", e.Slug, err)
	}
	for _, text := range shown {
		var c listedConnector
		if err := json.Unmarshal(text, &c); err != nil {
			return fmt.Errorf("reading a connector: %w", err)
		}
		if o.json {
			fmt.Fprintln(out, string(text))
			continue
		}
		fmt.Fprintln(table, strings.Join([]string{
			e.Slug, printable(c.Name), c.Type, c.Mode, c.works(), tickTime(c.LastTickAt), tickTime(c.NextTickAt), c.ID,
		}, "\t"))
	}
	return nil
}

// tickTime is when a tick was or will be, "-" where there is none.
func tickTime(at *time.Time) string {
	if at == nil {
		return "-"
	}
	return at.UTC().Format(time.RFC3339)
}
