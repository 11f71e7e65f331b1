// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
	"github.com/agentplatform/agentplatform/controllers/base"
	"github.com/agentplatform/agentplatform/internal/pause"
	"github.com/agentplatform/agentplatform/store"
)

const (
	// rejectionInterval is the interval between queries for rejected requests. rejectionLimit is the
	// maximum number of connectors per query; the rest waits for the next one.
	rejectionInterval = time.Minute
	rejectionLimit    = 100
	// reasonWebhookRejected is the reason of the event.
	reasonWebhookRejected = "WebhookRejected"
)

// rejections reports rejected webhook requests as events of the connectors, because the gateway does
// not call Kubernetes. Each count is reported at most once: if the manager stops between the query and
// the event, only the REST API has the count.
type rejections struct {
	base  *base.Base
	store store.RejectionTeller
	// wait is called between two queries.
	wait func(ctx context.Context, pause time.Duration) error
}

func newRejections(base *base.Base, teller store.RejectionTeller) *rejections {
	return &rejections{base: base, store: teller, wait: pause.For}
}

// NeedLeaderElection reports true: only the leader writes the events.
func (r *rejections) NeedLeaderElection() bool { return true }

// Start reports rejections until ctx ends.
func (r *rejections) Start(ctx context.Context) error {
	for r.wait(ctx, rejectionInterval) == nil {
		if err := r.reportRejections(ctx); err != nil && ctx.Err() == nil {
			ctrl.Log.WithName("rejections").Error(err, "reporting rejected requests; some connectors have no event")
		}
	}
	return nil
}

func (r *rejections) reportRejections(ctx context.Context) error {
	news, err := r.store.TakeRejectionNews(ctx, rejectionLimit)
	if err != nil {
		return fmt.Errorf("reading rejected requests: %w", err)
	}
	var failed []error
	for _, n := range news {
		if !r.base.Namespaces.Has(n.Ref.Namespace) {
			continue
		}
		conn := &v1alpha1.Connector{}
		err := r.base.Client.Get(ctx, types.NamespacedName{Namespace: n.Ref.Namespace, Name: n.Ref.Name}, conn)
		switch {
		case apierrors.IsNotFound(err), err == nil && string(conn.UID) != n.Ref.ObjectUID:
			continue // the connector was deleted
		case err != nil:
			failed = append(failed, fmt.Errorf("reading %s: %w", n.Ref, err))
			continue
		}
		r.base.Event(conn, corev1.EventTypeWarning, reasonWebhookRejected, rejectionNote(n.Counts))
	}
	return errors.Join(failed...)
}

// rejectionNote returns the number of rejected requests and their codes, most frequent first.
func rejectionNote(counts map[string]int64) string {
	var (
		total int64
		parts []string
	)
	codes := slices.SortedFunc(maps.Keys(counts), func(a, b string) int {
		if counts[a] != counts[b] {
			return int(min(max(counts[b]-counts[a], -1), 1))
		}
		return strings.Compare(a, b)
	})
	for _, code := range codes {
		total += counts[code]
		parts = append(parts, fmt.Sprintf("%s %d", code, counts[code]))
	}
	requests := "requests were"
	if total == 1 {
		requests = "request was"
	}
	return fmt.Sprintf("%d %s rejected: %s. GET …/connectors/{id}/rejections of the REST API lists the newest", total, requests, strings.Join(parts, ", "))
}
