// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"

	"golang.org/x/sync/errgroup"

	"github.com/agentplatform/agentplatform/apiserver"
	"github.com/agentplatform/agentplatform/controllers"
	"github.com/agentplatform/agentplatform/internal/httpserver"
	"github.com/agentplatform/agentplatform/webhookgw"
)

// runManager brings the schema up to date and runs the controllers.
func runManager(ctx context.Context, p *process) error {
	if err := p.store.Migrate(ctx); err != nil {
		return fmt.Errorf("bringing the store's schema up to date: %w", err)
	}
	return p.controllers(ctx)
}

// controllers runs the controllers until ctx ends or leadership is lost.
func (p *process) controllers(ctx context.Context) error {
	cluster, err := p.kubernetes()
	if err != nil {
		return err
	}
	mgr, err := controllers.NewManager(cluster, controllers.ManagerOptions{
		SystemNamespace: p.namespace, LeaderElect: p.leaderElect, HealthAddr: p.healthAddr, MetricsAddr: p.metrics,
	})
	if err != nil {
		return err
	}
	c, err := p.uncached()
	if err != nil {
		return err
	}
	keys, err := controllers.EnsureKeys(ctx, c, p.namespace)
	if err != nil {
		return err
	}
	err = controllers.Register(mgr, controllers.Options{
		Store: p.store, DerivationKey: keys.Derivation, Sealer: keys.Sealer, Image: p.image, DispatchURL: p.dispatchURL,
		GatewayURL: p.gatewayURL, AllowedEgress: p.allowEgress, ClusterUID: keys.ClusterUID,
	})
	if err != nil {
		return fmt.Errorf("registering the controllers: %w", err)
	}
	return mgr.Start(ctx)
}

// runAPIServer serves the facade.
func runAPIServer(ctx context.Context, p *process) error {
	c, err := p.uncached()
	if err != nil {
		return err
	}
	keys, err := controllers.EnsureKeys(ctx, c, p.namespace)
	if err != nil {
		return err
	}
	facade, err := apiserver.New(apiserver.Options{
		Client: c, Store: p.store, DerivationKey: keys.Derivation, Sealer: keys.Sealer, GatewayURL: p.gatewayURL, Logger: p.logger,
	})
	if err != nil {
		return err
	}
	server, err := httpserver.New(httpserver.Options{Name: "facade", Addr: p.apiAddr, Handler: facade.Handler(), Grace: p.grace})
	if err != nil {
		return err
	}
	return server.Run(ctx)
}

// runAll runs everything in one process. The gateway starts first and depends
// on the store alone; controllers and facade come and go with the Kubernetes API.
func runAll(ctx context.Context, p *process) error {
	if err := p.store.Migrate(ctx); err != nil {
		return fmt.Errorf("bringing the store's schema up to date: %w", err)
	}
	gateway, err := webhookgw.New(webhookgw.Options{
		Store: p.store, PublicAddr: p.publicAddr, InternalAddr: p.internalAddr, Grace: p.grace, Logger: p.logger,
	})
	if err != nil {
		return err
	}
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return gateway.Run(ctx) })
	group.Go(func() error {
		p.retry(ctx, "controllers", p.controllers)
		return nil
	})
	group.Go(func() error {
		p.retry(ctx, "facade", func(ctx context.Context) error { return runAPIServer(ctx, p) })
		return nil
	})
	return group.Wait()
}
