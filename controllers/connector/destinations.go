// SPDX-License-Identifier: Apache-2.0

package connector

import (
	"context"
	"log/slog"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
	"github.com/agentplatform/agentplatform/controllers/base"
	"github.com/agentplatform/agentplatform/internal/namespaces"
	"github.com/agentplatform/agentplatform/store"
)

const (
	// checkInterval is the interval of queries for destinations that fail or are paused. A Connector
	// reports a change with this delay.
	checkInterval = 30 * time.Second
	// pageSize is the number of destinations per query.
	pageSize = 500
)

// Destinations queues the connectors whose deliveries started to fail, were paused, or succeed again.
type Destinations struct {
	Store interface {
		TroubledDestinations(ctx context.Context, after store.Key, limit int) ([]store.TroubledDestination, error)
	}
	// Changed receives the connectors.
	Changed    chan<- event.GenericEvent
	Namespaces namespaces.Set
	Logger     *slog.Logger
	// Damper is shared with the controller.
	Damper *ReportDamper
}

// NeedLeaderElection reports true: only the leader queries.
func (d *Destinations) NeedLeaderElection() bool { return true }

// Start queries until ctx ends.
func (d *Destinations) Start(ctx context.Context) error {
	wait.UntilWithContext(ctx, func(ctx context.Context) {
		if err := d.CheckAll(ctx); err != nil && ctx.Err() == nil {
			d.Logger.ErrorContext(ctx, "reading failed destinations; Connectors report them later", "error", err)
		}
	}, checkInterval)
	return nil
}

// CheckAll queues the connectors whose reported state is outdated.
func (d *Destinations) CheckAll(ctx context.Context) error {
	seen := map[store.Key]bool{}
	var after store.Key
	for {
		page, err := d.Store.TroubledDestinations(ctx, after, pageSize)
		if err != nil {
			return err
		}
		for _, t := range page {
			after = t.Connector
			seen[after] = true
			if err := d.reportState(ctx, t.Ref, t.Destination); err != nil {
				return err
			}
		}
		if len(page) < pageSize {
			break
		}
	}
	for key, ref := range d.Damper.otherConnectors(seen) {
		if err := d.reportState(ctx, ref, store.Destination{Connector: key}); err != nil {
			return err
		}
	}
	return nil
}

func (d *Destinations) reportState(ctx context.Context, ref store.ObjectRef, seen store.Destination) error {
	if _, changed := d.Damper.stateToReport(ref, seen); changed {
		return d.queueConnector(ctx, ref)
	}
	return nil
}

func (d *Destinations) queueConnector(ctx context.Context, ref store.ObjectRef) error {
	if !d.Namespaces.Has(ref.Namespace) {
		return nil // a connector of another manager
	}
	c := &v1alpha1.Connector{}
	c.Namespace, c.Name = ref.Namespace, ref.Name
	return base.Queue(ctx, d.Changed, c)
}
