// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/spf13/pflag"
	"golang.org/x/sync/errgroup"

	"github.com/agentplatform/agentplatform/cmd/internal/observe"
	"github.com/agentplatform/agentplatform/cmd/internal/open"
	"github.com/agentplatform/agentplatform/internal/egress"
	"github.com/agentplatform/agentplatform/internal/httpserver"
	"github.com/agentplatform/agentplatform/internal/keyring"
	"github.com/agentplatform/agentplatform/internal/metrics"
	"github.com/agentplatform/agentplatform/internal/pause"
	"github.com/agentplatform/agentplatform/store"
	"github.com/agentplatform/agentplatform/webhookgw"
)

type options struct {
	store                    open.Options
	publicAddr, internalAddr string
	trustedProxies           string
	publicTLS, internalTLS   httpserver.TLSFiles
	observe                  observe.Flags
	drain, retention         time.Duration
	connections              int
	reviewBudget             int64
	keysDir                  string
	egress                   egress.Flags
}

func (o *options) bind(flags *pflag.FlagSet) {
	o.store.Bind(flags)
	flags.StringVar(&o.publicAddr, "public-addr", ":8080", "address of the webhook port")
	flags.StringVar(&o.internalAddr, "internal-addr", ":8081", "address of the dispatch port, for runners and builds only")
	flags.StringVar(&o.trustedProxies, "trusted-proxies", "", "ranges of proxies whose X-Forwarded-For is believed, and whose connections are closed last: 10.0.0.0/8,10.1.0.0/16")
	o.publicTLS.Bind(flags, "public", "the webhook port")
	o.internalTLS.Bind(flags, "internal", "the dispatch port")
	o.observe.Bind(flags)
	o.egress.Bind(flags)
	flags.StringVar(&o.keysDir, "keys-dir", "", "folder where the Secret of the platform's keys is mounted, which deliveries are signed with; without it results are not delivered by this process")
	flags.DurationVar(&o.drain, "drain", webhookgw.DefaultDrain, "how long webhooks may take to end after SIGTERM, those included that wait for an agent's answer; the pod's grace period must be 20 s longer")
	flags.Int64Var(&o.reviewBudget, "review-budget", store.DefaultReviewBudget, "how many bytes of an event's files agents are given; the content of those beyond is stored, and omitted from what models are asked; 0 for the default")
	flags.DurationVar(&o.retention, "retention", store.Retention, "how long history is kept, by whole days in UTC: runs, their contents, deliveries and the audit log; at least 48h, 0 for the default")
	flags.IntVar(&o.connections, "max-connections", httpserver.DefaultConnections, "how many connections each port has at a time; for those beyond, idle ones are closed, and where none is they wait")
}

func run(ctx context.Context, opts *options) error {
	proxies, err := httpserver.ParseProxies(opts.trustedProxies)
	if err != nil {
		return fmt.Errorf("reading --trusted-proxies: %w", err)
	}
	rules, err := opts.egress.Rules()
	if err != nil {
		return err
	}
	st, err := open.Store(ctx, opts.store)
	if err != nil {
		return err
	}
	defer st.Close()
	registry := metrics.NewRegistry()
	metrics.Build(registry, metrics.ProcessGateway)
	gatewayOptions := webhookgw.Options{
		Store: st, PublicAddr: opts.publicAddr, InternalAddr: opts.internalAddr, TrustedProxies: proxies,
		PublicTLS: opts.publicTLS, InternalTLS: opts.internalTLS, Grace: max(opts.drain, 1), // for 0 means the default
		Farewell: httpserver.Farewell, MaxConnections: opts.connections, ReviewBudget: opts.reviewBudget, Retention: opts.retention, Registry: registry, Guard: egress.New(rules),
	}
	follower := opts.follower(st)
	if follower != nil {
		gatewayOptions.Keys = follower.Keys
	}
	gateway, err := webhookgw.New(gatewayOptions)
	if err != nil {
		return err
	}
	return opts.observe.Run(ctx, observe.Process{Metrics: registry, Ready: gateway.Ready}, func(ctx context.Context) error {
		group, ctx := errgroup.WithContext(ctx)
		group.Go(func() error { return gateway.Run(ctx) })
		if follower != nil {
			group.Go(func() error { return follow(ctx, follower) })
		}
		return group.Wait()
	})
}

// follower keeps the keys that deliveries and providers sign with; nil where none are mounted.
func (o *options) follower(st store.Store) *keyring.Follower {
	if o.keysDir == "" {
		return nil
	}
	return &keyring.Follower{
		Read: keyring.FromFolder(o.keysDir), Register: st, Process: keyring.ProcessName("gateway"), Keys: &keyring.Keys{}, Logger: slog.Default(),
	}
}

// follow keeps the keys as they are. Whatever keeps them away keeps deliveries waiting, and
// lets webhooks that a provider signs come again; others need none.
func follow(ctx context.Context, follower *keyring.Follower) error {
	for {
		err := follower.Await(ctx)
		if err == nil {
			return follower.Run(ctx)
		}
		if ctx.Err() == nil {
			follower.Logger.ErrorContext(ctx, "taking up the platform's keys; nothing is delivered, and no webhook taken that a provider signs, until then", "error", err)
		}
		if pause.For(ctx, keyring.Interval) != nil {
			return nil
		}
	}
}
