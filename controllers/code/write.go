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
	"github.com/agentplatform/agentplatform/controllers/object"
	"github.com/agentplatform/agentplatform/controllers/projection"
	"github.com/agentplatform/agentplatform/store"
)

// write brings the objects to what is wanted: connectors first, for links name them. What fails
// for one object is told when the others are done.
func (r *Reconciler) write(ctx context.Context, m *mirrors) error {
	var failed []error
	wanted := map[string]bool{}
	for i := range m.wanted {
		mirror := &m.wanted[i]
		wanted[mirror.Connector.Name] = true
		for _, link := range mirror.Links {
			wanted[link.Name] = true
		}
		failed = append(failed, r.put(ctx, m, mirror))
	}
	var retired []*v1alpha1.Connector
	for _, name := range slices.Sorted(maps.Keys(m.connectors)) {
		c := m.connectors[name]
		switch {
		case wanted[name], m.still[name]:
		case m.kept[name]:
			failed = append(failed, r.settle(m, r.carry(ctx, c, m.rank)))
		default:
			failed = append(failed, r.settle(m, r.retire(ctx, c, m.rank)))
			retired = append(retired, c)
		}
	}
	for _, c := range surplus(retired) {
		failed = append(failed, r.settle(m, r.drop(ctx, m, c)))
	}
	return errors.Join(append(failed, r.settleLinks(ctx, m, wanted))...)
}

// put makes the objects of one file. Links wait for their connector: they are to name no other.
func (r *Reconciler) put(ctx context.Context, m *mirrors, mirror *projection.Mirror) error {
	existing, taken := m.connectors[mirror.Connector.Name], len(m.taken)
	mirror.Onto(existing, m.rank)
	if existing == nil {
		if err := r.recall(ctx, m, mirror); err != nil {
			return err
		}
	}
	if err := r.settle(m, r.putConnector(ctx, m, existing, mirror.Connector)); err != nil || len(m.taken) > taken {
		return err
	}
	failed := make([]error, len(mirror.Links))
	for i, link := range mirror.Links {
		failed[i] = r.settle(m, r.putLink(ctx, m, m.links[link.Name], link))
	}
	return errors.Join(failed...)
}

// recall lets a mirror that is made anew have the secret that is in effect: the store knows the version of the secret
// and the grace period of the rotation to it. Later rotations have the default period: the store does not know the spec's.
func (r *Reconciler) recall(ctx context.Context, m *mirrors, mirror *projection.Mirror) error {
	row, err := r.Store.Connector(ctx, mirror.Identity(m.key).Key())
	switch {
	case errors.Is(err, store.ErrNotFound), err == nil && !row.DefinedInCode:
		return nil
	case err != nil:
		return object.FromStore(err)
	}
	version := max(mirror.Connector.SecretVersion(), int32(row.SecretVersion)) //nolint:gosec // it was that of a spec
	grace := int32(row.SecretGracePeriod / time.Second)                        //nolint:gosec // as that was
	mirror.Connector.RotateSecret(version, &grace)
	return nil
}

// settleLinks deletes the links that the code has no more. Those of a connector that was left as
// it was stay with it, and those of a retired one, which takes no events, stay too: its file may
// come back.
func (r *Reconciler) settleLinks(ctx context.Context, m *mirrors, wanted map[string]bool) error {
	var failed []error
	for _, name := range slices.Sorted(maps.Keys(m.links)) {
		link := m.links[name]
		of := m.connectors[string(link.Spec.Connector)]
		switch {
		case wanted[name], m.still[string(link.Spec.Connector)]:
		case of != nil && !wanted[of.Name]:
			changed := link.DeepCopy()
			changed.Labels[v1alpha1.LabelActivation] = strconv.FormatInt(m.rank, 10)
			failed = append(failed, r.settle(m, r.patch(ctx, link, changed)))
		default:
			err := r.Client.Delete(ctx, link, client.Preconditions{UID: &link.UID})
			if client.IgnoreNotFound(err) != nil {
				failed = append(failed, r.settle(m, fmt.Errorf("deleting ConnectorLink %q, which the code has no more: %w", name, err)))
			}
		}
	}
	return errors.Join(failed...)
}

// dropOrphans deletes the links of connectors that are gone, as their environment is.
func (r *Reconciler) dropOrphans(ctx context.Context, namespace string, environment v1alpha1.EnvironmentName) error {
	links := &v1alpha1.ConnectorLinkList{}
	if err := r.Client.List(ctx, links, client.InNamespace(namespace)); err != nil {
		return fmt.Errorf("listing the links of an Environment that is gone: %w", err)
	}
	var failed []error
	for i := range links.Items {
		link := &links.Items[i]
		if !projection.IsOurs(link, environment) || !projection.IsMade(link) {
			continue
		}
		err := r.Client.Get(ctx, client.ObjectKey{Namespace: namespace, Name: string(link.Spec.Connector)}, &v1alpha1.Connector{})
		if apierrors.IsNotFound(err) {
			err = client.IgnoreNotFound(r.Client.Delete(ctx, link, client.Preconditions{UID: &link.UID}))
		}
		if err != nil {
			failed = append(failed, fmt.Errorf("deleting ConnectorLink %q, whose connector is gone: %w", link.Name, err))
		}
	}
	return errors.Join(failed...)
}

