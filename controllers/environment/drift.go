// SPDX-License-Identifier: Apache-2.0

package environment

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
	"github.com/agentplatform/agentplatform/controllers/base"
	"github.com/agentplatform/agentplatform/internal/excerpt"
	"github.com/agentplatform/agentplatform/internal/namespaces"
	"github.com/agentplatform/agentplatform/store"
)

const (
	// driftCheckInterval is the interval of queries for changed drift.
	driftCheckInterval = time.Minute
	// driftPage is the number of environments per query.
	driftPage = 500
	// maxDriftServers is the number of servers in a message, and maxDriftNames that of tools per server. A longer name of a tool
	// than maxDriftName bytes is cut. The limits keep a message below the size limit of conditions.
	maxDriftServers = 3
	maxDriftNames   = 3
	maxDriftName    = 20
)

// reportDrift reports the drift of the live deployment's MCP tools, with an event if it has grown.
func (r *Reconciler) reportDrift(ctx context.Context, e *v1alpha1.Environment, live store.Key) error {
	drift, err := r.Store.Drift(ctx, live)
	if err != nil && !errors.Is(err, store.ErrNotFound) {
		return base.FromStore(err)
	}
	// The servers that drifted last come first.
	slices.SortStableFunc(drift, func(a, b store.MCPDrift) int { return b.GrownAt().Compare(a.GrownAt()) })
	var grownAt time.Time
	if len(drift) > 0 {
		grownAt = drift[0].GrownAt()
	}
	message := driftMessage(drift)
	if e.MarkToolsDrifted(message, grownAt) {
		r.Event(e, corev1.EventTypeWarning, v1alpha1.ReasonToolsChanged, message)
	}
	return nil
}

// driftMessage describes drift, in its order; "" if there is none.
func driftMessage(drift []store.MCPDrift) string {
	if len(drift) == 0 {
		return ""
	}
	var servers []string
	for _, d := range drift[:min(len(drift), maxDriftServers)] {
		names := d.Names()
		slices.Reverse(names)
		more := len(names) - maxDriftNames
		names = names[:min(len(names), maxDriftNames)]
		for i, name := range names {
			names[i] = fmt.Sprintf("%q", excerpt.Of(name, maxDriftName, excerpt.Ellipsis))
		}
		tools := strings.Join(names, ", ")
		if more > 0 {
			tools += fmt.Sprintf(" and %d more", more)
		}
		servers = append(servers, fmt.Sprintf("agent %q, server %q: %s", d.Agent, d.Server, tools))
	}
	message := "MCP servers changed or removed tools that the live deployment pins. Review them and deploy again to pin the new list. " +
		strings.Join(servers, "; ")
	if more := len(drift) - len(servers); more > 0 {
		message += fmt.Sprintf("; other servers: %d", more)
	}
	return message
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
	}, driftCheckInterval)
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
