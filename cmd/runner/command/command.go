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
	"strings"
	"syscall"
	"time"
	_ "time/tzdata" // The image has no time zones of its own.

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/agentplatform/agentplatform/internal/dispatch"
	"github.com/agentplatform/agentplatform/internal/egress"
	"github.com/agentplatform/agentplatform/runner/engine"
)

// envPrefix begins the variables that flags fall back to: --dispatch-url is
// AGENTPLATFORM_DISPATCH_URL.
const envPrefix = "AGENTPLATFORM_"

// Main runs the command line until SIGTERM or SIGINT, and exits 1 when it fails.
// A runner has the built-in tools and those given.
func Main(tools ...engine.Tool) {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	if err := rootCommand(append(engine.Builtin(time.Now), tools...)).ExecuteContext(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "runner:", err)
		os.Exit(1)
	}
}

func rootCommand(tools []engine.Tool) *cobra.Command {
	root := &cobra.Command{
		Use:   "runner",
		Short: "Build agents from Git and execute their runs",
		Long: "Build agents from Git and execute their runs.\n\nEvery flag falls back to a variable: --dispatch-url is " +
			envPrefix + "DISPATCH_URL.",
		SilenceUsage: true, SilenceErrors: true,
		PersistentPreRunE: func(cmd *cobra.Command, _ []string) error {
			slog.SetDefault(slog.New(slog.NewJSONHandler(os.Stderr, nil)))
			return fromEnvironment(cmd.Flags())
		},
	}
	build := &cobra.Command{Use: "build", Short: "The two steps of a build, which share a folder", Args: cobra.NoArgs}
	build.AddCommand(fetchCommand(), packCommand(tools))
	root.AddCommand(build, serveCommand(tools))
	return root
}

// fromEnvironment sets the flags that were not given.
func fromEnvironment(flags *pflag.FlagSet) error {
	var failed error
	flags.VisitAll(func(f *pflag.Flag) {
		name := envPrefix + strings.ToUpper(strings.ReplaceAll(f.Name, "-", "_"))
		if value, ok := os.LookupEnv(name); ok && !f.Changed && failed == nil {
			if err := flags.Set(f.Name, value); err != nil {
				failed = fmt.Errorf("reading %s: %w", name, err)
			}
		}
	})
	return failed
}

// dispatchFlags are how to reach the gateway's internal port.
type dispatchFlags struct{ url, tokenFile string }

func (d *dispatchFlags) add(flags *pflag.FlagSet) {
	flags.StringVar(&d.url, "dispatch-url", "", "address of the dispatch port, such as http://webhookgw-dispatch:8081 (required)")
	flags.StringVar(&d.tokenFile, "token-file", "", "file with the dispatch token (required)")
}

func (d *dispatchFlags) client() (*dispatch.Client, error) {
	return dispatch.NewClient(dispatch.Options{URL: d.url, TokenFile: d.tokenFile})
}

// egressFlag opens ranges that are refused otherwise.
type egressFlag struct{ text string }

func (e *egressFlag) add(flags *pflag.FlagSet) {
	flags.StringVar(&e.text, "allow-egress", "", "ranges that may be reached although they are not public, such as git=10.0.0.0/8,model=10.1.2.0/24")
}

func (e *egressFlag) guard() (*egress.Guard, error) {
	allowed, err := egress.ParseAllowed(e.text)
	if err != nil {
		return nil, err
	}
	return egress.New(allowed), nil
}
