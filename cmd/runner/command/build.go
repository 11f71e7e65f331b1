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
	"github.com/agentplatform/agentplatform/runner/engine/features"
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
	flags.StringVar(&opts.URL, "url", "", "URL of the repository: https://host/path, ssh://user@host/path or user@host:path (required)")
	flags.StringVar(&opts.Branch, "branch", "", "branch or tag; if empty, the repository's default branch")
	flags.StringVar(&opts.Commit, "commit", "", "full commit hash; if empty, the head of the branch")
	flags.StringVar(&opts.Path, "path", "", "folder of the project inside the repository")
	flags.StringVar(&opts.Credentials, "credentials", "", "folder with the files of the Git Secret")
	flags.StringVar(&opts.Dir, "dir", "/workspace", "folder for the result; it must exist")
	flags.DurationVar(&timeout, "timeout", 5*time.Minute, "time limit of the fetch")
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
		Short: "Validate, pack and test the fetched repository, and report the outcome",
		Long: "Validate, pack and test the fetched repository, and report the outcome.\n\n" +
			"The exit code says whether the outcome was reported, not whether the build succeeded.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			client, err := target.newClient()
			if err != nil {
				return err
			}
			guard, err := guardOf(out)
			if err != nil {
				return err
			}
			opts.Dispatch, opts.Tools, opts.Models = client, tools, modelsOf(guard, providers, nil)
			servers, _ := newMCPClient(guard, nil)
			defer servers.Close()
			opts.MCP = servers
			opts.Variables = func() (runnerconfig.Variables, error) { return readVariables(variables) }
			opts.Prices = func() (runnerconfig.Prices, error) { return readPrices(prices) }
			opts.Check = engine.New(engine.Config{Tools: tools, Features: features.New(features.Config{})}).Check
			return build.Pack(cmd.Context(), opts)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&opts.Dir, "dir", "/workspace", "folder that runner build fetch wrote to")
	flags.StringVar(&opts.Upload, "upload", "", "digest of an uploaded folder, which is fetched from the gateway instead of Git")
	flags.BoolVar(&opts.SkipTests, "skip-tests", false, "skip the tests")
	flags.DurationVar(&opts.TestTimeout, "test-timeout", 10*time.Minute, "time limit of all tests together")
	flags.StringVar(&providers, "providers", "", "file with the model providers (JSON) for tests without mocks; the file may be absent")
	flags.StringVar(&variables, "variables", "", "file with the environment's variables and OAuth apps (JSON) for MCP servers and prompts of tests; the file may be absent")
	flags.StringVar(&prices, "prices", "", "file with the prices of models (JSON) for the cost of tests; the file may be absent")
	target.bindFlags(flags)
	out.Bind(flags)
	return cmd
}
