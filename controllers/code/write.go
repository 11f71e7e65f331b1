// SPDX-License-Identifier: Apache-2.0

package code

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
	"github.com/agentplatform/agentplatform/controllers/object"
	"github.com/agentplatform/agentplatform/controllers/projection"
)

// write brings the objects to what is wanted: connectors first, for links name them. One that
// cannot be written keeps none of the others from it.
func (r *Reconciler) write(ctx context.Context, m *mirrors) (failed error) {
	wanted := map[string]bool{}
	for i := range m.wanted {
		mirror := &m.wanted[i]
		wanted[mirror.Connector.Name] = true
		for _, link := range mirror.Links {
			wanted[link.Name] = true
		}
		failed = errors.Join(failed, r.putMirror(ctx, m, mirror))
	}
	for _, name := range slices.Sorted(maps.Keys(m.connectors)) {
		c := m.connectors[name]
		switch {
		case wanted[name]:
		case m.kept[name]:
			failed = errors.Join(failed, r.carry(ctx, c, m.rank))
		default:
			failed = errors.Join(failed, r.retire(ctx, c, m.rank))
		}
	}
	return errors.Join(failed, r.settleLinks(ctx, m, wanted))
}

// putMirror writes a connector and its links.
func (r *Reconciler) putMirror(ctx context.Context, m *mirrors, mirror *projection.Mirror) error {
	existing := m.connectors[mirror.Connector.Name]
	if existing == nil {
		found := &v1alpha1.Connector{}
		if there, err := r.stripped(ctx, mirror.Connector, found); err != nil {
			return err
		} else if there && found.Spec.Environment == m.environment {
			existing = found
		}
	}
	mirror.Onto(existing, m.rank)
	if err := r.putConnector(ctx, existing, mirror.Connector); err != nil {
		return err
	}
	var failed error
	for _, link := range mirror.Links {
		existing := m.links[link.Name]
		if existing == nil {
			found := &v1alpha1.ConnectorLink{}
			there, err := r.stripped(ctx, link, found)
			if err != nil {
				failed = errors.Join(failed, err)
				continue
			}
			if there {
				existing = found
			}
		}
		failed = errors.Join(failed, r.putLink(ctx, existing, link))
	}
	return failed
}

// inTheWayError says that somebody's own object has the name of a mirror.
type inTheWayError struct{ kind, name string }

// Error names it, and the remedy.
func (e *inTheWayError) Error() string {
	return fmt.Sprintf("%s %q is there, and the platform has not made it: delete it, and the one that the code defines is made", e.kind, e.name)
}

// stripped reads into found what has the name of a mirror without being marked as one. One that
// the platform has made, and whose labels somebody has taken away, is healed; anybody else's is an
// *inTheWayError. It is looked for past the cache only where there is one.
func (r *Reconciler) stripped(ctx context.Context, mirror v1alpha1.ConditionedObject, found client.Object) (bool, error) {
	key := client.ObjectKeyFromObject(mirror.(client.Object))
	err := r.Client.Get(ctx, key, found)
	if err == nil {
		err = r.Reader.Get(ctx, key, found) // the cache keeps nothing of who wrote what
	}
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("looking for %s %q: %w", mirror.ObjectKind(), key.Name, err)
	}
	made := slices.ContainsFunc(found.GetManagedFields(), func(f metav1.ManagedFieldsEntry) bool {
		return f.Manager == object.FieldManager && f.Subresource == ""
	})
	if !made {
		return false, &inTheWayError{mirror.ObjectKind(), key.Name}
	}
	return true, nil
}

// settleLinks deletes the links that the code has no more. Those of a connector that was left as
// it was stay with it, and those of a retired one, which takes no events, stay too: its file may
// come back.
func (r *Reconciler) settleLinks(ctx context.Context, m *mirrors, wanted map[string]bool) error {
	for _, name := range slices.Sorted(maps.Keys(m.links)) {
		link := m.links[name]
		of := m.connectors[string(link.Spec.Connector)]
		switch {
		case wanted[name]:
		case of != nil && !wanted[of.Name]:
			changed := link.DeepCopy()
			changed.Labels[v1alpha1.LabelActivation] = strconv.FormatInt(m.rank, 10)
			if err := r.patch(ctx, link, changed); err != nil {
				return err
			}
		default:
			err := r.Client.Delete(ctx, link, client.Preconditions{UID: &link.UID})
			if client.IgnoreNotFound(err) != nil {
				return fmt.Errorf("deleting ConnectorLink %q, which the code has no more: %w", name, err)
			}
		}
	}
	return nil
}

// putConnector makes a connector that mirrors a file, or makes it say what it is to say. It is
// not applied: what somebody has added to its spec is to go too.
func (r *Reconciler) putConnector(ctx context.Context, existing, wanted *v1alpha1.Connector) error {
	if existing == nil {
		return r.create(ctx, wanted)
	}
	changed := existing.DeepCopy()
	if !projection.SameConnector(existing, wanted) {
		changed.Spec = wanted.Spec
	}
	delete(changed.Labels, v1alpha1.LabelRetired)
	changed.Labels = labels.Merge(changed.Labels, wanted.Labels)
	return r.patch(ctx, existing, changed)
}

func (r *Reconciler) putLink(ctx context.Context, existing, wanted *v1alpha1.ConnectorLink) error {
	if existing == nil {
		return r.create(ctx, wanted)
	}
	if existing.Spec.Connector != wanted.Spec.Connector || existing.Spec.Agent != wanted.Spec.Agent {
		err := r.Client.Delete(ctx, existing, client.Preconditions{UID: &existing.UID}) // neither can be changed
		return client.IgnoreNotFound(err)
	}
	changed := existing.DeepCopy()
	changed.Spec = wanted.Spec
	changed.Labels = labels.Merge(changed.Labels, wanted.Labels)
	return r.patch(ctx, existing, changed)
}

// retire marks a connector that the code has no more.
func (r *Reconciler) retire(ctx context.Context, c *v1alpha1.Connector, rank int64) error {
	changed := c.DeepCopy()
	changed.Labels[v1alpha1.LabelRetired], changed.Spec.Enabled = "true", ptr.To(false)
	changed.Labels[v1alpha1.LabelActivation] = strconv.FormatInt(rank, 10)
	return r.patch(ctx, c, changed)
}

// carry lets a connector that was left as it was go on under another activation. One that was
// retired before stays so.
func (r *Reconciler) carry(ctx context.Context, c *v1alpha1.Connector, rank int64) error {
	changed := c.DeepCopy()
	changed.Labels[v1alpha1.LabelActivation] = strconv.FormatInt(rank, 10)
	return r.patch(ctx, c, changed)
}

// create makes an object. Another one that has its name since is none of the platform's: the
// next look finds it in the way.
func (r *Reconciler) create(ctx context.Context, o client.Object) error {
	if err := r.Client.Create(ctx, o, client.FieldOwner(object.FieldManager)); err != nil {
		return fmt.Errorf("making %T %q of the code: %w", o, o.GetName(), err)
	}
	return nil
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
