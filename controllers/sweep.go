// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
	"github.com/agentplatform/agentplatform/controllers/base"
	"github.com/agentplatform/agentplatform/internal/metrics"
	"github.com/agentplatform/agentplatform/internal/namespaces"
	"github.com/agentplatform/agentplatform/internal/pause"
	"github.com/agentplatform/agentplatform/internal/secrets"
	"github.com/agentplatform/agentplatform/store"
)

const (
	// DefaultSweepLimit is the number of objects of a kind that a sweep may remove even if they are
	// most of that kind.
	DefaultSweepLimit = 10
	// sweepInterval and sweepRetry are the pauses after a successful and a failed sweep.
	sweepInterval = time.Hour
	sweepRetry    = time.Minute
)

// sweepRefused is the number of rows that the last sweep refused to remove. An alert reads it.
var sweepRefused = metrics.NewSweepRefused(ctrlmetrics.Registry) //nolint:gochecknoglobals // the registry is a global of controller-runtime

// sweep removes rows of objects that were deleted while no manager ran.
type sweep struct {
	// reader reads from kube-apiserver, without a cache.
	reader client.Reader
	// within limits the sweep to the namespaces of the manager.
	within namespaces.Set
	store  store.Control
	limit  int
	// events receives warnings about refused sweeps. They refer to the Secret with the platform's keys,
	// because the sweep has no object of its own.
	events client.Writer
	system string
	// wait is called between sweeps.
	wait func(ctx context.Context, pause time.Duration) error
}

func newSweep(reader client.Reader, events client.Writer, opts Options) *sweep {
	return &sweep{
		reader: reader, within: opts.Namespaces, store: opts.Store, limit: cmp.Or(opts.SweepLimit, DefaultSweepLimit), events: events, system: opts.SystemNamespace,
		wait: pause.For,
	}
}

// NeedLeaderElection reports true: only the leader sweeps.
func (s *sweep) NeedLeaderElection() bool { return true }

// Start sweeps at once, then every hour, and a minute after a failed sweep.
func (s *sweep) Start(ctx context.Context) error {
	logger := ctrl.Log.WithName("sweep")
	for {
		next := sweepInterval
		removed, err := s.removeDeleted(ctx)
		switch {
		case errors.Is(err, store.ErrSweepRefused):
			logger.Error(err, "sweeping; all other rows match Kubernetes", "removed", removed)
			if err := s.writeWarning(ctx, err.Error()); err != nil {
				logger.Error(err, "writing the event of a refused sweep")
			}
		case err != nil && ctx.Err() == nil:
			logger.Error(err, "sweeping; objects that were deleted while no manager ran may still be served")
			next = sweepRetry
		case removed > 0:
			logger.Info("removed rows of deleted objects from the store", "removed", removed)
		}
		if s.wait(ctx, next) != nil {
			return nil // the manager stops
		}
	}
}

// writeWarning writes a Kubernetes event to the manager's own namespace, where its role allows it.
func (s *sweep) writeWarning(ctx context.Context, message string) error {
	now := metav1.Now()
	return s.events.Create(ctx, &corev1.Event{
		ObjectMeta:     metav1.ObjectMeta{GenerateName: "agentplatform-sweep-", Namespace: s.system},
		InvolvedObject: corev1.ObjectReference{APIVersion: "v1", Kind: "Secret", Namespace: s.system, Name: secrets.SecretName},
		Type:           corev1.EventTypeWarning, Reason: "SweepRefused", Message: message, Source: corev1.EventSource{Component: "agentplatform"},
		FirstTimestamp: now, LastTimestamp: now, Count: 1,
	}, client.FieldOwner(base.FieldManager))
}

// removeDeleted removes rows of deleted objects and returns their number. If most rows of a kind would be
// removed, it keeps all rows of that kind and returns store.ErrSweepRefused.
func (s *sweep) removeDeleted(ctx context.Context) (removed int, err error) {
	lease, err := s.store.Cluster(ctx)
	switch {
	case err != nil:
		return 0, fmt.Errorf("reading the lease of the store: %w", err)
	case lease.Adopting:
		ctrl.Log.WithName("sweep").Info("no sweep, because the store was adopted; run `agentctl store adopt --finish` when all objects exist in this cluster")
		return 0, nil
	}
	// List the rows first: an object that is created later has no row in this list.
	rows, err := s.store.ListProjected(ctx)
	if err != nil {
		return 0, fmt.Errorf("listing the projection: %w", err)
	}
	if s, rows, err = s.readable(ctx, rows); err != nil {
		return 0, err
	}
	gone, refused, err := s.deletedRows(ctx, rows)
	if err != nil {
		return 0, err
	}
	for _, row := range gone {
		if err := s.store.Remove(ctx, row.Key.ProjectID, row.Ref); err != nil {
			return removed, fmt.Errorf("removing %s: %w", row.Ref, err)
		}
		removed++
	}
	if len(refused) > 0 {
		return removed, fmt.Errorf("%s are in the store and not in Kubernetes. Restore them or, if they were deleted on purpose, "+
			"start the manager once with a higher --sweep-limit: %w", strings.Join(refused, ", "), store.ErrSweepRefused)
	}
	return removed, nil
}

