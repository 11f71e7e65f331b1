// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/oapi-codegen/nullable"
	"github.com/spf13/cobra"

	"github.com/agentplatform/agentplatform/internal/restclient"
)

// deployOptions are the flags of the commands that deploy, and of those about one deployment.
type deployOptions struct {
	restOptions
	output

	environment, commit, branch, folder string
	detach, force, skipTests, yes       bool

	api           *apiClient
	in            io.Reader
	out, messages io.Writer
}

// newCommand completes a command that calls the REST API.
func (o *deployOptions) newCommand(cmd *cobra.Command, run func(ctx context.Context, args []string) error) *cobra.Command {
	cmd.RunE = func(cmd *cobra.Command, args []string) (err error) {
		if o.api, err = o.newClient(); err != nil {
			return err
		}
		o.in, o.out, o.messages = cmd.InOrStdin(), cmd.OutOrStdout(), cmd.ErrOrStderr()
		return run(cmd.Context(), args)
	}
	o.restOptions.bindFlags(cmd.Flags())
	o.output.bindFlags(cmd.Flags())
	return cmd
}

// deploymentFailed is the meaning of exit code 2 for commands that follow a deployment.
const deploymentFailed = "the deployment failed or was cancelled"

func newDeployCommand() *cobra.Command {
	o := &deployOptions{}
	cmd := o.newCommand(&cobra.Command{
		Use:   "deploy",
		Short: "Deploy a commit of the project's repository, or a folder, and follow the build",
		Long: `Deploy a commit of the project's repository to an environment. With --upload the command
deploys a folder of this machine instead, which needs no repository. The command shows the
log of the build, and reports whether the deployment is live in the end. If you interrupt
the command, the deployment continues: follow it with logs -f, or end it with cancel.

An upload contains the folders of a project only: agents, connectors, guardrails, hooks,
middleware, models, schemas, tests and tools.

At the end the command prints a line for each connector in the code, with the URL of a
webhook. -o json and -o yaml have the results as connector_results.`,
		Example: `  agentctl deploy
  agentctl deploy --environment staging --branch release
  agentctl deploy --environment production --commit 2fd4e1c67a2d28fced849ee1bb76e7391b93eb12
  agentctl deploy --environment staging --upload .`,
		Args: cobra.NoArgs,
	}, func(ctx context.Context, _ []string) error { return o.deployAndFollow(ctx) })
	setOutcome(cmd, deploymentFailed)
	flags := cmd.Flags()
	flags.StringVar(&o.environment, "environment", "", "slug or ID of the environment; default: the default environment")
	flags.StringVar(&o.commit, "commit", "", "full hash of the commit; default: the latest one of the branch")
	flags.StringVar(&o.branch, "branch", "", "branch to deploy; default: the branch of the environment, or else the default branch of the repository")
	flags.StringVar(&o.folder, "upload", "", "folder of the project on this machine to upload and deploy instead of a commit")
	flags.BoolVar(&o.skipTests, "skip-tests", false, "with --upload: do not run the tests of the upload")
	cmd.MarkFlagsMutuallyExclusive("upload", "commit")
	cmd.MarkFlagsMutuallyExclusive("upload", "branch")
	flags.BoolVar(&o.detach, "detach", false, "print the ID of the deployment and do not wait for it")
	return cmd
}

func (o *deployOptions) deployAndFollow(ctx context.Context) error {
	if o.skipTests && o.folder == "" {
		return errors.New("--skip-tests: needs --upload; only the tests of an upload can be skipped")
	}
	start := o.startCommit
	if o.folder != "" {
		printWarnings(o.messages, o.folder, findMisnamed(o.folder))
		files, err := readFolder(o.folder)
		if err != nil {
			return err
		}
		packed, err := packFolder(files)
		if err != nil {
			return err
		}
		start = func(ctx context.Context, e restclient.Environment) (deployment, error) {
			return o.api.uploadFolder(ctx, e, packed, o.skipTests, o.messages)
		}
	}
	e, err := o.api.findEnvironment(ctx, "--environment", o.environment)
	if err != nil {
		return err
	}
	d, err := start(ctx, e)
	if err != nil {
		return fmt.Errorf("deploying to %s: %w", e.Slug, err)
	}
	return o.followDeployment(ctx, d, e.Slug)
}

// startCommit starts the deployment of a commit.
func (o *deployOptions) startCommit(ctx context.Context, e restclient.Environment) (deployment, error) {
	var body restclient.DeploymentCreate
	if o.commit != "" {
		body.Commit = nullable.NewNullableWithValue(o.commit)
	}
	if o.branch != "" {
		body.Branch = nullable.NewNullableWithValue(o.branch)
	}
	document, err := o.api.CreateDeployment(ctx, &restclient.CreateDeploymentParams{EnvironmentID: e.ID}, body)
	return deployment{document}, err
}

