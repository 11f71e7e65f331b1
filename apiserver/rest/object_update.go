// SPDX-License-Identifier: Apache-2.0

package rest

import (
	"context"
	"encoding/hex"
	"fmt"
	"maps"
	"reflect"
	"strings"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
	"github.com/agentplatform/agentplatform/store"
)

// annotationRequests holds the last Idempotency-Keys under which an object was changed, each with the digest of its
// request.
const annotationRequests = "agentplatform.dev/requests"

const (
	// maxRequestNotes is the most Idempotency-Keys in annotationRequests.
	maxRequestNotes = 10
	// MaxChangeAttempts is the number of attempts of a change or a deletion. Each attempt fails if another writer, such
	// as a controller, has changed the object since it was read.
	MaxChangeAttempts = 5
)

// nounOf returns the name of an object's kind in this API.
func nounOf(o v1alpha1.ConditionedObject) string {
	switch o.ObjectKind() {
	case store.KindEnvironment:
		return "environment"
	case store.KindDeployment:
		return "deployment"
	case store.KindConnectorLink:
		return "link"
	}
	return "connector"
}

// UpdateObject changes an object: edit checks the object and writes the change into it. If another writer has changed
// the object since it was read, UpdateObject reads it again and repeats edit. It writes nothing if edit changes nothing.
// repeated reports that an earlier call with the same Idempotency-Key made the change; edit is not called then. The
// write takes ownership of fields, except fields of GitOps managers.
func (s *Service) UpdateObject(ctx context.Context, c *Caller, o v1alpha1.ConditionedObject, edit func() error) (repeated bool, err error) {
	object, uid, id := o.(client.Object), o.GetUID(), ObjectID(o)
	for range MaxChangeAttempts {
		if repeated, err = s.IsRepeated(ctx, c, o); repeated || err != nil {
			return repeated, err
		}
		if err = c.CheckMatch(o); err != nil {
			return false, err
		}
		before := object.DeepCopyObject().(client.Object)
		if err = edit(); err != nil {
			return false, err
		}
		if err = s.CheckOwnership(before.(v1alpha1.ConditionedObject), o); err != nil {
			return false, err
		}
		c.NoteRequest(ctx, object)
		if equality.Semantic.DeepEqual(before, object) {
			return false, nil
		}
		err = s.Client.Patch(ctx, object, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}), client.FieldOwner(FieldManager))
		o.CommonStatus().ID = id
		if !apierrors.IsConflict(err) {
			break
		}
		if again := s.Reload(ctx, o); again != nil {
			err = again
			break
		}
		if o.GetUID() != uid {
			return false, NotFound(nounOf(o)) // another object has its name
		}
	}
	if err != nil {
		return false, fmt.Errorf("changing %s %q: %w", o.ObjectKind(), o.GetName(), err)
	}
	return false, nil
}

// Reload reads an object again and replaces it.
func (s *Service) Reload(ctx context.Context, o v1alpha1.ConditionedObject) error {
	id, fresh := ObjectID(o), reflect.New(reflect.TypeOf(o).Elem()) // decoding into o would keep deleted fields
	if err := s.Client.Get(ctx, client.ObjectKeyFromObject(o.(client.Object)), fresh.Interface().(client.Object)); err != nil {
		return err
	}
	reflect.ValueOf(o).Elem().Set(fresh.Elem())
	o.CommonStatus().ID = id
	return nil
}

// IsRepeated reports whether an earlier call with the same Idempotency-Key changed the object. It returns 422 if another
// request had the key.
func (s *Service) IsRepeated(ctx context.Context, c *Caller, o v1alpha1.ConditionedObject) (bool, error) {
	if c.IdempotencyKey == "" {
		return false, nil
	}
	if noted, err := c.HasNoted(ctx, o.(client.Object)); noted || err != nil {
		return noted, err
	}
	earlier, err := s.EarlierCalls(ctx, c)
	if err != nil {
		return false, err
	}
	for _, e := range earlier {
		if !strings.EqualFold(e.Object.ID, ObjectID(o)) {
			return false, ErrKeyReused // for another object
		}
	}
	return false, nil
}

// HasNoted reports whether annotationRequests has the Idempotency-Key of the call. It returns 422 if another request had
// the key.
func (c *Caller) HasNoted(ctx context.Context, o client.Object) (bool, error) {
	for _, noted := range strings.Fields(o.GetAnnotations()[annotationRequests]) {
		key, digest, _ := strings.Cut(noted, "=")
		switch {
		case c.IdempotencyKey == "" || key != c.keyNoted():
		case digest == trailOf(ctx).digest():
			return true, nil
		default:
			return false, ErrKeyReused
		}
	}
	return false, nil
}

// NoteRequest writes the Idempotency-Key of a call and the digest of its request into the object that it changes.
func (c *Caller) NoteRequest(ctx context.Context, o client.Object) {
	if c.IdempotencyKey == "" {
		return
	}
	noted := append(strings.Fields(o.GetAnnotations()[annotationRequests]), c.keyNoted()+"="+trailOf(ctx).digest())
	annotations := maps.Clone(o.GetAnnotations())
	if annotations == nil {
		annotations = map[string]string{}
	}
	annotations[annotationRequests] = strings.Join(noted[max(len(noted)-maxRequestNotes, 0):], " ")
	o.SetAnnotations(annotations)
}

// keyNoted is the form of an Idempotency-Key in annotationRequests.
func (c *Caller) keyNoted() string { return hex.EncodeToString(c.DeriveBytes("change")[:8]) }

// Revert undoes a change with restore, unless the object has changed since.
func (s *Service) Revert(ctx context.Context, o v1alpha1.ConditionedObject, restore func()) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), UndoTimeout)
	defer cancel()
	object, changed := o.(client.Object), o.GetGeneration()
	var err error
	for range MaxChangeAttempts {
		now := object.DeepCopyObject().(client.Object)
		restore()
		err = s.Client.Patch(ctx, object, client.MergeFromWithOptions(now, client.MergeFromWithOptimisticLock{}), client.FieldOwner(FieldManager))
		if !apierrors.IsConflict(err) || s.Reload(ctx, o) != nil || o.GetGeneration() != changed {
			break
		}
	}
	if err != nil {
		s.Logger.WarnContext(ctx, "a change that cannot stay is not taken back",
			"namespace", o.GetNamespace(), "name", o.GetName(), "error", fmt.Errorf("putting back what it was: %w", err))
	}
}

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
