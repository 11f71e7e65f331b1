// SPDX-License-Identifier: Apache-2.0

// Package command is the command line of the runner: the steps of a build, and
// the pool that executes agent runs. It never talks to Kubernetes.
package command

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"syscall"
	"time"
	_ "time/tzdata" // The image has no time zones of its own.

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/agentplatform/agentplatform/cmd/internal/flagenv"
	"github.com/agentplatform/agentplatform/cmd/internal/scriptchild"
	"github.com/agentplatform/agentplatform/internal/dispatchapi"
	"github.com/agentplatform/agentplatform/internal/egress"
	"github.com/agentplatform/agentplatform/runner/engine"
)

// Main runs the command line until SIGTERM or SIGINT, and exits 1 when it fails.
// A runner has the built-in tools and those given.
func Main(tools ...engine.Tool) {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	slog.SetDefault(slog.New(slog.NewJSONHandler(os.Stderr, nil)))
	if err := rootCommand(append(engine.Builtin(time.Now), tools...)).ExecuteContext(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "runner:", err)
		os.Exit(1)
	}
}

func rootCommand(tools []engine.Tool) *cobra.Command {
	root := &cobra.Command{
		Use:          "runner",
		Short:        "Build agents from Git and execute their runs",
		SilenceUsage: true, SilenceErrors: true,
	}
	build := &cobra.Command{Use: "build", Short: "The two steps of a build, which share a folder", Args: cobra.NoArgs}
	build.AddCommand(fetchCommand(), packCommand(tools))
	root.AddCommand(build, serveCommand(tools), scriptchild.New())
	flagenv.Bind(root)
	return root
}

// dispatchFlags are how to reach the gateway's internal port.
type dispatchFlags struct{ url, tokenFile, caFile string }

func (d *dispatchFlags) bindFlags(flags *pflag.FlagSet) {
	flags.StringVar(&d.url, "dispatch-url", "", "URL of the internal port of the gateway, such as https://webhookgw-dispatch:8081 (required)")
	flags.StringVar(&d.tokenFile, "token-file", "", "file with the dispatch token (required)")
	flags.StringVar(&d.caFile, "dispatch-ca-file", "", "file with the certificate authorities (PEM) of that port; if empty, the system's authorities")
}

func (d *dispatchFlags) newClient() (*dispatchapi.Client, error) {
	return dispatchapi.NewClient(dispatchapi.Options{URL: d.url, TokenFile: d.tokenFile, CAFile: d.caFile})
}

// guardOf makes the guard that the operator's flags ask for.
func guardOf(flags egress.Flags) (*egress.Guard, error) {
	rules, err := flags.Rules()
	if err != nil {
		return nil, err
	}
	return egress.New(rules), nil
}
