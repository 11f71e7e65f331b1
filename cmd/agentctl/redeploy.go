// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/agentplatform/agentplatform/internal/restclient"
)

func newCancelCommand() *cobra.Command {
	o := &deployOptions{}
	cmd := o.newCommand(&cobra.Command{
		Use:   "cancel [DEPLOYMENT]",
		Short: "Cancel a deployment that is being built",
		Long: `Cancel a deployment that is being built, before it is live. The live deployment stays live.
The command fails with exit code 1 if the deployment has ended, or if its build has not
begun; the deployment then stays as it is. Without an argument the command takes the only
open deployment.`,
		Example: "  agentctl cancel\n  agentctl cancel 2fd4e1c6",
		Args:    cobra.MaximumNArgs(1),
	}, func(ctx context.Context, args []string) error {
		id, err := o.chooseDeployment(ctx, args, purpose{"cancelled", deployment.isOpen})
		if err != nil {
			return err
		}
		return o.cancelDeployment(ctx, id)
	})
	bindLookup(cmd.Flags(), &o.environment)
	return cmd
}

func (o *deployOptions) cancelDeployment(ctx context.Context, id string) error {
	done, err := o.api.CancelDeployment(ctx, id, nil)
	if err != nil {
		return fmt.Errorf("cancelling deployment %s: %w", id, err)
	}
	d, err := o.api.readDeployment(ctx, id)
	switch {
	case err != nil:
		return err
	case !done.Value.OK:
		return fmt.Errorf("deployment %s was not cancelled because it is not being built: its status is %s%s", id, d.stateText(), d.detailText())
	case d.isOpen():
		fmt.Fprintln(o.messages, "the deployment is being cancelled")
	}
	return o.printDeployment(d)
}

func newRedeployCommand() *cobra.Command {
	o := &deployOptions{}
	return o.newAgainCommand(&cobra.Command{
		Use:   "redeploy DEPLOYMENT",
		Short: "Deploy the code of a deployment again, and follow the build",
		Long: `Deploy the code of a deployment again to its environment. It is built again from the same
commit or the same upload. If the deployment skipped tests or failed connectors, the new one
skips them too. To make an earlier deployment live again without a build, use activate.`,
		Example: "  agentctl redeploy 2fd4e1c6 --environment production",
	}, func(ctx context.Context, id string) (restclient.Document[restclient.Deployment], error) {
		return o.api.Redeploy(ctx, id, nil)
	})
}

func newDeployAnywayCommand() *cobra.Command {
	o := &deployOptions{}
	return o.newAgainCommand(&cobra.Command{
		Use:   "deploy-anyway DEPLOYMENT",
		Short: "Deploy code despite failed tests or connectors, and follow the build",
		Long: `Deploy the code of a failed deployment again. If its tests failed, the new deployment skips
the tests. If connectors could not be applied, those connectors stay as they are. This needs
the permission deployments.override.`,
		Example: "  agentctl deploy-anyway 2fd4e1c6",
	}, func(ctx context.Context, id string) (restclient.Document[restclient.Deployment], error) {
		return o.api.DeployAnyway(ctx, id, nil)
	})
}

// newAgainCommand completes a command that deploys the code of a deployment once more.
func (o *deployOptions) newAgainCommand(cmd *cobra.Command, start func(ctx context.Context, id string) (restclient.Document[restclient.Deployment], error)) *cobra.Command {
	cmd.Args = cobra.ExactArgs(1)
	o.newCommand(cmd, func(ctx context.Context, args []string) error {
		id, err := o.api.findDeployment(ctx, o.environment, args[0], purpose{})
		if err != nil {
			return err
		}
		document, err := start(ctx, id)
		if err != nil {
			return fmt.Errorf("deploying the code of deployment %s again: %w", id, err)
		}
		d := deployment{document}
		return o.followDeployment(ctx, d, o.api.environmentName(ctx, d))
	})
	setOutcome(cmd, deploymentFailed)
	bindLookup(cmd.Flags(), &o.environment)
	cmd.Flags().BoolVar(&o.detach, "detach", false, "print the ID of the new deployment and do not wait for it")
	return cmd
}
