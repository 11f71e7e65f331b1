// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"

	"github.com/spf13/cobra"
)

// deployOptions are the flags of the commands that deploy, and that are about one deployment.
type deployOptions struct {
	restOptions
	output

	wanted, commit, branch, folder string
	detach, force, skipTests, yes  bool

	api           *rest
	in            io.Reader
	out, messages io.Writer
}

// command is one that calls the REST API.
func (o *deployOptions) command(cmd *cobra.Command, do func(ctx context.Context, args []string) error) *cobra.Command {
	cmd.RunE = func(cmd *cobra.Command, args []string) (err error) {
		if o.api, err = o.client(); err != nil {
			return err
		}
		o.in, o.out, o.messages = cmd.InOrStdin(), cmd.OutOrStdout(), cmd.ErrOrStderr()
		return do(cmd.Context(), args)
	}
	o.restOptions.bind(cmd.Flags())
	o.output.bind(cmd.Flags())
	return cmd
}

func newDeployCommand() *cobra.Command {
	o := &deployOptions{}
	cmd := o.command(&cobra.Command{
		Use:   "deploy",
		Short: "Deploy a commit of the project's repository, or a folder, and follow it",
		Long: `Deploy a commit of the project's repository to an environment, or with --upload what is
in a folder of this machine, which needs no repository. Show the log of the build while it
is written, and say whether it is live in the end. When the command is broken off, the
deployment goes on: follow it with logs -f, or end it with cancel.

Of a folder what agents are made of is uploaded, and nothing else: agents, connectors,
guardrails, hooks, middleware, models, schemas, tests and tools.

In the end a line for each connector in the code says what became of it, with the URL of a
webhook; -o json and -o yaml have it as connector_results.

It ends with 2 when the deployment failed or was cancelled, with 1 when there was none.`,
		Example: `  agentctl deploy
  agentctl deploy --environment staging --branch release
  agentctl deploy --environment production --commit 2fd4e1c67a2d28fced849ee1bb76e7391b93eb12
  agentctl deploy --environment staging --upload .`,
		Args: cobra.NoArgs,
	}, func(ctx context.Context, _ []string) error { return o.deploy(ctx) })
	flags := cmd.Flags()
	flags.StringVar(&o.wanted, "environment", "", "slug or id of the environment; without it the default one")
	flags.StringVar(&o.commit, "commit", "", "full hash of the commit; without it the latest of the branch")
	flags.StringVar(&o.branch, "branch", "", "the branch; without it the environment's, else the repository's default branch")
	flags.StringVar(&o.folder, "upload", "", "folder of the project on this machine, which is uploaded and deployed in place of a commit")
	flags.BoolVar(&o.skipTests, "skip-tests", false, "of an upload: do not run its tests")
	cmd.MarkFlagsMutuallyExclusive("upload", "commit")
	cmd.MarkFlagsMutuallyExclusive("upload", "branch")
	flags.BoolVar(&o.detach, "detach", false, "print the id of the deployment and do not wait for it")
	return cmd
}

func (o *deployOptions) deploy(ctx context.Context) error {
	if o.skipTests && o.folder == "" {
		return errors.New("--skip-tests: is for --upload; a commit is deployed as its tests say")
	}
	begin := o.begin
	if o.folder != "" {
		warn(o.messages, o.folder, misnamed(o.folder))
		files, err := readFolder(o.folder)
		if err != nil {
			return err
		}
		packed, err := packFolder(files)
		if err != nil {
			return err
		}
		begin = func(ctx context.Context, e environment) (deployment, error) {
			return o.api.upload(ctx, e, packed, o.skipTests, o.messages)
		}
	}
	e, err := o.api.environment(ctx, o.wanted)
	if err != nil {
		return err
	}
	d, err := begin(ctx, e)
	if err != nil {
		return fmt.Errorf("deploying to %s: %w", e.Slug, err)
	}
	return o.followed(ctx, d, e.Slug)
}

// begin deploys a commit.
func (o *deployOptions) begin(ctx context.Context, e environment) (d deployment, err error) {
	body := map[string]string{}
	for field, value := range map[string]string{"commit": o.commit, "branch": o.branch} {
		if value != "" {
			body[field] = value
		}
	}
	err = o.api.call(ctx, http.MethodPost, "/deployments?environment_id="+url.QueryEscape(e.ID), rand.Text(), body, &d)
	return d, err
}

