// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"golang.org/x/sync/errgroup"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/agentplatform/agentplatform/apiserver"
	"github.com/agentplatform/agentplatform/apiserver/rest"
	"github.com/agentplatform/agentplatform/controllers"
	"github.com/agentplatform/agentplatform/controllers/cached"
	"github.com/agentplatform/agentplatform/controllers/platformkeys"
	"github.com/agentplatform/agentplatform/internal/egress"
	"github.com/agentplatform/agentplatform/internal/httpserver"
	"github.com/agentplatform/agentplatform/internal/namespaces"
	"github.com/agentplatform/agentplatform/internal/pause"
	"github.com/agentplatform/agentplatform/internal/plan"
	"github.com/agentplatform/agentplatform/internal/secrets"
	"github.com/agentplatform/agentplatform/store"
	"github.com/agentplatform/agentplatform/webhookgw"
)

// runManager brings the schema up to date and runs the controllers.
func runManager(ctx context.Context, p *process) error {
	if err := p.awaitStore(ctx); err != nil {
		return err
	}
	if err := p.store.Migrate(ctx); err != nil {
		return fmt.Errorf("bringing the store's schema up to date: %w", err)
	}
	return p.controllers(ctx)
}

// awaitStore waits while the store serves another cluster, because this process must not change another cluster's schema. A
// store without a schema serves no cluster yet.
func (p *process) awaitStore(ctx context.Context) error {
	held, err := p.store.Cluster(ctx)
	if errors.Is(err, store.ErrNotFound) {
		return nil
	}
	if err != nil { // the error does not identify the owner
		return fmt.Errorf("asking whom the store serves: %w", err)
	}
	c, err := p.uncached()
	if err != nil {
		return err
	}
	uid, err := controllers.ClusterUID(ctx, c)
	if err != nil || uid == held.ClusterUID {
		return err
	}
	lease := &controllers.Lease{Store: p.countedLeases(), ClusterUID: uid, PlatformID: held.PlatformID, Logger: p.logger}
	if err := lease.Await(ctx); err != nil {
		return fmt.Errorf("waiting for the store: %w", err)
	}
	return nil
}

// controllers runs the controllers until ctx ends or leadership is lost.
func (p *process) controllers(ctx context.Context) error {
	projects, err := plan.Load(p.planFile)
	if err != nil {
		return err
	}
	c, err := p.uncached()
	if err != nil {
		return err
	}
	image, err := p.podImage(ctx, c)
	if err != nil {
		return err
	}
	within, err := p.readable(ctx, c)
	if err != nil {
		return err
	}
	mgr, err := p.newManager(within)
	if err != nil {
		return err
	}
	given, err := p.givenPlatform()
	if err != nil {
		return err
	}
	secret := platformkeys.Secret{Client: c, Namespace: p.namespace}
	platformID, err := secret.Ensure(ctx, p.store, given)
	if err != nil {
		return fmt.Errorf("looking for the platform's keys: %w", err)
	}
	uid, err := controllers.ClusterUID(ctx, c)
	if err != nil {
		return err
	}
	lease := &controllers.Lease{Store: p.countedLeases(), ClusterUID: uid, PlatformID: platformID, Logger: p.logger}
	if err := lease.Await(ctx); err != nil {
		return fmt.Errorf("taking the lease on the store: %w", err)
	}
	control := p.store.ForCluster(uid)
	keys := &platformkeys.Keeper{Secret: secret, Store: control, Follower: p.follower("manager", p.keys, secret.Read), Logger: p.logger}
	if err := keys.Begin(ctx); err != nil {
		return fmt.Errorf("taking up the platform's keys: %w", err)
	}
	err = controllers.Register(ctx, mgr, controllers.Options{
		Store: control, Hints: p.store, Lease: lease, PlatformID: platformID, Keys: keys.Follower.Keys, KeyKeeper: keys, Image: image,
		DispatchURL: p.dispatchURL, GatewayURL: p.gatewayURL, Egress: p.Egress, SystemNamespace: p.namespace,
		DispatchTLSSecret: p.dispatchTLSSecret, APITLSSecret: p.apiTLSSecret, Namespaces: within,
		RatesURL: p.ratesURL, Plan: &projects, SweepLimit: p.sweepLimit, Workers: p.workers, StabilizationWindow: p.stabilization, Metrics: p.manager,
	})
	if err != nil {
		return fmt.Errorf("registering the controllers: %w", err)
	}
	p.readyWhen(cachesSynced(mgr.GetCache()))
	return mgr.Start(ctx)
}

func (p *process) newManager(within namespaces.Set) (ctrl.Manager, error) {
	cluster, err := p.kubernetes()
	if err != nil {
		return nil, err
	}
	return controllers.NewManager(cluster, controllers.ManagerOptions{
		SystemNamespace: p.namespace, LeaderElect: p.leaderElect, Namespaces: within,
	})
}

