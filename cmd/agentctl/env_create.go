// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"fmt"

	"github.com/oapi-codegen/nullable"
	"github.com/spf13/cobra"

	"github.com/agentplatform/agentplatform/internal/restclient"
)

// envCreateOptions are the flags of `env create`.
type envCreateOptions struct {
	envOptions

	copyFrom, branch, kind string
}

func newEnvCreateCommand() *cobra.Command {
	o := &envCreateOptions{}
	cmd := &cobra.Command{
		Use:   "create NAME",
		Short: "Create an environment",
		Long: `Create an environment, and print its ID. --copy-from copies the variables of another
environment, including the values of sensitive ones, which stay hidden, and its OAuth apps. The
new environment has no deployment.`,
		Example: `  agentctl env create Staging --copy-from production --branch develop
  agentctl promote --from production --to staging`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			if o.api, err = o.newClient(); err != nil {
				return err
			}
			o.out, o.messages = cmd.OutOrStdout(), cmd.ErrOrStderr()
			return o.createEnvironment(cmd.Context(), args[0])
		},
	}
	flags := cmd.Flags()
	o.restOptions.bindFlags(flags)
	o.output.bindFlags(flags)
	flags.StringVar(&o.copyFrom, "copy-from", "", "slug or ID of the environment whose variables and OAuth apps are copied")
	flags.StringVar(&o.branch, "branch", "", "branch to build; default: the default branch of the repository")
	flags.StringVar(&o.kind, "kind", "", "kind of the environment, standard or test; default: standard")
	return cmd
}

func (o *envCreateOptions) createEnvironment(ctx context.Context, name string) error {
	body := restclient.EnvironmentCreate{Name: name}
	if o.copyFrom != "" {
		from, err := o.api.findEnvironment(ctx, "--copy-from", o.copyFrom)
		if err != nil {
			return err
		}
		body.CopyFromEnvironmentID = &from.ID
	}
	if o.branch != "" {
		body.GitBranch = nullable.NewNullableWithValue(o.branch)
	}
	if o.kind != "" {
		body.Kind = new(restclient.EnvironmentKind(o.kind))
	}
	created, err := o.api.CreateEnvironment(ctx, nil, body)
	if err != nil {
		return fmt.Errorf("creating the environment %s: %w", printable(name), err)
	}
	if o.output != outputText {
		return o.printValue(o.out, created)
	}
	// The slug is empty until the platform has taken up the environment.
	fmt.Fprintf(o.messages, "created %s; `agentctl deploy --environment %s` deploys to it\n", printable(name), cmp.Or(created.Value.Slug, created.Value.ID))
	_, err = fmt.Fprintln(o.out, created.Value.ID)
	return err
}
