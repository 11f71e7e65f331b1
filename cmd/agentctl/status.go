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

// maxShown is how many deployments of an environment `status` shows.
const maxShown = 20

// statusOptions are the flags of `status`.
type statusOptions struct {
	restOptions
	output

	environment string
	now         func() time.Time
	api         *apiClient
}

func newStatusCommand() *cobra.Command {
	o := &statusOptions{now: time.Now}
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show the live deployments, or the deployments of an environment",
		Long: `Show the live deployment of each environment, and the newest one if it is another. With
--environment the command shows the newest deployments of that environment, at most 20, and
what open deployments wait for.`,
		Example: `  agentctl status
  agentctl status --environment production`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			if o.api, err = o.newClient(); err != nil {
				return err
			}
			if o.environment != "" {
				return o.printDeployments(cmd.Context(), cmd.OutOrStdout())
			}
			return o.printEnvironments(cmd.Context(), cmd.OutOrStdout())
		},
	}
	flags := cmd.Flags()
	o.restOptions.bindFlags(flags)
	o.output.bindFlags(flags)
	flags.StringVar(&o.environment, "environment", "", "slug or ID of an environment")
	return cmd
}

// environmentStatus is an environment with its live and its newest deployment.
type environmentStatus struct {
	Environment string      `json:"environment"`
	ID          string      `json:"id"`
	IsDefault   bool        `json:"is_default"`
	Live        *deployment `json:"live"`
	Newest      *deployment `json:"newest"`
}

func (o *statusOptions) printEnvironments(ctx context.Context, out io.Writer) error {
	environments, err := o.api.listEnvironments(ctx)
	if err != nil {
		return err
	}
	shown := make([]environmentStatus, 0, len(environments))
	for _, e := range environments {
		list, err := o.api.listDeployments(ctx, e)
		if err != nil {
			return err
		}
		s := environmentStatus{Environment: e.Slug, ID: e.ID, IsDefault: e.IsDefault}
		for i := range list {
			if list[i].Value.IsLive {
				s.Live = &list[i]
			}
		}
		if len(list) > 0 {
			s.Newest = &list[0]
		}
		shown = append(shown, s)
	}
	if o.output != outputText {
		return o.printValue(out, shown)
	}
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "ENVIRONMENT\tLIVE\tSINCE\tCOMMIT\tNEWEST\tID")
	for _, s := range shown {
		fmt.Fprintln(table, strings.Join(o.formatRow(s), "\t"))
	}
	return table.Flush()
}

// formatRow returns a row of the table of environments.
func (o *statusOptions) formatRow(s environmentStatus) []string {
	name := s.Environment
	if s.IsDefault {
		name += " (default)"
	}
	row := []string{name, "-", "-", "-", "-", s.ID}
	if s.Live != nil {
		row[1], row[2], row[3] = s.Live.Value.ID, formatAge(o.now(), restclient.PointerTo(s.Live.Value.ActivatedAt)), s.Live.version()
	}
	if s.Newest != nil && !s.Newest.Value.IsLive {
		row[4] = strings.Join([]string{string(s.Newest.Value.Status), s.Newest.shortVersion(), s.Newest.Value.ID}, " ")
	}
	return row
}

func (o *statusOptions) printDeployments(ctx context.Context, out io.Writer) error {
	e, err := o.api.findEnvironment(ctx, "--environment", o.environment)
	if err != nil {
		return err
	}
	list, err := o.api.listDeployments(ctx, e)
	if err != nil {
		return err
	}
	list = list[:min(len(list), maxShown)]
	if o.output != outputText {
		return o.printValue(out, list)
	}
	if list, err = o.readOpen(ctx, list); err != nil {
		return err
	}
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "DEPLOYMENT\tAGE\tCOMMIT\tSTATUS")
	for _, d := range list {
		// The colored text is last, because a table counts the characters of the colors.
		status := paintStatus(out, d.stateText()) + d.detailText()
		fmt.Fprintln(table, strings.Join([]string{d.Value.ID, formatAge(o.now(), &d.Value.CreatedAt), d.version(), status}, "\t"))
	}
	return table.Flush()
}

// readOpen reads the open deployments of a list again, because a list has no messages.
func (o *statusOptions) readOpen(ctx context.Context, list []deployment) (_ []deployment, err error) {
	for i := range list {
		if list[i].isOpen() {
			if list[i], err = o.api.readDeployment(ctx, list[i].Value.ID); err != nil {
				return nil, err
			}
		}
	}
	return list, nil
}
