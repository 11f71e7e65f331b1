// SPDX-License-Identifier: Apache-2.0

package command

import (
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/agentplatform/agentplatform/cmd/internal/observe"
	"github.com/agentplatform/agentplatform/internal/egress"
	"github.com/agentplatform/agentplatform/internal/metrics"
	"github.com/agentplatform/agentplatform/internal/runnerconfig"
	"github.com/agentplatform/agentplatform/runner/engine"
	"github.com/agentplatform/agentplatform/runner/model"
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
			client, err := target.client()
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
			opts.Dispatch = client
			opts.Engine = engine.New(engine.Config{
				Tools: tools, Metrics: opts.Metrics, Models: modelsOf(guard, providers, opts.Metrics),
				Variables: func() (runnerconfig.Variables, error) { return readVariables(variables) },
				Prices:    func() (runnerconfig.Prices, error) { return readPrices(prices) },
			})
			server, err := serve.New(opts)
			if err != nil {
				return err
			}
			return asked.Run(cmd.Context(), observe.Process{Metrics: registry, Ready: server.Ready}, server.Run)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&providers, "providers", "", "file with the model providers (JSON); read anew for every run")
	flags.StringVar(&variables, "variables", "", "file with the environment's variables (JSON); read anew where a prompt names one")
	flags.StringVar(&prices, "prices", "", "file with the prices of models (JSON); read anew for every answer of a model")
	flags.StringVar(&opts.RunnerID, "runner-id", "", "name of this process; the host name when empty")
	flags.IntVar(&opts.Concurrency, "concurrency", 10, "most runs at a time")
	flags.DurationVar(&opts.Grace, "grace", 30*time.Second, "time that runs have after SIGTERM; less than the pod's grace period")
	flags.IntVar(&opts.Bundles, "bundles", 16, "most bundles held in memory")
	target.add(flags)
	asked.Bind(flags)
	out.Bind(flags)
	return cmd
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
