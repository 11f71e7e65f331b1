// SPDX-License-Identifier: Apache-2.0

package code

import (
	"context"
	"fmt"
	"maps"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
	"github.com/agentplatform/agentplatform/controllers/base"
	"github.com/agentplatform/agentplatform/controllers/projection"
)

// reasonUnread is the event reason for connectors whose files cannot be read.
const reasonUnread = "ConnectorUnread"

// isOwnMirror reports whether the platform created an object as a mirror of the environment's code. It
// restores missing labels.
func (r *Reconciler) isOwnMirror(ctx context.Context, o v1alpha1.ConditionedObject, m *mirrors) (bool, error) {
	if projection.IsMirror(o, m.environment) {
		return true, nil
	}
	if !strings.HasPrefix(o.GetName(), string(m.environment)+".") || !projection.IsCreatedByPlatform(o) {
		return false, nil
	}
	before := o.DeepCopyObject().(client.Object)
	labels := maps.Clone(o.GetLabels())
	if labels == nil {
		labels = map[string]string{}
	}
	maps.Copy(labels, projection.MirrorLabels(m.environment))
	o.SetLabels(labels)
	return true, r.ignoreConflict(m, r.patchObject(ctx, before, o))
}

// createObject creates an object, unless an object with its name exists: then the cache is stale, or the
// object has another owner.
func (r *Reconciler) createObject(ctx context.Context, m *mirrors, wanted v1alpha1.ConditionedObject) error {
	there := wanted.DeepCopyObject().(v1alpha1.ConditionedObject)
	err := r.Client.Get(ctx, client.ObjectKeyFromObject(wanted), there)
	if apierrors.IsNotFound(err) {
		err = r.Client.Create(ctx, wanted, client.FieldOwner(base.FieldManager))
		if !apierrors.IsAlreadyExists(err) {
			return wrapCreate(err, wanted)
		}
		err = r.Reader.Get(ctx, client.ObjectKeyFromObject(wanted), there)
	}
	switch {
	case apierrors.IsNotFound(err), err == nil && (projection.IsMirror(there, m.environment) || projection.IsCreatedByPlatform(there)) && sameEnvironment(there, m.environment):
		m.cacheStale = true
		return nil
	case err == nil:
		m.conflicts = append(m.conflicts, fmt.Sprintf("%s %q", wanted.ObjectKind(), wanted.GetName()))
		return nil
	}
	return wrapCreate(err, wanted)
}

func sameEnvironment(o v1alpha1.ConditionedObject, environment v1alpha1.EnvironmentName) bool {
	c, is := o.(*v1alpha1.Connector)
	return !is || c.Spec.Environment == environment
}

func wrapCreate(err error, o client.Object) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("creating %T %q of the code: %w", o, o.GetName(), err)
}

// ignoreConflict ignores a conflict with another write, because the cache will report that write.
func (r *Reconciler) ignoreConflict(m *mirrors, err error) error {
	if apierrors.IsConflict(err) {
		m.cacheStale = true
		return nil
	}
	return err
}

// sendWarnings sends warnings to the live deployment and its environment: about conflicting objects of other
// owners, files that cannot be read, and objects that Kubernetes rejects, for example because of a
// quota.
func (r *Reconciler) sendWarnings(ctx context.Context, environment *v1alpha1.Environment, m *mirrors, failed error) {
	notes := map[string]string{}
	if len(m.conflicts) > 0 {
		notes[v1alpha1.ReasonNameCollision] = "objects that the platform did not create have the names of connectors of the code. They are neither used nor changed. Delete or " +
			"rename them: " + strings.Join(m.conflicts, ", ")
	}
	if len(m.unreadable) > 0 {
		notes[reasonUnread] = "connectors of the code are served, but their objects are not updated, because this release of the platform " +
			"cannot read their files: " + strings.Join(m.unreadable, "; ")
	}
	if words := base.RejectionMessage(failed); words != "" {
		notes[v1alpha1.ReasonRefused] = "connectors of the code are served, but not all of them have objects. " + words
	}
	if len(notes) == 0 {
		return
	}
	at := []v1alpha1.ConditionedObject{environment}
	live := &v1alpha1.Deployment{}
	switch err := r.Client.Get(ctx, client.ObjectKey{Namespace: environment.Namespace, Name: m.deployment}, live); {
	case err == nil:
		at = append(at, live)
	case !apierrors.IsNotFound(err):
		ctrl.LoggerFrom(ctx).Error(err, "reading the live deployment for a warning")
	}
	for reason, note := range notes {
		for _, o := range at {
			r.Event(o, corev1.EventTypeWarning, reason, note)
		}
	}
}
