// SPDX-License-Identifier: Apache-2.0

package rest

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
)

// RepeatedDelete responds to a deletion that finds no object: as before if the call repeats an
// earlier one under the same Idempotency-Key, else with absent.
func (s *Service) RepeatedDelete(ctx context.Context, c *Caller, id ID, absent error) (Response[Done], error) {
	before, err := s.HasDone(ctx, c, id)
	switch {
	case err != nil:
		return Response[Done]{}, err
	case before:
		return Response[Done]{Body: Done{OK: true}}, nil
	default:
		return Response[Done]{}, absent
	}
}

// DeleteObject deletes the version of an object that was read and judged. If the object has
// changed since, it is read and judged again. An object that no longer exists counts as deleted.
func (s *Service) DeleteObject(ctx context.Context, o v1alpha1.ConditionedObject, judge func() error) error {
	object, uid := o.(client.Object), o.GetUID()
	var err error
	for range MaxChangeAttempts {
		version := o.GetResourceVersion()
		err = s.Client.Delete(ctx, object, client.Preconditions{UID: &uid, ResourceVersion: &version})
		if !apierrors.IsConflict(err) {
			break
		}
		again := s.Reload(ctx, o)
		if again == nil && o.GetUID() != uid {
			return nil // another object has its name
		}
		if again == nil && judge != nil {
			again = judge()
		}
		if again != nil {
			err = again
			break
		}
	}
	if err == nil || apierrors.IsNotFound(err) {
		return nil
	}
	return fmt.Errorf("deleting %s %q: %w", o.ObjectKind(), o.GetName(), err)
}
