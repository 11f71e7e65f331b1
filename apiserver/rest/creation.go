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

// Creation creates the objects of one request, and can delete them if the request fails.
type Creation struct {
	*Service
	Caller *Caller
	fresh  []v1alpha1.ConditionedObject
}

// Create creates an object and claims its ID.
func (n *Creation) Create(ctx context.Context, o v1alpha1.ConditionedObject) error {
	made, err := n.createOnce(ctx, o.(client.Object))
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

// Undo deletes the created objects of a failed request. If the request has an Idempotency-Key and the outcome is
// unknown, they stay: a repetition completes the request, and another attempt may be in progress.
func (n *Creation) Undo(ctx context.Context, why error) {
	if n.Caller.IdempotencyKey == "" || n.ProblemOf(ctx, why).Status < http.StatusInternalServerError {
		n.undo(ctx, n.fresh)
	}
}

// undo deletes objects, even if the client has disconnected. It also deletes an object whose creation failed, because
// Kubernetes may have created it. A UID as a precondition protects other objects of the name.
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

// WaitReady waits until the objects are ready, one after the other. It returns early if an object stalls or depends on
// something that a user must do, if Kubernetes does not respond, or if Wait ends.
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
		return len(objects) == 0 || v1alpha1.IsStalled(objects[0]) || waitsForUser(objects[0])
	})
}

// Wait polls done until it returns true, ReadyTimeout has passed, or the client disconnects.
func (s *Service) Wait(ctx context.Context, done func() bool) {
	// The context gets no deadline: a client with a rate limit fails a call that would start after the deadline.
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

// waitsForUser reports whether a controller has processed the object and waits for a user, a deployment or a node.
func waitsForUser(o v1alpha1.ConditionedObject) bool {
	ready := o.CommonStatus().Condition(v1alpha1.ConditionReady)
	if ready == nil || ready.ObservedGeneration != o.GetGeneration() {
		return false
	}
	switch ready.Reason {
	case v1alpha1.ReasonReferenceMissing:
		// A user creates the Environment that a connector names. A link can name a connector of the same request.
		return o.ObjectKind() == store.KindConnector
	case v1alpha1.ReasonAgentUnknown, v1alpha1.ReasonMiddlewareMissing, v1alpha1.ReasonRunnersStarting, v1alpha1.ReasonRunnersFailing:
		return true
	}
	return false
}
