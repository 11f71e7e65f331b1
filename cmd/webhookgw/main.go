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
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/agentplatform/agentplatform/cmd/internal/flagenv"
	"github.com/agentplatform/agentplatform/cmd/internal/observe"
	"github.com/agentplatform/agentplatform/cmd/internal/open"
	"github.com/agentplatform/agentplatform/internal/httpserver"
	"github.com/agentplatform/agentplatform/internal/metrics"
	"github.com/agentplatform/agentplatform/webhookgw"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	slog.SetDefault(slog.New(slog.NewJSONHandler(os.Stderr, nil)))
	if err := newCommand().ExecuteContext(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "webhookgw:", err)
		os.Exit(1)
	}
}

type options struct {
	store                    open.Options
	publicAddr, internalAddr string
	trustedProxies           string
	publicTLS, internalTLS   httpserver.TLSFiles
	observe                  observe.Flags
	drain                    time.Duration
	connections              int
}

func (o *options) bind(flags *pflag.FlagSet) {
	o.store.Bind(flags)
	flags.StringVar(&o.publicAddr, "public-addr", ":8080", "address of the webhook port")
	flags.StringVar(&o.internalAddr, "internal-addr", ":8081", "address of the dispatch port, for runners and builds only")
	flags.StringVar(&o.trustedProxies, "trusted-proxies", "", "ranges of proxies whose X-Forwarded-For is believed, and whose connections are closed last: 10.0.0.0/8,10.1.0.0/16")
	o.publicTLS.Bind(flags, "public", "the webhook port")
	o.internalTLS.Bind(flags, "internal", "the dispatch port")
	o.observe.Bind(flags)
	flags.DurationVar(&o.drain, "drain", webhookgw.DefaultDrain, "how long webhooks may take to end after SIGTERM, those included that wait for an agent's answer; the pod's grace period must be 20 s longer")
	flags.IntVar(&o.connections, "max-connections", httpserver.DefaultConnections, "how many connections each port has at a time; for those beyond, idle ones are closed, and where none is they wait")
}

func newCommand() *cobra.Command {
	opts := &options{}
	cmd := &cobra.Command{
		Use:           "webhookgw",
		Short:         "Take webhooks, hand their runs to runners, record what becomes of them",
		Args:          cobra.NoArgs,
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE:          func(cmd *cobra.Command, _ []string) error { return run(cmd.Context(), opts) },
	}
	opts.bind(cmd.Flags())
	flagenv.Bind(cmd)
	return cmd
}

func run(ctx context.Context, opts *options) error {
	proxies, err := httpserver.ParseProxies(opts.trustedProxies)
	if err != nil {
		return fmt.Errorf("reading --trusted-proxies: %w", err)
	}
	st, err := open.Store(ctx, opts.store)
	if err != nil {
		return err
	}
	defer st.Close()
	registry := metrics.NewRegistry()
	metrics.Build(registry, metrics.ProcessGateway)
	gateway, err := webhookgw.New(webhookgw.Options{
		Store: st, PublicAddr: opts.publicAddr, InternalAddr: opts.internalAddr, TrustedProxies: proxies,
		PublicTLS: opts.publicTLS, InternalTLS: opts.internalTLS, Grace: max(opts.drain, 1), // for 0 means the default
		Farewell: httpserver.Farewell, MaxConnections: opts.connections, Registry: registry,
	})
	if err != nil {
		return err
	}
	return opts.observe.Run(ctx, observe.Process{Metrics: registry, Ready: gateway.Ready}, gateway.Run)
}
