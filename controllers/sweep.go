// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"context"
	"errors"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
	"github.com/agentplatform/agentplatform/store"
)

// sweepAlwaysAllowed is how many rows a sweep may remove however few remain.
const sweepAlwaysAllowed = 10

// sweep removes at the start what was deleted while no manager looked.
type sweep struct {
	reader client.Reader
	store  store.Control
}

func newSweep(reader client.Reader, opts Options) *sweep {
	return &sweep{reader: reader, store: opts.Store}
}

// NeedLeaderElection says that only the leader sweeps.
func (s *sweep) NeedLeaderElection() bool { return true }

// Start sweeps once. That it refuses or fails stops no controller: it is said,
// and tried again at the next start.
func (s *sweep) Start(ctx context.Context) error {
	removed, err := s.run(ctx)
	logger := ctrl.Log.WithName("sweep")
	switch {
	case errors.Is(err, store.ErrSweepRefused):
		logger.Error(err, "the projection is left as it is: is this the right cluster and the right store?")
	case err != nil:
		logger.Error(err, "what was deleted while no manager ran may still be served")
	default:
		logger.Info("swept the projection", "removed", removed)
	}
	return nil
}

// run removes rows of objects that are gone and returns how many;
// store.ErrSweepRefused when that would be most of them.
func (s *sweep) run(ctx context.Context) (int, error) {
	lease, err := s.store.Cluster(ctx)
	switch {
	case err != nil:
		return 0, fmt.Errorf("reading the lease of the store: %w", err)
	case lease.Adopting:
		ctrl.Log.WithName("sweep").Info("nothing is swept: the store was adopted; run `agentctl store adopt --finish` once all objects are here")
		return 0, nil
	}
	rows, err := s.store.ListProjected(ctx)
	if err != nil {
		return 0, fmt.Errorf("listing the projection: %w", err)
	}
	alive, err := s.uids(ctx)
	if err != nil {
		return 0, err
	}
	var gone []store.ProjectedObject
	for _, row := range rows {
		if !alive[types.UID(row.Ref.ObjectUID)] {
			gone = append(gone, row)
		}
	}
	if len(gone) > sweepAlwaysAllowed && 2*len(gone) > len(rows) {
		return 0, fmt.Errorf("%d of %d objects are gone: %w", len(gone), len(rows), store.ErrSweepRefused)
	}
	for _, row := range gone {
		if err := s.store.Remove(ctx, row.Key.ProjectID, row.Ref); err != nil {
			return 0, fmt.Errorf("removing %s: %w", row.Ref, err)
		}
	}
	return len(gone), nil
}

// uids are those of all objects of the projected kinds.
func (s *sweep) uids(ctx context.Context) (map[types.UID]bool, error) {
	alive := map[types.UID]bool{}
	for _, kind := range store.Kinds {
		list := &metav1.PartialObjectMetadataList{}
		list.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind(kind + "List"))
		if err := s.reader.List(ctx, list); err != nil {
			return nil, fmt.Errorf("listing the objects of kind %s: %w", kind, err)
		}
		for _, o := range list.Items {
			alive[o.UID] = true
		}
	}
	return alive, nil
}
