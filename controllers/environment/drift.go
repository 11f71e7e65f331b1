// SPDX-License-Identifier: Apache-2.0

package environment

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
	"github.com/agentplatform/agentplatform/controllers/base"
	"github.com/agentplatform/agentplatform/internal/namespaces"
	"github.com/agentplatform/agentplatform/store"
)

const (
	// driftInterval is the interval of queries for changed drift.
	driftInterval = time.Minute
	// driftPage is the number of environments per query.
	driftPage = 500
)

// reportDrift reports the drift of the live deployment's MCP tools, with an event if it has changed.
func (r *Reconciler) reportDrift(ctx context.Context, e *v1alpha1.Environment, live store.Key) error {
	drift, err := r.Store.Drift(ctx, live)
	if err != nil && !errors.Is(err, store.ErrNotFound) {
		return base.FromStore(err)
	}
	message := driftMessage(drift)
	if e.MarkToolsDrifted(message) && message != "" {
		r.Event(e, corev1.EventTypeWarning, v1alpha1.ReasonToolsChanged, message)
	}
	return nil
}

// driftMessage describes drift; "" if there is none.
func driftMessage(drift []store.MCPDrift) string {
	if len(drift) == 0 {
		return ""
	}
	var servers []string
	for _, d := range drift {
		tools := make([]string, len(d.Tools))
		for i, name := range d.Tools {
			tools[i] = fmt.Sprintf("%q", name)
		}
		servers = append(servers, fmt.Sprintf("agent %q, server %q: %s", d.Agent, d.Server, strings.Join(tools, ", ")))
	}
	return "MCP servers changed or removed tools that the live deployment pins. Review them and deploy again to pin the new list. " +
		strings.Join(servers, "; ")
}

// DriftWatch queues the Environments whose drift of MCP tools changed.
type DriftWatch struct {
	Store interface {
		DriftedEnvironments(ctx context.Context, after store.Key, limit int) ([]store.DriftedEnvironment, error)
	}
	// Changed receives the environments.
	Changed    chan<- event.GenericEvent
	Namespaces namespaces.Set
	Logger     *slog.Logger

	// known are the environments with drift at the last query. A new manager reconciles all environments anyway.
	known map[store.Key]store.DriftedEnvironment
}

// NeedLeaderElection reports true: only the leader queries.
func (d *DriftWatch) NeedLeaderElection() bool { return true }

// Start queries until ctx ends.
func (d *DriftWatch) Start(ctx context.Context) error {
	wait.UntilWithContext(ctx, func(ctx context.Context) {
		if err := d.CheckAll(ctx); err != nil && ctx.Err() == nil {
			d.Logger.ErrorContext(ctx, "reading the drift of MCP tools; Environments report it later", "error", err)
		}
	}, driftInterval)
	return nil
}

// CheckAll queues the environments whose drift changed since the last call.
func (d *DriftWatch) CheckAll(ctx context.Context) error {
	found := map[store.Key]store.DriftedEnvironment{}
	var after store.Key
	for {
		page, err := d.Store.DriftedEnvironments(ctx, after, driftPage)
		if err != nil {
			return err
		}
		for _, e := range page {
			after = e.Environment
			if d.Namespaces.Has(e.Ref.Namespace) {
				found[after] = e
			}
		}
		if len(page) < driftPage {
			break
		}
	}
	known := d.known
	d.known = found
	for key, e := range found {
		if before, ok := known[key]; ok && before.ChangedAt.Equal(e.ChangedAt) {
			continue
		}
		if err := d.queueEnvironment(ctx, e.Ref); err != nil {
			return err
		}
	}
	for key, e := range known {
		if _, ok := found[key]; ok {
			continue
		}
		if err := d.queueEnvironment(ctx, e.Ref); err != nil {
			return err
		}
	}
	return nil
}

func (d *DriftWatch) queueEnvironment(ctx context.Context, ref store.ObjectRef) error {
	e := &v1alpha1.Environment{}
	e.Namespace, e.Name = ref.Namespace, ref.Name
	return base.Queue(ctx, d.Changed, e)
}
