// SPDX-License-Identifier: Apache-2.0

package command

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/agentplatform/agentplatform/cmd/internal/observe"
	"github.com/agentplatform/agentplatform/internal/egress"
	"github.com/agentplatform/agentplatform/internal/metrics"
	"github.com/agentplatform/agentplatform/internal/runnerconfig"
	"github.com/agentplatform/agentplatform/runner/engine"
	"github.com/agentplatform/agentplatform/runner/engine/features"
	"github.com/agentplatform/agentplatform/runner/engine/mcp"
	"github.com/agentplatform/agentplatform/runner/model"
	"github.com/agentplatform/agentplatform/runner/oauth"
	"github.com/agentplatform/agentplatform/runner/script"
	"github.com/agentplatform/agentplatform/runner/serve"
)

// maxModelAnswer is the most bytes of a model service's answer.
const maxModelAnswer = 32 << 20

func serveCommand(tools []engine.Tool) *cobra.Command {
	var target dispatchFlags
	var out egress.Flags
	var opts serve.Options
	var providers, variables, prices string
	var asked observe.Flags
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Claim and execute agent runs until SIGTERM, then drain",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			client, err := target.newClient()
			if err != nil {
				return err
			}
			guard, err := guardOf(out)
			if err != nil {
				return err
			}
			if opts.RunnerID == "" {
				if opts.RunnerID, err = os.Hostname(); err != nil {
					return fmt.Errorf("naming the runner: %w", err)
				}
			}
			registry := metrics.NewRegistry()
			metrics.Build(registry, metrics.ProcessRunner)
			opts.Metrics = metrics.NewRunner(registry, model.ProviderTypes, model.Codes)
			opts.Dispatch, opts.Drift = client, serve.NewDriftBook(nil)
			pool, err := script.NewPool(script.Options{Log: slog.Default()})
			if err != nil {
				return fmt.Errorf("preparing scripts: %w", err)
			}
			defer pool.Close()
			servers, apps := newMCPClient(guard, driftReporter(opts))
			opts.Engine = newEngine(guard, engine.Config{
				Tools: tools, Metrics: opts.Metrics, Models: modelsOf(guard, providers, opts.Metrics),
				Variables: func() (runnerconfig.Variables, error) { return readVariables(variables) },
				Prices:    func() (runnerconfig.Prices, error) { return readPrices(prices) },
			}, pool, servers, apps)
			server, err := serve.New(opts)
			if err != nil {
				return err
			}
			defer startClosing(cmd.Context(), servers)()
			return asked.Run(cmd.Context(), observe.Process{Metrics: registry, Ready: server.Ready}, server.Run)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&providers, "providers", "", "file with the model providers (JSON), reloaded for each run")
	flags.StringVar(&variables, "variables", "", "file with the environment's variables and OAuth apps (JSON), reloaded when a prompt or a tool uses one")
	flags.StringVar(&prices, "prices", "", "file with the prices of models (JSON), reloaded for each model response")
	flags.StringVar(&opts.RunnerID, "runner-id", "", "name of this process; if empty, the host name")
	flags.IntVar(&opts.Concurrency, "concurrency", 10, "number of slots: runs that execute at once")
	flags.DurationVar(&opts.Grace, "grace", 30*time.Second, "time after SIGTERM for runs to finish; must be less than the pod's grace period")
	flags.IntVar(&opts.Bundles, "bundles", 16, "bundles kept in memory")
	target.bindFlags(flags)
	asked.Bind(flags)
	out.Bind(flags)
	return cmd
}

// driftReporter returns a function that counts comparisons of pinned MCP tools and adds them to the book.
func driftReporter(opts serve.Options) func(mcp.Comparison) {
	return func(c mcp.Comparison) {
		if len(c.Drifted) > 0 {
			opts.Metrics.Drifted()
		}
		opts.Drift.Add(c.DeploymentID, c.Agent, c.Server, c.Drifted)
	}
}

// startClosing closes idle sessions with MCP servers until the returned function is called, which closes all. Calls go on while
// the runner drains, so the end of the context does not end them.
func startClosing(ctx context.Context, servers *mcp.Client) (stop func()) {
	serving, cancel := context.WithCancel(context.WithoutCancel(ctx))
	go servers.Run(serving)
	return func() {
		cancel()
		servers.Close()
	}
}

// newEngine returns an engine with all features, whose requests go through the guard.
func newEngine(guard *egress.Guard, config engine.Config, pool *script.Pool, servers *mcp.Client, apps *oauth.Apps) *engine.Engine {
	config.Features = features.New(features.Config{
		ToolHTTP: guard.Client(egress.Tool, egress.ClientOptions{MaxResponse: features.MaxResponse}),
		MCP:      servers, OAuthApps: apps, Variables: config.Variables, Scripts: pool,
	})
	return engine.New(config)
}

// newMCPClient returns a client of MCP servers that connects through the guard, and the tokens of OAuth apps that it shares with
// tools. compared is mcp.Config.Compared.
func newMCPClient(guard *egress.Guard, compared func(mcp.Comparison)) (*mcp.Client, *oauth.Apps) {
	apps := oauth.NewApps(oauth.AppsConfig{HTTP: guard.Client(egress.Tool, egress.ClientOptions{MaxResponse: features.MaxResponse})})
	return mcp.New(mcp.Config{
		HTTP: guard.Client(egress.MCP, egress.ClientOptions{MaxResponse: mcp.MaxAnswer}), Apps: apps, Version: metrics.Version(), Compared: compared,
	}), apps
}

// modelsOf are the models of the providers in a file, asked through the guard.
func modelsOf(guard *egress.Guard, providers string, counted *metrics.Runner) *model.Registry {
	return &model.Registry{
		HTTP:      guard.Client(egress.Model, egress.ClientOptions{MaxResponse: maxModelAnswer}),
		Providers: func() (runnerconfig.Providers, error) { return readProviders(providers) },
		Metrics:   counted,
	}
}

// readProviders reads the file of model providers; none when there is no file.
func readProviders(path string) (runnerconfig.Providers, error) {
	return readConfig(path, "the model providers", runnerconfig.ParseProviders)
}

// readVariables reads the file of the environment's variables; none when there is no file.
func readVariables(path string) (runnerconfig.Variables, error) {
	return readConfig(path, "the variables", runnerconfig.ParseVariables)
}

// readPrices reads the file of models' prices; none when there is no file.
func readPrices(path string) (runnerconfig.Prices, error) {
	return readConfig(path, "the prices of models", runnerconfig.ParsePrices)
}

// readConfig reads a file as parse does; nothing when there is no file.
func readConfig[T any](path, what string, parse func([]byte) (T, error)) (none T, err error) {
	if path == "" {
		return none, nil
	}
	data, err := os.ReadFile(path) //nolint:gosec // the operator's flag
	if errors.Is(err, os.ErrNotExist) {
		return none, nil
	}
	if err != nil {
		return none, fmt.Errorf("reading %s: %w", what, err)
	}
	return parse(data)
}
