// SPDX-License-Identifier: Apache-2.0

// Command agentplatform is the control plane: `manager` runs the controllers,
// `apiserver` the REST facade, and `all` both of them and the webhook gateway
// in one process.
package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"syscall"

	"github.com/go-logr/logr"
	"github.com/spf13/cobra"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/agentplatform/agentplatform/cmd/internal/flagenv"
	"github.com/agentplatform/agentplatform/internal/metrics"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	logger := slog.New(slog.NewJSONHandler(os.Stderr, nil))
	slog.SetDefault(logger)
	ctrl.SetLogger(logr.FromSlogHandler(logger.Handler()))
	if err := newRootCommand().ExecuteContext(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "agentplatform:", err)
		os.Exit(1)
	}
}

func newRootCommand() *cobra.Command {
	root := &cobra.Command{
		Use:           "agentplatform",
		Short:         "The control plane of Agent Platform",
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	root.AddCommand(
		newCommand(metrics.ProcessManager, "Run the controllers, as the elected leader; bring the store's schema up to date", runManager),
		newCommand(metrics.ProcessFacade, "Serve the REST facade /v1", runAPIServer),
		newCommand(metrics.ProcessAll, "Run gateway, controllers and facade in one process", runAll),
	)
	flagenv.Bind(root)
	return root
}

// newCommand returns a subcommand that accepts the flags with an effect on it, and opens the resources that they name.
func newCommand(use, short string, run func(context.Context, *process) error) *cobra.Command {
	opts := &options{}
	cmd := &cobra.Command{
		Use: use, Short: short, Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			p, err := newProcess(cmd.Context(), use, opts)
			if err != nil {
				return err
			}
			defer p.store.Close()
			return p.runWork(cmd.Context(), run)
		},
	}
	opts.bindFlags(cmd.Flags(), use)
	return cmd
}
