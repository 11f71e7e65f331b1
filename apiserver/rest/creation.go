// SPDX-License-Identifier: Apache-2.0

package rest

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
	"github.com/agentplatform/agentplatform/store"
)

// Creation creates the objects of one request and knows which of them are its own.
type Creation struct {
	*Service
	Caller *Caller
	fresh  []v1alpha1.ConditionedObject
}

// Create creates an object and claims its id.
func (n *Creation) Create(ctx context.Context, o v1alpha1.ConditionedObject) error {
	made, err := n.makeOne(ctx, o.(client.Object))
	if made {
		n.fresh = append(n.fresh, o)
	}
	if err == nil {
		err = n.claim(ctx, n.Caller.ProjectID, o)
	}
	if err != nil {
		return fmt.Errorf("creating %s %q: %w", o.ObjectKind(), o.GetName(), err)
	}
	return nil
}

// Undo deletes what was created for a request that failed. Under an
// Idempotency-Key it stays where it is not known why: a repetition completes it, and
// another one may be under way.
func (n *Creation) Undo(ctx context.Context, why error) {
	if n.Caller.IdempotencyKey == "" || n.ProblemOf(ctx, why).Status < http.StatusInternalServerError {
		n.undo(ctx, n.fresh)
	}
}

// undo deletes what was created, also of a request that was given up, and also
// the last one: its creation may have been carried out although it failed.
// Of what is known to have been created exactly that object is deleted.
func (s *Service) undo(ctx context.Context, objects []v1alpha1.ConditionedObject) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), UndoTimeout)
	defer cancel()
	for _, o := range objects {
		var exactly []client.DeleteOption
		if uid := o.GetUID(); uid != "" {
			exactly = append(exactly, client.Preconditions{UID: &uid})
		}
		if err := s.Client.Delete(ctx, o.(client.Object), exactly...); err != nil && !IsNotFound(err) {
			s.Logger.WarnContext(ctx, "an object of a failed request stays", "namespace", o.GetNamespace(), "name", o.GetName(), "error", err)
		}
	}
}

// WaitReady returns once the controllers have come to an end with the objects,
// one after the other, or one has stalled or waits for somebody, or nobody answers, or as
// await does: they exist in any case.
func (s *Service) WaitReady(ctx context.Context, objects ...v1alpha1.ConditionedObject) {
	looked := false
	s.Wait(ctx, func() bool {
		if looked {
			o := objects[0]
			if err := s.Reload(ctx, o); err != nil {
				s.Logger.WarnContext(ctx, "waiting for an object that was written", "namespace", o.GetNamespace(), "name", o.GetName(), "error", err)
				return true
			}
		}
		for looked = true; len(objects) > 0 && v1alpha1.IsReady(objects[0]); {
			objects = objects[1:]
		}
		return len(objects) == 0 || v1alpha1.IsStalled(objects[0]) || waitsForSomebody(objects[0])
	})
}

// Wait asks from time to time until something is done, or readyTimeout has passed, or
// nobody waits.
func (s *Service) Wait(ctx context.Context, done func() bool) {
	// No deadline on the context: a client that limits its rate refuses a call
	// that would come after it, which is no error here.
	timeout := time.NewTimer(s.ReadyTimeout)
	defer timeout.Stop()
	ticker := time.NewTicker(readyInterval)
	defer ticker.Stop()
	for !done() {
		select {
		case <-ctx.Done():
			return
		case <-timeout.C:
			return
		case <-ticker.C:
		}
	}
}

// waitsForSomebody says that a controller has looked at the object as it is and waits
// for what only a person, a deployment or a node brings.
func waitsForSomebody(o v1alpha1.ConditionedObject) bool {
	ready := o.CommonStatus().Condition(v1alpha1.ConditionReady)
	if ready == nil || ready.ObservedGeneration != o.GetGeneration() {
		return false
	}
	switch ready.Reason {
	case v1alpha1.ReasonReferenceMissing:
		// A connector names an Environment, which a person creates; a link may name a connector that is just created.
		return o.ObjectKind() == store.KindConnector
	case v1alpha1.ReasonAgentUnknown, v1alpha1.ReasonMiddlewareMissing, v1alpha1.ReasonRunnersStarting, v1alpha1.ReasonRunnersFailing:
		return true
	}
	return false
}
