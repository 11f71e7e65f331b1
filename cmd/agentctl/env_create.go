// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"net/http"

	"github.com/spf13/cobra"
)

// environmentCreate is the request that creates an environment.
type environmentCreate struct {
	Name      string `json:"name"`
	Kind      string `json:"kind,omitempty"`
	GitBranch string `json:"git_branch,omitempty"`
	CopyFrom  string `json:"copy_from_environment_id,omitempty"`
}

func newEnvCreateCommand() *cobra.Command {
	o := &envOptions{}
	var body environmentCreate
	var copied string
	cmd := &cobra.Command{
		Use:   "create NAME",
		Short: "Create an environment",
		Long: `Create an environment, and print its id. With --copy-from it has the variables of another one,
also the values of sensitive ones, which stay hidden. Nothing is deployed to it yet.`,
		Example: `  agentctl env create Staging --copy-from production --branch develop
  agentctl promote --from production --to staging`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			if o.api, err = o.client(); err != nil {
				return err
			}
			o.out, o.messages = cmd.OutOrStdout(), cmd.ErrOrStderr()
			body.Name = args[0]
			return o.create(cmd.Context(), body, copied)
		},
	}
	flags := cmd.Flags()
	o.restOptions.bind(flags)
	o.output.bind(flags)
	flags.StringVar(&copied, "copy-from", "", "slug or id of the environment whose variables it has")
	flags.StringVar(&body.GitBranch, "branch", "", "the branch that is built; without it the repository's default branch")
	flags.StringVar(&body.Kind, "kind", "", "standard or test; without it standard")
	return cmd
}

func (o *envOptions) create(ctx context.Context, body environmentCreate, copied string) error {
	if copied != "" {
		from, err := o.api.namedEnvironment(ctx, "--copy-from", copied)
		if err != nil {
			return err
		}
		body.CopyFrom = from.ID
	}
	var shown json.RawMessage
	if err := o.api.call(ctx, http.MethodPost, "/environments", rand.Text(), body, &shown); err != nil {
		return fmt.Errorf("creating the environment %s: %w", printable(body.Name), err)
	}
	var made environment
	if err := json.Unmarshal(shown, &made); err != nil {
		return fmt.Errorf("reading the environment: %w", err)
	}
	if o.output != outputText {
		return o.write(o.out, shown)
	}
	name := made.Slug
	if name == "" { // the platform has not taken it up yet
		name = made.ID
	}
	fmt.Fprintf(o.messages, "created %s; `agentctl deploy --environment %s` deploys to it\n", printable(body.Name), name)
	_, err := fmt.Fprintln(o.out, made.ID)
	return err
}