// show writes a deployment: its id alone, for other programs, unless more is asked for.
func (o *deployOptions) show(d deployment) error {
	if o.output != outputText {
		return o.write(o.out, d)
	}
	fmt.Fprintln(o.out, d.ID)
	return nil
}

func newActivateCommand() *cobra.Command {
	o := &deployOptions{}
	cmd := o.command(&cobra.Command{
		Use:   "activate [DEPLOYMENT]",
		Short: "Make a deployment live that was deployed before",
		Long: `Make a deployment live that was deployed before: from the next run on its environment
executes it, and the connectors of its code are as that code has them; a line for each says
what became of it. Without a name it is the one deployment that is not live and can be.`,
		Example: "  agentctl activate 2fd4e1c6 --environment production",
		Args:    cobra.MaximumNArgs(1),
	}, func(ctx context.Context, args []string) error {
		id, err := o.named(ctx, args, use{"activated", func(d deployment) bool { return d.Status == "deployed" }})
		if err != nil {
			return err
		}
		return o.activate(ctx, id)
	})
	bindWithin(cmd.Flags(), &o.wanted)
	cmd.Flags().BoolVar(&o.force, "force", false, "also where connectors of its code cannot be applied; those stay as they are")
	return cmd
}

func (o *deployOptions) activate(ctx context.Context, id string) error {
	var done struct {
		OK bool `json:"ok"`
	}
	path := "/deployments/" + id + "/activate"
	if o.force {
		path += "?force=true"
	}
	if err := o.api.call(ctx, http.MethodPost, path, rand.Text(), nil, &done); err != nil {
		return fmt.Errorf("activating deployment %s: %w", id, err)
	}
	d, err := o.api.deployment(ctx, id)
	if err != nil {
		return err
	}
	if !d.IsLive {
		fmt.Fprintln(o.messages, "activated, and not live any more: another deployment was activated since")
	}
	o.connectors(ctx, d)
	return o.show(d)
}

func newRollbackCommand() *cobra.Command {
	o := &deployOptions{}
	cmd := o.command(&cobra.Command{
		Use:   "rollback",
		Short: "Make the deployment live that was live before",
		Long: `Make the deployment live that was live in an environment before the one that is.
Nothing is built. Done twice, it leads further back.

On a terminal it says which environment that is, and both versions, and asks before it does
so; --yes answers. Elsewhere it does not ask.`,
		Example: "  agentctl rollback --environment production",
		Args:    cobra.NoArgs,
	}, func(ctx context.Context, _ []string) error { return o.rollback(ctx) })
	cmd.Flags().StringVar(&o.wanted, "environment", "", "slug or id of the environment; without it the default one")
	cmd.Flags().BoolVarP(&o.yes, "yes", "y", false, "do not ask")
	cmd.Flags().BoolVar(&o.force, "force", false, "also where connectors of its code cannot be applied; those stay as they are")
	return cmd
}

func (o *deployOptions) rollback(ctx context.Context) error {
	e, err := o.api.environment(ctx, o.wanted)
	if err != nil {
		return err
	}
	list, err := o.api.deployments(ctx, e)
	if err != nil {
		return err
	}
	live, before, err := previous(list)
	if err != nil {
		return fmt.Errorf("environment %s: %w", e.Slug, err)
	}
	fmt.Fprintf(o.messages, "%s: from %s to %s\n", e.Slug, strings.TrimSpace(live.ID+" "+live.version()), strings.TrimSpace(before.ID+" "+before.version()))
	if !o.yes {
		if err := confirm(o.in, o.messages, "roll back "+e.Slug+"?"); err != nil {
			return err
		}
	}
	return o.activate(ctx, before.ID)
}

// previous are the deployment that is live and the one that was before it: of those that are
// older than the one that is live, the one that went live last. One from which somebody went
// back is newer than what they went back to, so that going back twice leads further back and
// not to and fro; and a deployment that is made later goes back to where they went.
func previous(newestFirst []deployment) (live, before deployment, err error) {
	for _, d := range newestFirst {
		switch {
		case d.IsLive:
			live = d
		case live.ID != "" && d.Status == "deployed" && d.ActivatedAt != nil &&
			(before.ID == "" || d.ActivatedAt.After(*before.ActivatedAt)):
			before = d
		}
	}
	switch {
	case live.ID == "":
		return live, before, errors.New("nothing is live")
	case before.ID == "":
		return live, before, errors.New("nothing was live before what is; to go to a later one, name it: agentctl activate DEPLOYMENT or COMMIT (agentctl status lists them)")
	}
	return live, before, nil
}