// putConnector makes a connector that mirrors a file, or makes it say what it is to say. It is
// not applied: what somebody has added to its spec is to go too.
func (r *Reconciler) putConnector(ctx context.Context, m *mirrors, existing, wanted *v1alpha1.Connector) error {
	if existing == nil {
		return r.create(ctx, m, wanted)
	}
	changed := existing.DeepCopy()
	if !projection.SameConnector(existing, wanted) {
		changed.Spec = wanted.Spec
	}
	delete(changed.Labels, v1alpha1.LabelRetired)
	maps.Copy(changed.Labels, wanted.Labels)
	return r.patch(ctx, existing, changed)
}

func (r *Reconciler) putLink(ctx context.Context, m *mirrors, existing, wanted *v1alpha1.ConnectorLink) error {
	if existing == nil {
		return r.create(ctx, m, wanted)
	}
	if existing.Spec.Connector != wanted.Spec.Connector || existing.Spec.Agent != wanted.Spec.Agent {
		err := r.Client.Delete(ctx, existing, client.Preconditions{UID: &existing.UID}) // neither can be changed
		return client.IgnoreNotFound(err)
	}
	changed := existing.DeepCopy()
	changed.Spec = wanted.Spec
	maps.Copy(changed.Labels, wanted.Labels)
	return r.patch(ctx, existing, changed)
}

// retire marks a connector that the code has no more, with the activation that had it first no more.
func (r *Reconciler) retire(ctx context.Context, c *v1alpha1.Connector, rank int64) error {
	changed := c.DeepCopy()
	changed.Spec.Enabled = ptr.To(false)
	if !c.Retired() || c.Activation() == 0 {
		changed.Labels[v1alpha1.LabelRetired] = "true"
		changed.Labels[v1alpha1.LabelActivation] = strconv.FormatInt(rank, 10)
	}
	return r.patch(ctx, c, changed)
}

// keptRetired is how many retired connectors an environment keeps as objects: as many as a
// repository can have.
const keptRetired = bundle.MaxConnectors

// surplus are the retired connectors beyond keptRetired, those that were retired first, but for those
// whose secret somebody has rotated: of all others a file that comes back brings the same id, URL and secret.
func surplus(retired []*v1alpha1.Connector) (out []*v1alpha1.Connector) {
	byAge := slices.SortedStableFunc(slices.Values(retired), func(a, b *v1alpha1.Connector) int { return cmp.Compare(b.Activation(), a.Activation()) })
	for i, c := range byAge {
		if i >= keptRetired && c.Retired() && c.SecretVersion() == 1 {
			out = append(out, c)
		}
	}
	return out
}

// drop deletes a retired connector, where the store says the same of it: anybody can write labels.
func (r *Reconciler) drop(ctx context.Context, m *mirrors, c *v1alpha1.Connector) error {
	row, err := r.Store.Connector(ctx, (&projection.Mirror{Connector: c}).Identity(m.key).Key())
	switch {
	case err != nil && !errors.Is(err, store.ErrNotFound):
		return object.FromStore(err)
	case err != nil, !row.DefinedInCode, !row.Retired, row.SecretVersion > 1:
		return nil
	}
	err = r.Client.Delete(ctx, c, client.Preconditions{UID: &c.UID, ResourceVersion: &c.ResourceVersion})
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("deleting Connector %q, which the code has had no more for long: %w", c.Name, err)
	}
	return nil
}

// carry lets a connector that was left as it was go on under another activation. One that was
// retired before stays so.
func (r *Reconciler) carry(ctx context.Context, c *v1alpha1.Connector, rank int64) error {
	changed := c.DeepCopy()
	changed.Labels[v1alpha1.LabelActivation] = strconv.FormatInt(rank, 10)
	return r.patch(ctx, c, changed)
}

// patch writes what has changed of an object, unless somebody has written it since it was read.
func (r *Reconciler) patch(ctx context.Context, from, to client.Object) error {
	if equality.Semantic.DeepEqual(from, to) {
		return nil
	}
	patch := client.MergeFromWithOptions(from, client.MergeFromWithOptimisticLock{})
	err := r.Client.Patch(ctx, to, patch, client.FieldOwner(object.FieldManager))
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("bringing %T %q to what the code says: %w", to, to.GetName(), err)
	}
	return nil
}
