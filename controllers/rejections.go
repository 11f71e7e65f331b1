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
	"github.com/agentplatform/agentplatform/controllers/object"
	"github.com/agentplatform/agentplatform/internal/pause"
	"github.com/agentplatform/agentplatform/store"
)

const (
	// rejectionInterval is how often the store is asked for connectors that refused requests,
	// rejectionNews for how many at a time: what there is more waits.
	rejectionInterval = time.Minute
	rejectionNews     = 100
	// reasonWebhookRejected is the reason of the event.
	reasonWebhookRejected = "WebhookRejected"
)

// rejections tells of requests that connectors refused, by events of the connectors: the gateway
// that refuses them does not talk to Kubernetes. Each number is told once, or never, where the
// manager stops in that moment: the REST API has them all.
type rejections struct {
	base  *object.Base
	store store.RejectionTeller
	// wait is called between two looks.
	wait func(ctx context.Context, pause time.Duration) error
}

func newRejections(base *object.Base, teller store.RejectionTeller) *rejections {
	return &rejections{base: base, store: teller, wait: pause.For}
}

// NeedLeaderElection says that only the leader tells.
func (r *rejections) NeedLeaderElection() bool { return true }

// Start tells until ctx ends.
func (r *rejections) Start(ctx context.Context) error {
	for r.wait(ctx, rejectionInterval) == nil {
		if err := r.tell(ctx); err != nil && ctx.Err() == nil {
			ctrl.Log.WithName("rejections").Error(err, "connectors that refused requests have no event of it")
		}
	}
	return nil
}

func (r *rejections) tell(ctx context.Context) error {
	news, err := r.store.TakeRejectionNews(ctx, rejectionNews)
	if err != nil {
		return fmt.Errorf("asking which connectors refused requests: %w", err)
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
			continue // it is gone
		case err != nil:
			failed = append(failed, fmt.Errorf("reading %s: %w", n.Ref, err))
			continue
		}
		r.base.Event(conn, corev1.EventTypeWarning, reasonWebhookRejected, rejectionNote(n.Counts))
	}
	return errors.Join(failed...)
}

// rejectionNote says how often requests were refused and by which codes, the most frequent first.
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
	return fmt.Sprintf("%d %s refused: %s. The newest are at GET …/connectors/{id}/rejections of the REST API", total, requests, strings.Join(parts, ", "))
}