// readable limits the sweep to rows whose objects the manager may read. A manager that is limited to
// some namespaces may have lost its permissions in one of them.
func (s *sweep) readable(ctx context.Context, rows []store.ProjectedObject) (*sweep, []store.ProjectedObject, error) {
	if len(s.within) == 0 {
		return s, rows, nil
	}
	within, _, err := s.within.Readable(ctx, s.reader, &v1alpha1.ProjectList{})
	if err != nil || len(within) == 0 {
		return s, nil, err
	}
	narrow := *s
	narrow.within, narrow.reader = within, within.Reader(s.reader)
	return &narrow, slices.DeleteFunc(rows, func(row store.ProjectedObject) bool { return !within.Has(row.Ref.Namespace) }), nil
}

// deletedRows returns the rows without an object, except for kinds that would lose most of their rows.
// refused describes those kinds.
func (s *sweep) deletedRows(ctx context.Context, rows []store.ProjectedObject) (gone []store.ProjectedObject, refused []string, err error) {
	namespaces := map[string]bool{}
	for _, kind := range store.Kinds {
		of := slices.DeleteFunc(slices.Clone(rows), func(row store.ProjectedObject) bool { return row.Ref.Kind != kind })
		alone, within, err := s.findMissing(ctx, kind, of, namespaces)
		if err != nil {
			return nil, nil, err
		}
		gone = append(gone, within...)
		left, most := 0, 2*len(alone) > len(of)-len(within)
		if most && len(alone) > s.limit {
			left = len(alone)
			refused = append(refused, fmt.Sprintf("%d of %d objects of kind %s", left, len(of)-len(within), kind))
		} else {
			gone = append(gone, alone...)
		}
		sweepRefused.WithLabelValues(kind).Set(float64(left))
	}
	return gone, refused, nil
}

// findMissing returns the rows of a kind whose object or namespace does not exist. namespaces caches which
// namespaces exist.
func (s *sweep) findMissing(
	ctx context.Context, kind string, rows []store.ProjectedObject, namespaces map[string]bool,
) (alone, within []store.ProjectedObject, err error) {
	if len(rows) == 0 {
		return nil, nil, nil
	}
	there, err := s.objectNames(ctx, kind)
	if err != nil {
		return nil, nil, err
	}
	for _, row := range rows {
		name := types.NamespacedName{Namespace: row.Ref.Namespace, Name: row.Ref.Name}
		if there[name] {
			continue
		}
		exists, asked := namespaces[name.Namespace]
		if !asked {
			if exists, err = s.objectExists(ctx, corev1.SchemeGroupVersion.WithKind("Namespace"), types.NamespacedName{Name: name.Namespace}); err != nil {
				return nil, nil, err
			}
			namespaces[name.Namespace] = exists
		}
		if !exists {
			within = append(within, row)
			continue
		}
		switch exists, err := s.objectExists(ctx, v1alpha1.GroupVersion.WithKind(kind), name); {
		case err != nil:
			return nil, nil, err
		case !exists:
			alone = append(alone, row)
		}
	}
	return alone, within, nil
}

// objectNames returns the names of all objects of a kind. UIDs do not matter, because a re-created object takes
// over the row when it is reconciled.
func (s *sweep) objectNames(ctx context.Context, kind string) (map[types.NamespacedName]bool, error) {
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind(kind + "List"))
	if err := s.reader.List(ctx, list); err != nil {
		return nil, fmt.Errorf("listing the objects of kind %s: %w", kind, err)
	}
	there := map[types.NamespacedName]bool{}
	for i := range list.Items {
		there[client.ObjectKeyFromObject(&list.Items[i])] = true
	}
	return there, nil
}

// objectExists reports whether kube-apiserver has the object.
func (s *sweep) objectExists(ctx context.Context, kind schema.GroupVersionKind, name types.NamespacedName) (bool, error) {
	o := &metav1.PartialObjectMetadata{}
	o.SetGroupVersionKind(kind)
	err := s.reader.Get(ctx, name, o)
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("asking for %s %s: %w", kind.Kind, name, err)
	}
	return true, nil
}

// namespacedStore wraps a store and shows only the rows of objects in some namespaces. A manager must not treat
// objects that it cannot see as deleted.
type namespacedStore struct {
	store.Control
	namespaces namespaces.Set
}

// ListProjected implements store.Sweeper.
func (w namespacedStore) ListProjected(ctx context.Context) ([]store.ProjectedObject, error) {
	rows, err := w.Control.ListProjected(ctx)
	return slices.DeleteFunc(rows, func(row store.ProjectedObject) bool { return !w.namespaces.Has(row.Ref.Namespace) }), err
}
