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

// annotationRequests holds, in an object that was changed under Idempotency-Keys, the
// last of them, each with the digest of its request.
const annotationRequests = "agentplatform.dev/requests"

const (
	// requestsNoted is how many there are of them at most.
	requestsNoted = 10
	// MaxChangeAttempts is how often a change or a deletion is tried while somebody else,
	// such as a controller that writes the status, changes the object meanwhile.
	MaxChangeAttempts = 5
)

// nounOf is what this API calls an object of a kind that it changes.
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

// Amend changes an object as it was read and judged: edit judges it, and writes into
// it what is asked for. When somebody has changed the object meanwhile, if only its
// status, both are done again on what it is then. Nothing is written where nothing
// changes. repeated says that an earlier call under the same Idempotency-Key has made
// the change; edit is not called then.
//
// The write takes fields over from whoever owns them, but for those of GitOps
// managers.
func (s *Service) Amend(ctx context.Context, c *Caller, o v1alpha1.ConditionedObject, edit func() error) (repeated bool, err error) {
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

// Reload reads an object anew, in place of what is known of it.
func (s *Service) Reload(ctx context.Context, o v1alpha1.ConditionedObject) error {
	id, fresh := ObjectID(o), reflect.New(reflect.TypeOf(o).Elem()) // what is decoded into o would keep fields that are gone
	if err := s.Client.Get(ctx, client.ObjectKeyFromObject(o.(client.Object)), fresh.Interface().(client.Object)); err != nil {
		return err
	}
	reflect.ValueOf(o).Elem().Set(fresh.Elem())
	o.CommonStatus().ID = id
	return nil
}

// IsRepeated says whether a call repeats one that has changed the object: 422 where its
// Idempotency-Key was sent with another request.
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

// HasNoted says whether an object has the note of the same call: 422 where it is one of another
// request under the same Idempotency-Key.
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

// NoteRequest writes a call's Idempotency-Key, and the digest of its request, into the object
// that it changes.
func (c *Caller) NoteRequest(ctx context.Context, o client.Object) {
	if c.IdempotencyKey == "" {
		return
	}
	noted := append(strings.Fields(o.GetAnnotations()[annotationRequests]), c.keyNoted()+"="+trailOf(ctx).digest())
	annotations := maps.Clone(o.GetAnnotations())
	if annotations == nil {
		annotations = map[string]string{}
	}
	annotations[annotationRequests] = strings.Join(noted[max(len(noted)-requestsNoted, 0):], " ")
	o.SetAnnotations(annotations)
}

// keyNoted stands for an Idempotency-Key: it follows from what derived names are made
// of, too.
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
