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
	cmd := o.newCommand(&cobra.Command{
		Use:   "promote --from ENVIRONMENT --to ENVIRONMENT",
		Short: "Deploy the live commit of an environment to another one, and follow the build",
		Long: `Deploy the live commit of an environment to another one, as deploy --commit does. The commit
is built with the variables and the tests of the other environment. The command first shows
the commit, and the live deployment that it replaces. It does nothing if the commit is
already live there.`,
		Example: "  agentctl promote --from staging --to production",
		Args:    cobra.NoArgs,
	}, func(ctx context.Context, _ []string) error { return o.promote(ctx, from) })
	setOutcome(cmd, deploymentFailed)
	flags := cmd.Flags()
	flags.StringVar(&from, "from", "", "slug or ID of the environment whose live commit is deployed")
	flags.StringVar(&o.environment, "to", "", "slug or ID of the environment to deploy to")
	flags.BoolVar(&o.detach, "detach", false, "print the ID of the deployment and do not wait for it")
	return cmd
}

func (o *deployOptions) promote(ctx context.Context, from string) error {
	if from == "" || o.environment == "" {
		return errors.New("--from and --to: both must be an environment, as shown by `agentctl status`")
	}
	source, err := o.api.findEnvironment(ctx, "--from", from)
	if err != nil {
		return err
	}
	target, err := o.api.findEnvironment(ctx, "--to", o.environment)
	if err != nil {
		return err
	}
	if source.ID == target.ID {
		return fmt.Errorf("--to: %s is the environment of --from; `agentctl redeploy` builds its live deployment again", target.Slug)
	}
	live, err := o.api.liveDeployment(ctx, source)
	if err != nil {
		return err
	}
	switch {
	case live == nil:
		return fmt.Errorf("--from: no deployment is live in %s", source.Slug)
	case live.commitHash() == "":
		return fmt.Errorf("--from: %s was uploaded to %s and is no commit; deploy its folder: agentctl deploy --upload DIR --environment %s",
			live.shortVersion(), source.Slug, target.Slug)
	}
	replaced, err := o.api.liveDeployment(ctx, target)
	if err != nil {
		return err
	}
	current := "no deployment is live there"
	if replaced != nil {
		current = strings.TrimSpace(replaced.version()) + " is live there"
	}
	if replaced != nil && replaced.commitHash() == live.commitHash() {
		fmt.Fprintf(o.messages, "%s is already live in %s; nothing to do\n", live.version(), target.Slug)
		return o.printDeployment(*replaced)
	}
	fmt.Fprintf(o.messages, "promoting %s from %s to %s; %s\n", live.version(), source.Slug, target.Slug, current)
	o.commit = live.commitHash()
	d, err := o.startCommit(ctx, target)
	if err != nil {
		return fmt.Errorf("deploying to %s: %w", target.Slug, err)
	}
	return o.followDeployment(ctx, d, target.Slug)
}
