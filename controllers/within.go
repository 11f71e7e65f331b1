// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"context"
	"slices"

	"github.com/agentplatform/agentplatform/internal/namespaces"
	"github.com/agentplatform/agentplatform/store"
)

// within is a store that shows only rows of objects in some namespaces: what a
// manager cannot see, it must not take for gone.
type within struct {
	store.Control
	namespaces namespaces.Set
}

// ListProjected implements store.Sweeper.
func (w within) ListProjected(ctx context.Context) ([]store.ProjectedObject, error) {
	rows, err := w.Control.ListProjected(ctx)
	return slices.DeleteFunc(rows, func(row store.ProjectedObject) bool { return !w.namespaces.Has(row.Ref.Namespace) }), err
}
