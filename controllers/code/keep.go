// SPDX-License-Identifier: Apache-2.0

package code

import (
	"context"
	"fmt"
	"slices"

	"k8s.io/utils/ptr"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
	"github.com/agentplatform/agentplatform/controllers/base"
	"github.com/agentplatform/agentplatform/controllers/projection"
	"github.com/agentplatform/agentplatform/store"
)

// keepMirrors mirrors connectors that the activation left unchanged. It takes their state from the store,
// because an object may have an earlier one. It ignores retired ones.
func (r *Reconciler) keepMirrors(ctx context.Context, namespace string, m *mirrors, keys []string) error {
	if len(keys) == 0 {
		return nil
	}
	rows, err := r.Store.CodeConnectors(ctx, m.key)
	if err != nil {
		return base.FromStore(err)
	}
	for _, key := range keys {
		name := v1alpha1.CodeConnectorName(m.environment, key)
		at := slices.IndexFunc(rows, func(row store.Connector) bool { return row.Ref.Name == name })
		switch {
		case at >= 0 && rows[at].Retired:
		case at < 0 || rows[at].DeploymentID == nil: // its row, if there is one, comes from its object
			m.unchanged[name] = true
		default:
			if err := r.keepMirror(ctx, namespace, m, key, rows[at]); err != nil {
				return err
			}
		}
	}
	return nil
}

// keepMirror mirrors an effective connector from the file of the deployment that created it, with its
// current enabled value. If that file is missing, as during a rebuild, or this release cannot read it,
// the objects stay unchanged.
func (r *Reconciler) keepMirror(ctx context.Context, namespace string, m *mirrors, key string, row store.Connector) error {
	from := store.Key{ProjectID: row.ProjectID, ID: *row.DeploymentID}
	d, err := r.Store.Deployment(ctx, from)
	if err != nil {
		return base.FromStore(err)
	}
	files, err := r.Store.ConnectorFiles(ctx, from)
	if err != nil {
		return base.FromStore(err)
	}
	at := slices.IndexFunc(files, func(f store.ConnectorFile) bool { return f.Key == key })
	if at < 0 {
		m.cacheStale, m.unknown[row.Ref.Name] = true, true
		return nil
	}
	c, err := projection.ParseFile(files[at], d.AgentNames())
	if err != nil {
		m.unchanged[row.Ref.Name] = true
		m.unreadable = append(m.unreadable, fmt.Sprintf("%s of Deployment %q: %v", key, d.Ref.Name, err))
		return nil
	}
	mirror := projection.MirrorOf(namespace, m.environment, c)
	mirror.Connector.Spec.Enabled = ptr.To(row.Enabled)
	m.wanted = append(m.wanted, mirror)
	return nil
}
