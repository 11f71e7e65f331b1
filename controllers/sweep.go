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

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
	"github.com/agentplatform/agentplatform/controllers/object"
	"github.com/agentplatform/agentplatform/internal/keyring"
	"github.com/agentplatform/agentplatform/internal/namespaces"
	"github.com/agentplatform/agentplatform/internal/pause"
	"github.com/agentplatform/agentplatform/store"
)

const (
	// DefaultSweepLimit is how many objects of a kind a sweep may remove that are
	// most of that kind.
	DefaultSweepLimit = 10
	// sweepInterval and sweepRetry are the pauses after a sweep and a failed one.
	sweepInterval = time.Hour
	sweepRetry    = time.Minute
)

// sweepRefused says what the last sweep left, of which Prometheus may warn.
var sweepRefused = prometheus.NewGaugeVec(prometheus.GaugeOpts{
	Name: "agentplatform_sweep_refused_objects",
	Help: "Objects in the data store that Kubernetes does not have and the last sweep left, for they are most of their kind.",
}, []string{"kind"})

func init() { metrics.Registry.MustRegister(sweepRefused) } //nolint:gochecknoinits // the registry is a global of controller-runtime

// sweep removes what was deleted while no manager looked.
type sweep struct {
	// reader reads past the cache.
	reader client.Reader
	// within are the namespaces that the manager works in.
	within namespaces.Set
	store  store.Control
	limit  int
	// events takes what is refused, about the platform's keys: it has no other
	// object of its own.
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

// NeedLeaderElection says that only the leader sweeps.
func (s *sweep) NeedLeaderElection() bool { return true }

// Start sweeps at once, every hour, and a minute after a sweep that failed.
func (s *sweep) Start(ctx context.Context) error {
	logger := ctrl.Log.WithName("sweep")
	for {
		next := sweepInterval
		removed, err := s.run(ctx)
		switch {
		case errors.Is(err, store.ErrSweepRefused):
			logger.Error(err, "the rest of the projection is as Kubernetes says", "removed", removed)
			if err := s.warn(ctx, err.Error()); err != nil {
				logger.Error(err, "warning of it by an event")
			}
		case err != nil && ctx.Err() == nil:
			logger.Error(err, "what was deleted while no manager ran may still be served")
			next = sweepRetry
		case removed > 0:
			logger.Info("removed from the store what Kubernetes does not have", "removed", removed)
		}
		if s.wait(ctx, next) != nil {
			return nil // the manager stops
		}
	}
}

// warn writes an event. The manager may write those of the core group in its own
// namespace, whatever namespaces it works in.
func (s *sweep) warn(ctx context.Context, message string) error {
	now := metav1.Now()
	return s.events.Create(ctx, &corev1.Event{
		ObjectMeta:     metav1.ObjectMeta{GenerateName: "agentplatform-sweep-", Namespace: s.system},
		InvolvedObject: corev1.ObjectReference{APIVersion: "v1", Kind: "Secret", Namespace: s.system, Name: keyring.SecretName},
		Type:           corev1.EventTypeWarning, Reason: "SweepRefused", Message: message, Source: corev1.EventSource{Component: "agentplatform"},
		FirstTimestamp: now, LastTimestamp: now, Count: 1,
	}, client.FieldOwner(object.FieldManager))
}

// run removes rows of objects that are gone and returns how many; of kinds of
// which most would go nothing, and then store.ErrSweepRefused.
func (s *sweep) run(ctx context.Context) (removed int, err error) {
	lease, err := s.store.Cluster(ctx)
	switch {
	case err != nil:
		return 0, fmt.Errorf("reading the lease of the store: %w", err)
	case lease.Adopting:
		ctrl.Log.WithName("sweep").Info("nothing is swept: the store was adopted; run `agentctl store adopt --finish` once all objects are here")
		return 0, nil
	}
	// The rows come first: what is created meanwhile is no row without an object.
	rows, err := s.store.ListProjected(ctx)
	if err != nil {
		return 0, fmt.Errorf("listing the projection: %w", err)
	}
	if s, rows, err = s.readable(ctx, rows); err != nil {
		return 0, err
	}
	gone, refused, err := s.gone(ctx, rows)
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
		return removed, fmt.Errorf("%s are in the data store and not in Kubernetes. Restore them, or, if they were deleted on purpose, "+
			"start the manager once with a higher --sweep-limit: %w", strings.Join(refused, ", "), store.ErrSweepRefused)
	}
	return removed, nil
}

// readable is the sweep of those rows alone whose objects may be read. A manager of
// some namespaces may have lost its rights in one of them.
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

// gone are the rows whose objects Kubernetes does not have, but for the kinds of
// which most would go; refused says what those are.
func (s *sweep) gone(ctx context.Context, rows []store.ProjectedObject) (gone []store.ProjectedObject, refused []string, err error) {
	namespaces := map[string]bool{}
	for _, kind := range store.Kinds {
		of := slices.DeleteFunc(slices.Clone(rows), func(row store.ProjectedObject) bool { return row.Ref.Kind != kind })
		alone, within, err := s.missing(ctx, kind, of, namespaces)
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

// missing are the rows of a kind whose objects are not there: alone, or with their
// namespace, of which namespaces remembers whether it is there.
func (s *sweep) missing(
	ctx context.Context, kind string, rows []store.ProjectedObject, namespaces map[string]bool,
) (alone, within []store.ProjectedObject, err error) {
	if len(rows) == 0 {
		return nil, nil, nil
	}
	there, err := s.names(ctx, kind)
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
			if exists, err = s.exists(ctx, corev1.SchemeGroupVersion.WithKind("Namespace"), types.NamespacedName{Name: name.Namespace}); err != nil {
				return nil, nil, err
			}
			namespaces[name.Namespace] = exists
		}
		if !exists {
			within = append(within, row)
			continue
		}
		switch exists, err := s.exists(ctx, v1alpha1.GroupVersion.WithKind(kind), name); {
		case err != nil:
			return nil, nil, err
		case !exists:
			alone = append(alone, row)
		}
	}
	return alone, within, nil
}

// names are those of all objects of a kind. Another incarnation of a row's object
// takes the row over when it is reconciled.
func (s *sweep) names(ctx context.Context, kind string) (map[types.NamespacedName]bool, error) {
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

// exists asks kube-apiserver for an object.
func (s *sweep) exists(ctx context.Context, kind schema.GroupVersionKind, name types.NamespacedName) (bool, error) {
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
