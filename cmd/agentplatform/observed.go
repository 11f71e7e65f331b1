// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"time"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/agentplatform/agentplatform/cmd/internal/observe"
	"github.com/agentplatform/agentplatform/controllers"
	"github.com/agentplatform/agentplatform/internal/metrics"
	"github.com/agentplatform/agentplatform/internal/probe"
	"github.com/agentplatform/agentplatform/store"
)

// registerMetrics registers the metrics of the process.
func (p *process) registerMetrics() {
	p.registry = prometheus.NewRegistry()
	if p.name == metrics.ProcessFacade {
		p.registry = metrics.NewRegistry()
	} else {
		p.manager = metrics.NewManager(p.registry)
	}
	if p.name != metrics.ProcessManager {
		p.facade = metrics.NewFacade(p.registry)
	}
	metrics.Build(p.registry, p.name)
}

// observed returns the metrics and the readiness check of the process. The controllers' registry also contains the metrics of
// Go and of the process.
func (p *process) observed() observe.Process {
	shown := prometheus.Gatherers{p.registry}
	if p.name != metrics.ProcessFacade {
		shown = append(shown, ctrlmetrics.Registry)
	}
	return observe.Process{Metrics: shown, Ready: p.schema.Ready(p.ready.Check)}
}

// syncPatience is how long a probe waits for the caches.
const syncPatience = 500 * time.Millisecond

// cachesSynced returns a check that is ready when the manager's caches match Kubernetes. The caches of a manager that waits for
// leadership are empty.
func cachesSynced(caches cache.Cache) probe.Check {
	return func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, syncPatience)
		defer cancel()
		if !caches.WaitForCacheSync(ctx) {
			return errors.New("the informer caches have not synced yet")
		}
		return nil
	}
}

// readyWhen makes check the readiness of the process, unless the gateway is a part of the process. Then the gateway determines
// the readiness.
func (p *process) readyWhen(check probe.Check) {
	if p.name != metrics.ProcessAll {
		p.ready.Set(check)
	}
}

// countedLeases is the store as the lease on it is taken.
func (p *process) countedLeases() store.Clusters {
	return countedLease{Clusters: p.store, metrics: p.manager, now: time.Now}
}

// countedLease counts the renewals and failures of the lease on the store.
type countedLease struct {
	store.Clusters
	metrics *metrics.Manager
	now     func() time.Time
}

// HoldCluster implements store.Clusters.
func (c countedLease) HoldCluster(ctx context.Context, uid string, platform uuid.UUID) error {
	err := c.Clusters.HoldCluster(ctx, uid, platform)
	switch {
	case err == nil:
		c.metrics.LeaseRenewed(c.now())
	case errors.As(err, new(*store.ForeignClusterError)), errors.As(err, new(*store.ForeignPlatformError)):
		c.metrics.LeaseFailed(metrics.LeaseForeign)
	case ctx.Err() == nil:
		c.metrics.LeaseFailed(metrics.LeaseUnavailable)
	}
	return err
}

// countLookups counts the API keys that are looked for in Kubernetes: the lists that
// are narrowed by a field. Informers ask for all of a namespace.
func countLookups(c client.WithWatch, counted *metrics.Facade) client.WithWatch {
	return interceptor.NewClient(c, interceptor.Funcs{
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
			err := c.List(ctx, list, opts...)
			asked := (&client.ListOptions{}).ApplyOptions(opts)
			if asked.FieldSelector != nil && !asked.FieldSelector.Empty() {
				counted.LookedUp(err)
			}
			return err
		},
	})
}

// podImage is the image of build and runner pods.
func (p *process) podImage(ctx context.Context, c client.Reader) (string, error) {
	if p.image != "" {
		return p.image, nil
	}
	if p.podName == "" {
		return "", errors.New("build and runner pods need an image: set --image, or --pod-name and --container-name in a pod of the platform")
	}
	return controllers.OwnImage(ctx, c, types.NamespacedName{Namespace: p.namespace, Name: p.podName}, p.containerName)
}
