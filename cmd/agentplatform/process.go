// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/agentplatform/agentplatform/cmd/internal/open"
	"github.com/agentplatform/agentplatform/controllers"
	"github.com/agentplatform/agentplatform/internal/httpserver"
	"github.com/agentplatform/agentplatform/internal/metrics"
	"github.com/agentplatform/agentplatform/internal/namespaces"
	"github.com/agentplatform/agentplatform/internal/pause"
	"github.com/agentplatform/agentplatform/internal/probe"
	"github.com/agentplatform/agentplatform/internal/secrets"
	"github.com/agentplatform/agentplatform/store"
)

// process holds the state that all subcommands share.
type process struct {
	*options
	name    string // of the subcommand
	store   store.Store
	scheme  *runtime.Scheme
	proxies httpserver.Proxies
	logger  *slog.Logger
	// keys are the controllers' keys. The gateway of the same process delivers with them.
	keys *secrets.Keys
	// within are the namespaces of projects that the process works in.
	within namespaces.Set
	// registry holds the metrics of the process, except for the controllers' metrics, which have a separate registry.
	registry *prometheus.Registry
	manager  *metrics.Manager
	facade   *metrics.Facade
	// ready reports whether the process can do its work.
	ready probe.Readiness
	// schema stops the work if a newer release excludes this one.
	schema open.SchemaWatch
}

// runWork runs a subcommand and serves health and metrics.
func (p *process) runWork(ctx context.Context, run func(context.Context, *process) error) error {
	p.schema.Store = p.store
	return p.Observe.Run(ctx, p.observed(), func(ctx context.Context) error {
		return p.schema.Run(ctx, func(ctx context.Context) error { return run(ctx, p) })
	})
}

func newProcess(ctx context.Context, name string, opts *options) (*process, error) {
	scheme, err := controllers.Scheme()
	if err != nil {
		return nil, err
	}
	proxies, err := httpserver.ParseProxies(opts.TrustedProxies)
	if err != nil {
		return nil, fmt.Errorf("reading --trusted-proxies: %w", err)
	}
	within, err := namespaces.New(opts.watchNamespaces)
	if err != nil {
		return nil, err
	}
	st, err := open.Store(ctx, opts.Store)
	if err != nil {
		return nil, err
	}
	p := &process{
		options: opts, name: name, store: st, scheme: scheme, proxies: proxies, logger: slog.Default(), within: within,
		keys: &secrets.Keys{},
	}
	p.registerMetrics()
	return p, nil
}

// kubernetes finds the cluster: in a pod its own, else that of the kubeconfig.
func (p *process) kubernetes() (*rest.Config, error) {
	config, err := ctrl.GetConfig()
	if err != nil {
		return nil, fmt.Errorf("finding the Kubernetes API (in a pod, or by KUBECONFIG): %w", err)
	}
	config.QPS = -1 // the API server's priority and fairness decides
	return config, nil
}

// givenPlatform is the id of --platform-id, or none.
func (p *process) givenPlatform() (uuid.UUID, error) {
	if p.platformID == "" {
		return uuid.Nil, nil
	}
	id, err := uuid.Parse(p.platformID)
	if err != nil {
		return uuid.Nil, fmt.Errorf("reading --platform-id: %w", err)
	}
	return id, nil
}

// follower keeps the platform's keys as they are read; keys has none yet.
func (p *process) follower(role string, keys *secrets.Keys, read func(context.Context) (secrets.Ring, error)) *secrets.Follower {
	return &secrets.Follower{Read: read, Register: p.store, Process: secrets.ProcessName(role), Keys: keys, Logger: p.logger}
}

// uncached returns a client that reads from kube-apiserver without a cache.
func (p *process) uncached() (client.WithWatch, error) {
	config, err := p.kubernetes()
	if err != nil {
		return nil, err
	}
	c, err := client.NewWithWatch(config, client.Options{Scheme: p.scheme})
	if err != nil {
		return nil, fmt.Errorf("reaching the Kubernetes API: %w", err)
	}
	return c, nil
}

// retryPart runs part again whenever it fails, with growing pauses, until ctx ends.
func (p *process) retryPart(ctx context.Context, name string, part func(context.Context) error) {
	pauses := wait.Backoff{Duration: time.Second, Factor: 2, Jitter: 0.2, Steps: 5, Cap: 30 * time.Second}
	for ctx.Err() == nil {
		err := part(ctx)
		if ctx.Err() != nil {
			return
		}
		next := pauses.Step()
		p.logger.Error("running a part of the process; it is started again", "part", name, "error", err, "in", next.String())
		_ = pause.For(ctx, next) // the loop looks at ctx
	}
}
