// SPDX-License-Identifier: Apache-2.0

package code

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
	"github.com/agentplatform/agentplatform/bundle"
	"github.com/agentplatform/agentplatform/controllers/base"
	"github.com/agentplatform/agentplatform/controllers/projection"
	"github.com/agentplatform/agentplatform/store"
)

// writeMirrors updates the objects: connectors first, because links refer to them. It continues after errors
// and returns them at the end.
func (r *Reconciler) writeMirrors(ctx context.Context, m *mirrors) error {
	var failed []error
	wanted := map[string]bool{}
	for i := range m.wanted {
		mirror := &m.wanted[i]
		wanted[mirror.Connector.Name] = true
		for _, link := range mirror.Links {
			wanted[link.Name] = true
		}
		failed = append(failed, r.putMirror(ctx, m, mirror))
	}
	var retired []*v1alpha1.Connector
	for _, name := range slices.Sorted(maps.Keys(m.connectors)) {
		c := m.connectors[name]
		switch {
		case wanted[name], m.unknown[name]:
		case m.unchanged[name]:
			failed = append(failed, r.ignoreConflict(m, r.assignRank(ctx, c, m.rank)))
		default:
			failed = append(failed, r.ignoreConflict(m, r.retireConnector(ctx, c, m.rank)))
			retired = append(retired, c)
		}
	}
	for _, c := range surplus(retired) {
		failed = append(failed, r.ignoreConflict(m, r.deleteRetired(ctx, m, c)))
	}
	return errors.Join(append(failed, r.updateOtherLinks(ctx, m, wanted))...)
}

// putMirror writes the objects of one file. Links wait for their connector, because they must not refer to
// another one.
func (r *Reconciler) putMirror(ctx context.Context, m *mirrors, mirror *projection.Mirror) error {
	existing, taken := m.connectors[mirror.Connector.Name], len(m.conflicts)
	mirror.SetActivation(existing, m.rank)
	if existing == nil {
		if err := r.restoreSecret(ctx, m, mirror); err != nil {
			return err
		}
	}
	if err := r.ignoreConflict(m, r.putConnector(ctx, m, existing, mirror.Connector)); err != nil || len(m.conflicts) > taken {
		return err
	}
	failed := make([]error, len(mirror.Links))
	for i, link := range mirror.Links {
		failed[i] = r.ignoreConflict(m, r.putLink(ctx, m, m.links[link.Name], link))
	}
	return errors.Join(failed...)
}

// restoreSecret gives a re-created mirror the secret in effect. The store has the version of the secret and
// the grace period of its rotation. Later rotations use the default period, because the store does not
// have the period of the spec.
func (r *Reconciler) restoreSecret(ctx context.Context, m *mirrors, mirror *projection.Mirror) error {
	row, err := r.Store.Connector(ctx, mirror.Identity(m.key).Key())
	switch {
	case errors.Is(err, store.ErrNotFound), err == nil && !row.DefinedInCode:
		return nil
	case err != nil:
		return base.FromStore(err)
	}
	version := max(mirror.Connector.SecretVersion(), int32(row.SecretVersion)) //nolint:gosec // it was that of a spec
	grace := int32(row.SecretGracePeriod / time.Second)                        //nolint:gosec // as that was
	mirror.Connector.RotateSecret(version, &grace)
	return nil
}

// updateOtherLinks deletes the links that are no longer in the code. It keeps the links of an unchanged
// connector, and the links of a retired connector. A retired connector receives no events, and its file may
// return.
func (r *Reconciler) updateOtherLinks(ctx context.Context, m *mirrors, wanted map[string]bool) error {
	var failed []error
	for _, name := range slices.Sorted(maps.Keys(m.links)) {
		link := m.links[name]
		of := m.connectors[string(link.Spec.Connector)]
		switch {
		case wanted[name], m.unknown[string(link.Spec.Connector)]:
		case of != nil && !wanted[of.Name]:
			changed := link.DeepCopy()
			changed.Labels[v1alpha1.LabelActivation] = strconv.FormatInt(m.rank, 10)
			failed = append(failed, r.ignoreConflict(m, r.patchObject(ctx, link, changed)))
		default:
			err := r.Client.Delete(ctx, link, client.Preconditions{UID: &link.UID})
			if client.IgnoreNotFound(err) != nil {
				failed = append(failed, r.ignoreConflict(m, fmt.Errorf("deleting ConnectorLink %q, which is no longer in the code: %w", name, err)))
			}
		}
	}
	return errors.Join(failed...)
}