// printDeployment writes a deployment to standard output: only its ID, for other programs, unless another format is asked for.
func (o *deployOptions) printDeployment(d deployment) error {
	if o.output != outputText {
		return o.printValue(o.out, d)
	}
	fmt.Fprintln(o.out, d.Value.ID)
	return nil
}

func newActivateCommand() *cobra.Command {
	o := &deployOptions{}
	cmd := o.newCommand(&cobra.Command{
		Use:   "activate [DEPLOYMENT]",
		Short: "Make an earlier deployment live",
		Long: `Make an earlier deployment live. The environment executes it from the next run on. The
connectors in the code of the deployment replace the current ones; the command prints a line
for each. Without an argument the command takes the only deployment that can be activated
and is not live.`,
		Example: "  agentctl activate 2fd4e1c6 --environment production",
		Args:    cobra.MaximumNArgs(1),
	}, func(ctx context.Context, args []string) error {
		id, err := o.chooseDeployment(ctx, args, purpose{"activated", deployment.isDeployed})
		if err != nil {
			return err
		}
		return o.activate(ctx, id)
	})
	bindLookup(cmd.Flags(), &o.environment)
	o.bindForce(cmd)
	return cmd
}

func (o *deployOptions) bindForce(cmd *cobra.Command) {
	cmd.Flags().BoolVar(&o.force, "force", false, "activate the deployment even if connectors of its code cannot be applied; those connectors stay as they are")
}

func (o *deployOptions) activate(ctx context.Context, id string) error {
	params := &restclient.ActivateDeploymentParams{}
	if o.force {
		params.Force = &o.force
	}
	if _, err := o.api.ActivateDeployment(ctx, id, params); err != nil {
		return fmt.Errorf("activating deployment %s: %w", id, err)
	}
	d, err := o.api.readDeployment(ctx, id)
	if err != nil {
		return err
	}
	if !d.Value.IsLive {
		fmt.Fprintln(o.messages, "activated, but no longer live: another deployment was activated afterwards")
	}
	o.printConnectors(ctx, d)
	return o.printDeployment(d)
}

func newRollbackCommand() *cobra.Command {
	o := &deployOptions{}
	cmd := o.newCommand(&cobra.Command{
		Use:   "rollback",
		Short: "Make the previously live deployment live again",
		Long: `Make the deployment live that was live in an environment before the current one. Nothing is
built. A second rollback goes further back.

On a terminal the command shows the environment and both versions, and asks for
confirmation. --yes skips the question. Elsewhere the command does not ask.`,
		Example: "  agentctl rollback --environment production",
		Args:    cobra.NoArgs,
	}, func(ctx context.Context, _ []string) error { return o.rollBack(ctx) })
	cmd.Flags().StringVar(&o.environment, "environment", "", "slug or ID of the environment; default: the default environment")
	cmd.Flags().BoolVarP(&o.yes, "yes", "y", false, "do not ask for confirmation")
	o.bindForce(cmd)
	return cmd
}

func (o *deployOptions) rollBack(ctx context.Context) error {
	e, err := o.api.findEnvironment(ctx, "--environment", o.environment)
	if err != nil {
		return err
	}
	list, err := o.api.listDeployments(ctx, e)
	if err != nil {
		return err
	}
	live, previous, err := findPrevious(list)
	if err != nil {
		return fmt.Errorf("environment %s: %w", e.Slug, err)
	}
	describe := func(d deployment) string { return strings.TrimSpace(d.Value.ID + " " + d.version()) }
	fmt.Fprintf(o.messages, "%s: from %s to %s\n", e.Slug, describe(live), describe(previous))
	if !o.yes {
		if err := confirm(o.in, o.messages, "roll back "+e.Slug+"?"); err != nil {
			return err
		}
	}
	return o.activate(ctx, previous.Value.ID)
}

// findPrevious returns the live deployment and the target of a rollback. The target is the one that went live last among
// the deployments that are older than the live one. A deployment that was rolled back is newer than its target. So a second
// rollback goes further back, and a rollback of a later deployment goes to the target of the former rollback.
func findPrevious(newestFirst []deployment) (live, previous deployment, err error) {
	var previousAt time.Time
	for _, d := range newestFirst {
		activatedAt, neverLive := d.Value.ActivatedAt.Get()
		switch {
		case d.Value.IsLive:
			live = d
		case live.Value.ID != "" && d.isDeployed() && neverLive == nil && (previous.Value.ID == "" || activatedAt.After(previousAt)):
			previous, previousAt = d, activatedAt
		}
	}
	switch {
	case live.Value.ID == "":
		return live, previous, errors.New("no deployment is live")
	case previous.Value.ID == "":
		return live, previous, errors.New("no older deployment was live before; to make a newer one live, name it: agentctl activate DEPLOYMENT or COMMIT (agentctl status lists them)")
	}
	return live, previous, nil
}
