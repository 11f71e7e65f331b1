// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"log/slog"

	"golang.org/x/sync/errgroup"

	"github.com/agentplatform/agentplatform/cmd/internal/gateway"
	"github.com/agentplatform/agentplatform/cmd/internal/observe"
	"github.com/agentplatform/agentplatform/cmd/internal/open"
	"github.com/agentplatform/agentplatform/internal/egress"
	"github.com/agentplatform/agentplatform/internal/httpserver"
	"github.com/agentplatform/agentplatform/internal/metrics"
	"github.com/agentplatform/agentplatform/internal/pause"
	"github.com/agentplatform/agentplatform/internal/secrets"
	"github.com/agentplatform/agentplatform/store"
	"github.com/agentplatform/agentplatform/webhookgw"
)

func serveGateway(ctx context.Context, flags *gateway.Flags, schema *open.SchemaWatch) error {
	proxies, err := httpserver.ParseProxies(flags.TrustedProxies)
	if err != nil {
		return fmt.Errorf("reading --trusted-proxies: %w", err)
	}
	rules, err := flags.Egress.Rules()
	if err != nil {
		return err
	}
	st, err := open.Store(ctx, flags.Store)
	if err != nil {
		return err
	}
	defer st.Close()
	registry := metrics.NewRegistry()
	metrics.Build(registry, metrics.ProcessGateway)
	gatewayOptions := webhookgw.Options{
		Store: st, PublicAddr: flags.PublicAddr, InternalAddr: flags.InternalAddr, TrustedProxies: proxies,
		PublicTLS: flags.PublicTLS, InternalTLS: flags.InternalTLS, Grace: flags.Grace(),
		Farewell: httpserver.Farewell, MaxConnections: flags.MaxConnections, ReviewBudget: flags.ReviewBudget, Retention: flags.Retention,
		Registry: registry, Guard: egress.New(rules),
	}
	follower := newFollower(flags.KeysDir, st)
	if follower != nil {
		gatewayOptions.Keys = follower.Keys
	}
	server, err := webhookgw.New(gatewayOptions)
	if err != nil {
		return err
	}
	schema.Store = st
	return flags.Observe.Run(ctx, observe.Process{Metrics: registry, Ready: schema.Ready(server.Ready)}, func(ctx context.Context) error {
		return schema.Run(ctx, func(ctx context.Context) error {
			group, ctx := errgroup.WithContext(ctx)
			group.Go(func() error { return server.Run(ctx) })
			if follower != nil {
				group.Go(func() error { return followKeys(ctx, follower) })
			}
			return group.Wait()
		})
	})
}

// newFollower returns a follower of the mounted platform keys, which deliveries are signed and provider signatures verified
// with. It returns nil if no keys are mounted.
func newFollower(keysDir string, st store.Store) *secrets.Follower {
	if keysDir == "" {
		return nil
	}
	return &secrets.Follower{
		Read: secrets.RingFromFolder(keysDir), Register: st, Process: secrets.ProcessName("gateway"), Keys: &secrets.Keys{}, Logger: slog.Default(),
	}
}

// followKeys keeps the keys current. While the keys are unavailable, deliveries wait, and webhooks with a provider's
// signature are answered 503, so that the provider sends them again. Other webhooks need no key.
func followKeys(ctx context.Context, follower *secrets.Follower) error {
	for {
		err := follower.Await(ctx)
		if err == nil {
			return follower.Run(ctx)
		}
		if ctx.Err() == nil {
			follower.Logger.ErrorContext(ctx, "reading the platform keys; until then deliveries wait, and webhooks with a provider's signature are rejected", "error", err)
		}
		if pause.For(ctx, secrets.FollowInterval) != nil {
			return nil
		}
	}
}
