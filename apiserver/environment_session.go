// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"context"
	"fmt"
	"net/http"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
	"github.com/agentplatform/agentplatform/internal/httpserver"
)

// TestSession is who tests in an environment.
type TestSession struct {
	Holder    string    `json:"holder" doc:"Who tests, in their own words." example:"anna@laptop"`
	ExpiresAt time.Time `json:"expires_at" doc:"When the session ends, unless it is renewed."`
}

// TestSessionRequest is a session that is asked for.
type TestSessionRequest struct {
	Holder     string `json:"holder" minLength:"1" maxLength:"128" doc:"Who tests. The same holder renews the session." example:"anna@laptop"`
	TTLSeconds int    `json:"ttl_seconds,omitempty" minimum:"10" maximum:"3600" default:"300" doc:"How long the session lasts from now."`
}

// TestSessionInput is the request that begins or renews a session.
type TestSessionInput struct {
	EnvironmentPath
	Body TestSessionRequest
}

// TestSessionEnd is the request that ends a session.
type TestSessionEnd struct {
	EnvironmentPath
	Holder string `query:"holder" required:"true" minLength:"1" maxLength:"128" doc:"Who holds the session." example:"anna@laptop"`
}

// sessionAudited is what the audit log keeps of a session.
type sessionAudited struct {
	TestSession *TestSession `json:"test_session"`
}

// holdTestSession begins a test session, or renews that of the same holder.
func (s *Server) holdTestSession(ctx context.Context, c *caller, in *TestSessionInput) (answer[TestSession], error) {
	e, err := s.changeTestSession(ctx, c, in.EnvironmentID, in.Body.Holder, func() *v1alpha1.TestSession {
		ends := s.now().Add(time.Duration(in.Body.TTLSeconds) * time.Second)
		return &v1alpha1.TestSession{Holder: in.Body.Holder, ExpiresAt: metav1.NewTime(ends.Truncate(time.Second))}
	})
	if err != nil {
		return answer[TestSession]{}, err
	}
	return plainly(*showTestSession(e.Status.TestSession), nil)
}

// endTestSession ends a test session; where there is none, nothing is left to do.
func (s *Server) endTestSession(ctx context.Context, c *caller, in *TestSessionEnd) (answer[Done], error) {
	_, err := s.changeTestSession(ctx, c, in.EnvironmentID, in.Holder, func() *v1alpha1.TestSession { return nil })
	return plainly(Done{OK: err == nil}, err)
}

// changeTestSession writes a session in place of that of a holder into the status of a test environment:
// 409 where it is none, or where somebody else holds it.
func (s *Server) changeTestSession(
	ctx context.Context, c *caller, id ID, holder string, to func() *v1alpha1.TestSession,
) (*v1alpha1.Environment, error) {
	e, err := s.environment(ctx, c, id)
	if err != nil {
		return nil, err
	}
	repeated, err := s.repeats(ctx, c, e)
	if err != nil {
		return nil, err
	}
	if active := e.ActiveTestSession(s.now()); repeated && (to() == nil || active != nil && active.Holder == holder) {
		return e, nil
	}
	if err := s.writeTestSession(ctx, c, e, holder, to); err != nil {
		return nil, err
	}
	_, err = s.amend(ctx, c, e, func() error { return nil }) // which notes an Idempotency-Key
	return e, err
}

// writeTestSession writes the status once nobody else tests there, as it is when it is written.
func (s *Server) writeTestSession(
	ctx context.Context, c *caller, e *v1alpha1.Environment, holder string, to func() *v1alpha1.TestSession,
) (err error) {
	id := idOf(e)
	for range changeAttempts {
		active := e.ActiveTestSession(s.now())
		switch {
		case !e.IsTest():
			return problem(http.StatusConflict, httpserver.CodeConflict, "the environment is none for tests: its kind is standard")
		case active != nil && active.Holder != holder:
			return problem(http.StatusConflict, httpserver.CodeTestSession, "somebody else tests in the environment: "+heldBy(active))
		}
		before := e.DeepCopy()
		e.Status.TestSession = to()
		err = s.client.Status().Patch(ctx, e, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}), client.FieldOwner(fieldManager))
		e.Status.ID = id
		if err == nil {
			changed(ctx, auditedEnvironment(e), sessionAudited{showTestSession(active)}, sessionAudited{showTestSession(e.Status.TestSession)})
			return nil
		}
		if !apierrors.IsConflict(err) {
			break
		}
		if err := s.reread(ctx, e); err != nil {
			return err
		}
		if e.UID != before.UID {
			return notFound("environment") // another object has its name
		}
	}
	return fmt.Errorf("writing the test session of environment %q: %w", e.Name, err)
}

// mustBeUnused answers 409 while somebody tests in an environment.
func (s *Server) mustBeUnused(e *v1alpha1.Environment) error {
	if active := e.ActiveTestSession(s.now()); active != nil {
		return problem(http.StatusConflict, httpserver.CodeTestSession, "somebody tests in the environment: "+heldBy(active))
	}
	return nil
}

func heldBy(session *v1alpha1.TestSession) string {
	return fmt.Sprintf("%q, until %s unless the session is renewed", session.Holder, session.ExpiresAt.UTC().Format(time.RFC3339))
}

// showTestSession is nil for none.
func showTestSession(session *v1alpha1.TestSession) *TestSession {
	if session == nil {
		return nil
	}
	return &TestSession{Holder: session.Holder, ExpiresAt: session.ExpiresAt.UTC()}
}
