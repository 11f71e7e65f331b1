// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
)

func newPromoteCommand() *cobra.Command {
	o := &deployOptions{}
	var from string
	cmd := o.command(&cobra.Command{
		Use:   "promote --from ENVIRONMENT --to ENVIRONMENT",
		Short: "Deploy the commit that is live in one environment to another one, and follow it",
		Long: `Deploy the commit that is live in one environment to another one, as deploy --commit does: it
is built there, with the variables and the tests of that environment. Which commit that is,
and what is live there now, is said first. Nothing is done where the commit is live there.

It ends with 2 when the deployment failed or was cancelled, with 1 when there was none.`,
		Example: "  agentctl promote --from staging --to production",
		Args:    cobra.NoArgs,
	}, func(ctx context.Context, _ []string) error { return o.promote(ctx, from) })
	flags := cmd.Flags()
	flags.StringVar(&from, "from", "", "slug or id of the environment whose live commit is deployed")
	flags.StringVar(&o.wanted, "to", "", "slug or id of the environment that it is deployed to")
	flags.BoolVar(&o.detach, "detach", false, "print the id of the deployment and do not wait for it")
	return cmd
}

func (o *deployOptions) promote(ctx context.Context, from string) error {
	if from == "" || o.wanted == "" {
		return errors.New("--from and --to: both must be an environment, as `agentctl status` shows them")
	}
	source, err := o.api.namedEnvironment(ctx, "--from", from)
	if err != nil {
		return err
	}
	target, err := o.api.namedEnvironment(ctx, "--to", o.wanted)
	if err != nil {
		return err
	}
	if source.ID == target.ID {
		return fmt.Errorf("--to: %s is the environment of --from; `agentctl redeploy` builds what is live in it again", target.Slug)
	}
	live, err := o.api.live(ctx, source)
	if err != nil {
		return err
	}
	switch {
	case live == nil:
		return fmt.Errorf("--from: nothing is live in %s", source.Slug)
	case live.Source.Commit == "":
		return fmt.Errorf("--from: %s was uploaded to %s, and is no commit; deploy its folder: agentctl deploy --upload DIR --environment %s",
			live.short(), source.Slug, target.Slug)
	}
	replaced, err := o.api.live(ctx, target)
	if err != nil {
		return err
	}
	now := "nothing is live there"
	if replaced != nil {
		now = strings.TrimSpace(replaced.version()) + " is live there"
	}
	if replaced != nil && replaced.Source.Commit == live.Source.Commit {
		fmt.Fprintf(o.messages, "%s is live in %s already; nothing is done\n", live.version(), target.Slug)
		return o.show(*replaced)
	}
	fmt.Fprintf(o.messages, "promoting %s from %s to %s; %s\n", live.version(), source.Slug, target.Slug, now)
	o.commit = live.Source.Commit
	d, err := o.begin(ctx, target)
	if err != nil {
		return fmt.Errorf("deploying to %s: %w", target.Slug, err)
	}
	return o.followed(ctx, d, target.Slug)
}

// live returns the deployment that is live in an environment, nil for none.
func (r *rest) live(ctx context.Context, e environment) (*deployment, error) {
	list, err := r.deployments(ctx, e)
	if err != nil {
		return nil, err
	}
	for i := range list {
		if list[i].IsLive {
			return &list[i], nil
		}
	}
	return nil, nil
}
