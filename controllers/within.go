// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"context"
	"slices"

	"github.com/agentplatform/agentplatform/internal/namespaces"
	"github.com/agentplatform/agentplatform/store"
)

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