// readable returns the namespaces of --watch-namespaces that grant the manager its role. An empty result stands for all
// namespaces if the flag is not set.
func (p *process) readable(ctx context.Context, r client.Reader) (namespaces.Set, error) {
	within, forbidden, err := p.within.Readable(ctx, r, cached.Kinds()...)
	switch {
	case err != nil:
		return nil, err
	case len(p.within) > 0 && len(within) == 0:
		return nil, fmt.Errorf("--watch-namespaces: the manager has no permissions in any of %v; bind its role there", []string(p.within))
	case len(forbidden) > 0:
		p.logger.ErrorContext(ctx, "namespaces are left out until the next start: bind the manager's role there", "namespaces", forbidden)
	}
	return within, nil
}

// runAPIServer serves the facade.
func runAPIServer(ctx context.Context, p *process) error {
	c, err := p.uncached()
	if err != nil {
		return err
	}
	read := platformkeys.Secret{Client: c, Namespace: p.namespace}.Read
	if p.KeysDir != "" {
		read = secrets.RingFromFolder(p.KeysDir)
	}
	follower := p.follower("facade", &secrets.Keys{}, read)
	if err := follower.Await(ctx); err != nil {
		return fmt.Errorf("taking up the platform's keys: %w", err)
	}
	lease, err := p.store.Cluster(ctx) // the process that activated the keys holds the lease
	if err != nil {
		return fmt.Errorf("reading the platform's id: %w", err)
	}
	uid, err := controllers.ClusterUID(ctx, c)
	if err != nil {
		return err
	}
	index := rest.NewIndex(countLookups(c, p.facade), p.within, p.logger)
	facade, err := apiserver.New(apiserver.Options{
		Options: rest.Options{
			Client: p.within.Client(c), Index: index, PlatformID: lease.PlatformID,
			TrustedProxies: p.proxies, GitOpsManagers: p.gitOpsManagers, Logger: p.logger, Stopping: ctx.Done(),
		},
		Store: p.store, Claims: p.store.ForCluster(uid), Keys: follower.Keys, GatewayURL: p.gatewayURL,
	})
	if err != nil {
		return err
	}
	server, err := httpserver.New(p.facadeOptions(facade.Handler()))
	if err != nil {
		return err
	}
	p.readyWhen(index.Ready)
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return follower.Run(ctx) })
	group.Go(func() error { return index.Run(ctx) })
	group.Go(func() error { return server.Run(ctx) })
	return group.Wait()
}

// runAll runs everything in one process. The gateway starts first and depends
// on the store alone; controllers and facade come and go with the Kubernetes API.
func runAll(ctx context.Context, p *process) error {
	if err := p.store.Migrate(ctx); err != nil {
		return fmt.Errorf("bringing the store's schema up to date: %w", err)
	}
	rules, err := p.Egress.Rules()
	if err != nil {
		return err
	}
	opts := p.gatewayOptions()
	opts.Keys, opts.Guard = p.keys, egress.New(rules)
	mounted := p.KeysDir
	p.KeysDir = "" // the facade is here with the controllers, and has the Secret as soon as they
	gateway, err := webhookgw.New(opts)
	if err != nil {
		return err
	}
	p.ready.Set(gateway.Ready) // regardless of the other parts
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return gateway.Run(ctx) })
	group.Go(func() error {
		p.takeUpKeys(ctx, mounted)
		return nil
	})
	group.Go(func() error {
		p.retryPart(ctx, "controllers", p.controllers)
		return nil
	})
	group.Go(func() error {
		p.retryPart(ctx, "facade", func(ctx context.Context) error { return runAPIServer(ctx, p) })
		return nil
	})
	return group.Wait()
}

// facadeOptions returns the options of the facade's port.
func (p *process) facadeOptions(handler http.Handler) httpserver.Options {
	return httpserver.Options{
		Name: "facade", Addr: p.apiAddr, TLS: p.apiTLS, Handler: p.facade.Count(handler),
		Grace: p.Grace(), Farewell: httpserver.Farewell, MaxConnections: p.MaxConnections,
	}
}

// takeUpKeys reads the mounted keys until the process has keys, so that the gateway delivers results even if Kubernetes is
// unavailable.
func (p *process) takeUpKeys(ctx context.Context, mounted string) {
	if mounted == "" {
		return
	}
	follower := p.follower("gateway", p.keys, secrets.RingFromFolder(mounted))
	for p.keys.SealingKey() == "" {
		err := follower.Refresh(ctx)
		if pause.For(ctx, keysInterval) != nil {
			return
		}
		if err != nil && p.keys.SealingKey() == "" {
			p.logger.InfoContext(ctx, "no keys are mounted yet; nothing is delivered until they are, or the controllers have them", "error", err)
		}
	}
}

// keysInterval is the polling interval for mounted keys.
const keysInterval = 2 * time.Second

// gatewayOptions returns the options of the gateway in this process.
func (p *process) gatewayOptions() webhookgw.Options {
	return webhookgw.Options{
		Store: p.store, PublicAddr: p.PublicAddr, InternalAddr: p.InternalAddr, TrustedProxies: p.proxies,
		PublicTLS: p.PublicTLS, InternalTLS: p.InternalTLS, Grace: p.Grace(), Farewell: httpserver.Farewell,
		MaxConnections: p.MaxConnections, ReviewBudget: p.ReviewBudget, Retention: p.Retention, Registry: p.registry, Logger: p.logger,
	}
}
