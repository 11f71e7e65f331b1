// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"crypto/rand"
	"fmt"
	"net/http"

	"github.com/spf13/cobra"
)

func newCancelCommand() *cobra.Command {
	o := &deployOptions{}
	cmd := o.command(&cobra.Command{
		Use:   "cancel [DEPLOYMENT]",
		Short: "End a deployment that is building",
		Long: `End a deployment that is building, before it is live. What is live stays so. One that has
not begun to build stays as it is, and so does one that has ended: the command ends with 1.
Without a name it is the one deployment that is under way.`,
		Example: "  agentctl cancel\n  agentctl cancel 2fd4e1c6",
		Args:    cobra.MaximumNArgs(1),
	}, func(ctx context.Context, args []string) error {
		id, err := o.named(ctx, args, use{"cancelled", deployment.open})
		if err != nil {
			return err
		}
		return o.cancel(ctx, id)
	})
	bindWithin(cmd.Flags(), &o.wanted)
	return cmd
}

func (o *deployOptions) cancel(ctx context.Context, id string) error {
	var done struct {
		OK bool `json:"ok"`
	}
	if err := o.api.call(ctx, http.MethodPost, "/deployments/"+id+"/cancel", rand.Text(), nil, &done); err != nil {
		return fmt.Errorf("cancelling deployment %s: %w", id, err)
	}
	d, err := o.api.deployment(ctx, id)
	switch {
	case err != nil:
		return err
	case !done.OK:
		return fmt.Errorf("deployment %s was not cancelled, for it is not building: it is %s", id, d.standing())
	case d.open():
		fmt.Fprintln(o.messages, "it is being cancelled")
	}
	return o.show(d)
}

func newRedeployCommand() *cobra.Command {
	return newAgainCommand(&cobra.Command{
		Use:   "redeploy DEPLOYMENT",
		Short: "Deploy the code of a deployment again, and follow it",
		Long: `Deploy the code of a deployment again to its environment: it is built anew, from the same
commit or the same upload, and skips the tests or failed connectors that the deployment
skipped. To make one live again that was built, activate needs no build.

It ends with 2 when the deployment failed or was cancelled, with 1 when there was none.`,
		Example: "  agentctl redeploy 2fd4e1c6 --environment production",
	}, "redeploy")
}

func newDeployAnywayCommand() *cobra.Command {
	return newAgainCommand(&cobra.Command{
		Use:   "deploy-anyway DEPLOYMENT",
		Short: "Deploy what failed its tests or its connectors without these, and follow it",
		Long: `Deploy the code of a deployment that failed again: without its tests where these failed,
and where its connectors could not be applied with those left as they are. It asks for the
permission deployments.override.

It ends with 2 when the deployment failed or was cancelled, with 1 when there was none.`,
		Example: "  agentctl deploy-anyway 2fd4e1c6",
	}, "deploy-anyway")
}

// newAgainCommand is one that deploys the code of a deployment once more, by the route of its name.
func newAgainCommand(cmd *cobra.Command, route string) *cobra.Command {
	o := &deployOptions{}
	cmd.Args = cobra.ExactArgs(1)
	o.command(cmd, func(ctx context.Context, args []string) error { return o.again(ctx, args[0], route) })
	bindWithin(cmd.Flags(), &o.wanted)
	cmd.Flags().BoolVar(&o.detach, "detach", false, "print the id of the new deployment and do not wait for it")
	return cmd
}

func (o *deployOptions) again(ctx context.Context, text, route string) error {
	id, err := o.api.deploymentID(ctx, o.wanted, text, use{})
	if err != nil {
		return err
	}
	var d deployment
	if err := o.api.call(ctx, http.MethodPost, "/deployments/"+id+"/"+route, rand.Text(), nil, &d); err != nil {
		return fmt.Errorf("deploying the code of deployment %s again: %w", id, err)
	}
	return o.followed(ctx, d, o.api.placeOf(ctx, d))
}
