// SPDX-License-Identifier: Apache-2.0

package command

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"github.com/agentplatform/agentplatform/internal/egress"
	"github.com/agentplatform/agentplatform/internal/runnerconfig"
	"github.com/agentplatform/agentplatform/runner/build"
	"github.com/agentplatform/agentplatform/runner/engine"
)

func fetchCommand() *cobra.Command {
	var opts build.FetchOptions
	var out egress.Flags
	var timeout time.Duration
	cmd := &cobra.Command{
		Use:   "fetch",
		Short: "Fetch a commit from Git into a folder",
		Long: "Fetch a commit from Git into a folder.\n\nThe credentials folder holds the files of a Git Secret: username and password,\n" +
			"or bearerToken, and ca.crt for https; identity, known_hosts and password (the key's\npassphrase) for ssh.\n\n" +
			"A repository that cannot be fetched is no error here: `runner build pack` reports it.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			guard, err := guardOf(out)
			if err != nil {
				return err
			}
			ctx, cancel := context.WithTimeout(cmd.Context(), timeout)
			defer cancel()
			opts.Guard = guard
			return build.Fetch(ctx, opts)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&opts.URL, "url", "", "https://host/path, ssh://user@host/path or user@host:path (required)")
	flags.StringVar(&opts.Branch, "branch", "", "branch or tag; the repository's default branch when empty")
	flags.StringVar(&opts.Commit, "commit", "", "full hash; the branch's head when empty")
	flags.StringVar(&opts.Path, "path", "", "folder of the project inside the repository")
	flags.StringVar(&opts.Credentials, "credentials", "", "folder with the files of the Git Secret")
	flags.StringVar(&opts.Dir, "dir", "/workspace", "folder to write to; it must exist")
	flags.DurationVar(&timeout, "timeout", 5*time.Minute, "time to fetch in")
	out.Bind(flags)
	return cmd
}

func packCommand(tools []engine.Tool) *cobra.Command {
	var target dispatchFlags
	var out egress.Flags
	var opts build.PackOptions
	var providers, variables, prices string
	cmd := &cobra.Command{
		Use:   "pack",
		Short: "Validate, pack and test what was fetched, and report the outcome",
		Long: "Validate, pack and test what was fetched, and report the outcome.\n\n" +
			"The exit code says whether the outcome was reported, not whether the build succeeded.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			client, err := target.client()
			if err != nil {
				return err
			}
			guard, err := guardOf(out)
			if err != nil {
				return err
			}
			opts.Dispatch, opts.Tools, opts.Models = client, tools, modelsOf(guard, providers, nil)
			opts.Variables = func() (runnerconfig.Variables, error) { return readVariables(variables) }
			opts.Prices = func() (runnerconfig.Prices, error) { return readPrices(prices) }
			opts.Check = engine.New(engine.Config{Tools: tools}).Check
			return build.Pack(cmd.Context(), opts)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&opts.Dir, "dir", "/workspace", "folder that `fetch` wrote to")
	flags.StringVar(&opts.Upload, "upload", "", "digest of what was uploaded, which is fetched from dispatch instead of read from the folder")
	flags.BoolVar(&opts.SkipTests, "skip-tests", false, "leave the test phase out")
	flags.DurationVar(&opts.TestTimeout, "test-timeout", 10*time.Minute, "time that all tests together have")
	flags.StringVar(&providers, "providers", "", "file with the model providers (JSON) that tests ask where they mock nothing; none when there is no such file")
	flags.StringVar(&variables, "variables", "", "file with the environment's variables (JSON) that prompts of tests may name; none when there is no such file")
	flags.StringVar(&prices, "prices", "", "file with the prices of models (JSON) by which it is told what tests cost; none when there is no such file")
	target.add(flags)
	out.Bind(flags)
	return cmd
}
