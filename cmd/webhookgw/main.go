// SPDX-License-Identifier: Apache-2.0

// Command webhookgw is the webhook gateway. It links no Kubernetes library.
package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/agentplatform/agentplatform/cmd/internal/flagenv"
	"github.com/agentplatform/agentplatform/cmd/internal/gateway"
	"github.com/agentplatform/agentplatform/cmd/internal/open"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	slog.SetDefault(slog.New(slog.NewJSONHandler(os.Stderr, nil)))
	if err := newCommand(&open.SchemaWatch{}).ExecuteContext(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "webhookgw:", err)
		os.Exit(1)
	}
}

// newCommand returns the command. Its process stops when schema finds that it cannot use the schema of its store.
func newCommand(schema *open.SchemaWatch) *cobra.Command {
	flags := &gateway.Flags{}
	cmd := &cobra.Command{
		Use:           "webhookgw",
		Short:         "Serve webhooks, dispatch runs to runners, and deliver results",
		Args:          cobra.NoArgs,
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE:          func(cmd *cobra.Command, _ []string) error { return serveGateway(cmd.Context(), flags, schema) },
	}
	flags.Bind(cmd.Flags())
	flagenv.Bind(cmd)
	return cmd
}