// deleteOrphanedLinks deletes the links of connectors that are deleted with their environment.
func (r *Reconciler) deleteOrphanedLinks(ctx context.Context, namespace string, environment v1alpha1.EnvironmentName) error {
	links := &v1alpha1.ConnectorLinkList{}
	if err := r.Client.List(ctx, links, client.InNamespace(namespace)); err != nil {
		return fmt.Errorf("listing the links of a deleted Environment: %w", err)
	}
	var failed []error
	for i := range links.Items {
		link := &links.Items[i]
		if !projection.IsMirror(link, environment) || !projection.IsCreatedByPlatform(link) {
			continue
		}
		err := r.Client.Get(ctx, client.ObjectKey{Namespace: namespace, Name: string(link.Spec.Connector)}, &v1alpha1.Connector{})
		if apierrors.IsNotFound(err) {
			err = client.IgnoreNotFound(r.Client.Delete(ctx, link, client.Preconditions{UID: &link.UID}))
		}
		if err != nil {
			failed = append(failed, fmt.Errorf("deleting ConnectorLink %q of a deleted Connector: %w", link.Name, err))
		}
	}
	return errors.Join(failed...)
}

// putConnector creates or updates the connector of a file. It does not use apply, because it must also
// remove fields that a user added to the spec.
func (r *Reconciler) putConnector(ctx context.Context, m *mirrors, existing, wanted *v1alpha1.Connector) error {
	if existing == nil {
		return r.createObject(ctx, m, wanted)
	}
	changed := existing.DeepCopy()
	if !projection.SameConnector(existing, wanted) {
		changed.Spec = wanted.Spec
	}
	delete(changed.Labels, v1alpha1.LabelRetired)
	maps.Copy(changed.Labels, wanted.Labels)
	return r.patchObject(ctx, existing, changed)
}

func (r *Reconciler) putLink(ctx context.Context, m *mirrors, existing, wanted *v1alpha1.ConnectorLink) error {
	if existing == nil {
		return r.createObject(ctx, m, wanted)
	}
	if existing.Spec.Connector != wanted.Spec.Connector || existing.Spec.Agent != wanted.Spec.Agent {
		err := r.Client.Delete(ctx, existing, client.Preconditions{UID: &existing.UID}) // both fields are immutable
		return client.IgnoreNotFound(err)
	}
	changed := existing.DeepCopy()
	changed.Spec = wanted.Spec
	maps.Copy(changed.Labels, wanted.Labels)
	return r.patchObject(ctx, existing, changed)
}

// retireConnector marks a connector that is no longer in the code. rank is the activation that retired it.
func (r *Reconciler) retireConnector(ctx context.Context, c *v1alpha1.Connector, rank int64) error {
	changed := c.DeepCopy()
	changed.Spec.Enabled = ptr.To(false)
	if !c.Retired() || c.Activation() == 0 {
		changed.Labels[v1alpha1.LabelRetired] = "true"
		changed.Labels[v1alpha1.LabelActivation] = strconv.FormatInt(rank, 10)
	}
	return r.patchObject(ctx, c, changed)
}

// maxRetired is the number of retired connectors that an environment keeps as objects. It equals the
// limit of connectors of a repository.
const maxRetired = bundle.MaxConnectors

// surplus returns the retired connectors beyond maxRetired, earliest first, except for connectors with a
// rotated secret. For all other connectors, a file that returns gets the same ID, URL and secret.
func surplus(retired []*v1alpha1.Connector) (out []*v1alpha1.Connector) {
	byAge := slices.SortedStableFunc(slices.Values(retired), func(a, b *v1alpha1.Connector) int { return cmp.Compare(b.Activation(), a.Activation()) })
	for i, c := range byAge {
		if i >= maxRetired && c.Retired() && c.SecretVersion() == 1 {
			out = append(out, c)
		}
	}
	return out
}

// deleteRetired deletes a retired connector, if the store confirms that it is retired: any user can write
// labels.
func (r *Reconciler) deleteRetired(ctx context.Context, m *mirrors, c *v1alpha1.Connector) error {
	row, err := r.Store.Connector(ctx, (&projection.Mirror{Connector: c}).Identity(m.key).Key())
	switch {
	case err != nil && !errors.Is(err, store.ErrNotFound):
		return base.FromStore(err)
	case err != nil, !row.DefinedInCode, !row.Retired, row.SecretVersion > 1:
		return nil
	}
	err = r.Client.Delete(ctx, c, client.Preconditions{UID: &c.UID, ResourceVersion: &c.ResourceVersion})
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("deleting retired Connector %q: %w", c.Name, err)
	}
	return nil
}

// assignRank assigns an unchanged connector to another activation. A retired one stays retired.
func (r *Reconciler) assignRank(ctx context.Context, c *v1alpha1.Connector, rank int64) error {
	changed := c.DeepCopy()
	changed.Labels[v1alpha1.LabelActivation] = strconv.FormatInt(rank, 10)
	return r.patchObject(ctx, c, changed)
}

// patchObject writes the changes of an object, unless it was written since it was read.
func (r *Reconciler) patchObject(ctx context.Context, from, to client.Object) error {
	if equality.Semantic.DeepEqual(from, to) {
		return nil
	}
	patch := client.MergeFromWithOptions(from, client.MergeFromWithOptimisticLock{})
	err := r.Client.Patch(ctx, to, patch, client.FieldOwner(base.FieldManager))
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("updating %T %q from the code: %w", to, to.GetName(), err)
	}
	return nil
}
