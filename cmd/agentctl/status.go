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
)

// mostShown is how many deployments of an environment `status` shows.
const mostShown = 20

// statusOptions are the flags of `status`.
type statusOptions struct {
	restOptions
	output

	wanted string
	now    func() time.Time
	api    *rest
}

func newStatusCommand() *cobra.Command {
	o := &statusOptions{now: time.Now}
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show what is live in each environment, or the deployments of one",
		Long: `Show what is live in each environment, and the newest deployment where it is another
one. With --environment: the newest deployments of that one, 20 at most, and of those that
have not ended what keeps them.`,
		Example: `  agentctl status
  agentctl status --environment production`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			if o.api, err = o.client(); err != nil {
				return err
			}
			if o.wanted != "" {
				return o.one(cmd.Context(), cmd.OutOrStdout())
			}
			return o.all(cmd.Context(), cmd.OutOrStdout())
		},
	}
	flags := cmd.Flags()
	o.restOptions.bind(flags)
	o.output.bind(flags)
	flags.StringVar(&o.wanted, "environment", "", "slug or id of an environment")
	return cmd
}

// environmentStatus is an environment with what is live in it and what came last.
type environmentStatus struct {
	Environment string      `json:"environment"`
	ID          string      `json:"id"`
	IsDefault   bool        `json:"is_default"`
	Live        *deployment `json:"live"`
	Newest      *deployment `json:"newest"`
}

func (o *statusOptions) all(ctx context.Context, out io.Writer) error {
	environments, err := o.api.environments(ctx)
	if err != nil {
		return err
	}
	shown := make([]environmentStatus, 0, len(environments))
	for _, e := range environments {
		list, err := o.api.deployments(ctx, e)
		if err != nil {
			return err
		}
		s := environmentStatus{Environment: e.Slug, ID: e.ID, IsDefault: e.IsDefault}
		for i := range list {
			if list[i].IsLive {
				s.Live = &list[i]
			}
		}
		if len(list) > 0 {
			s.Newest = &list[0]
		}
		shown = append(shown, s)
	}
	if o.output != outputText {
		return o.write(out, shown)
	}
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "ENVIRONMENT\tLIVE\tSINCE\tCOMMIT\tNEWEST\tID")
	for _, s := range shown {
		fmt.Fprintln(table, strings.Join(o.row(s), "\t"))
	}
	return table.Flush()
}

// row is a line of the table.
func (o *statusOptions) row(s environmentStatus) []string {
	name := s.Environment
	if s.IsDefault {
		name += " (default)"
	}
	row := []string{name, "-", "-", "-", "-", s.ID}
	if s.Live != nil {
		row[1], row[2], row[3] = s.Live.ID, age(o.now(), s.Live.ActivatedAt), s.Live.version()
	}
	if s.Newest != nil && !s.Newest.IsLive {
		row[4] = strings.Join([]string{s.Newest.Status, s.Newest.short(), s.Newest.ID}, " ")
	}
	return row
}

func (o *statusOptions) one(ctx context.Context, out io.Writer) error {
	e, err := o.api.environment(ctx, o.wanted)
	if err != nil {
		return err
	}
	list, err := o.api.deployments(ctx, e)
	if err != nil {
		return err
	}
	list = list[:min(len(list), mostShown)]
	if o.output != outputText {
		return o.write(out, list)
	}
	if list, err = o.whole(ctx, list); err != nil {
		return err
	}
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "DEPLOYMENT\tAGE\tCOMMIT\tSTATUS")
	for _, d := range list {
		// What is coloured stands last: a table counts the colours' characters.
		status := paint(out, d.state()) + d.detail()
		fmt.Fprintln(table, strings.Join([]string{d.ID, age(o.now(), &d.CreatedAt), d.version(), status}, "\t"))
	}
	return table.Flush()
}

// whole reads those of a list that are open, of which a list does not say what keeps them.
func (o *statusOptions) whole(ctx context.Context, list []deployment) (_ []deployment, err error) {
	for i := range list {
		if list[i].open() {
			if list[i], err = o.api.deployment(ctx, list[i].ID); err != nil {
				return nil, err
			}
		}
	}
	return list, nil
}
