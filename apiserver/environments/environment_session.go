// SPDX-License-Identifier: Apache-2.0

package environments

import (
	"context"
	"fmt"
	"net/http"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
	"github.com/agentplatform/agentplatform/apiserver/rest"
	"github.com/agentplatform/agentplatform/internal/httpserver"
)

// TestSession is a test session in an environment.
type TestSession struct {
	Holder    string    `json:"holder" doc:"A free text that identifies the holder." example:"anna@laptop"`
	ExpiresAt time.Time `json:"expires_at" doc:"When the session expires unless it is renewed."`
}

func (TestSession) Doc() string { return "A test session in an environment." }

// TestSessionRequest is a session to start or renew.
type TestSessionRequest struct {
	Holder     string `json:"holder" minLength:"1" maxLength:"128" doc:"A free text that identifies the holder. The same holder renews the session." example:"anna@laptop"`
	TTLSeconds int    `json:"ttl_seconds,omitempty" minimum:"10" maximum:"3600" default:"300" doc:"Duration of the session from now, in seconds."`
}

func (TestSessionRequest) Doc() string { return "The test session to start or renew." }

// TestSessionInput is the request that begins or renews a session.
type TestSessionInput struct {
	rest.EnvironmentPath
	Body TestSessionRequest
}

// TestSessionEnd is the request that ends a session.
type TestSessionEnd struct {
	rest.EnvironmentPath
	Holder string `query:"holder" required:"true" minLength:"1" maxLength:"128" doc:"The holder of the session." example:"anna@laptop"`
}

// sessionAudited is the form of a session in the audit log.
type sessionAudited struct {
	TestSession *TestSession `json:"test_session"`
}

var holdTestSession = rest.Handle((*API).holdTestSession, rest.Endpoint{
	Method: rest.Put, Path: "/environments/{environment_id}/session", ID: "holdTestSession",
	Permissions: rest.Requires("environments.update"), Effect: rest.EffectAction, Errors: rest.CreateErrors,
	Summary: "Start or renew a test session",
	Doc: "Reserves a test environment for a holder. This API does not delete the environment during the session. The holder " +
		"renews the session with the same call before it expires. Returns 409 if another holder has a session, or if the " +
		"environment is a standard environment.",
	Example: rest.Example{Path: "/environments/{test_environment}/session", Body: `{"holder":"anna","ttl_seconds":60}`},
})

// holdTestSession starts a test session, or renews the session of the same holder.
func (s *API) holdTestSession(ctx context.Context, c *rest.Caller, in *TestSessionInput) (rest.Response[TestSession], error) {
	e, err := s.changeTestSession(ctx, c, in.EnvironmentID, in.Body.Holder, func() *v1alpha1.TestSession {
		ends := s.Service.Now().Add(time.Duration(in.Body.TTLSeconds) * time.Second)
		return &v1alpha1.TestSession{Holder: in.Body.Holder, ExpiresAt: metav1.NewTime(ends.Truncate(time.Second))}
	})
	if err != nil {
		return rest.Response[TestSession]{}, err
	}
	return rest.NewResponse(*showTestSession(e.Status.TestSession), nil)
}

var endTestSession = rest.Handle((*API).endTestSession, rest.Endpoint{
	Method: rest.Delete, Path: "/environments/{environment_id}/session", ID: "endTestSession",
	Permissions: rest.Requires("environments.update"), Effect: rest.EffectAction, Errors: rest.ActionErrors,
	Summary: "End a test session",
	Doc:     "Ends the session of the holder early. Succeeds if there is no session. Returns 409 if another holder has a session.",
	Example: rest.Example{Path: "/environments/{test_environment}/session?holder=anna"},
})

// endTestSession ends a test session, if there is one.
func (s *API) endTestSession(ctx context.Context, c *rest.Caller, in *TestSessionEnd) (rest.Response[rest.Done], error) {
	_, err := s.changeTestSession(ctx, c, in.EnvironmentID, in.Holder, func() *v1alpha1.TestSession { return nil })
	return rest.NewResponse(rest.Done{OK: err == nil}, err)
}

// changeTestSession replaces the session of a holder in the status of a test environment. It returns 409 for a standard
// environment, and if another holder has a session.
func (s *API) changeTestSession(
	ctx context.Context, c *rest.Caller, id rest.ID, holder string, to func() *v1alpha1.TestSession,
) (*v1alpha1.Environment, error) {
	e, err := s.Service.Environment(ctx, c, id)
	if err != nil {
		return nil, err
	}
	repeated, err := s.Service.IsRepeated(ctx, c, e)
	if err != nil {
		return nil, err
	}
	if active := e.ActiveTestSession(s.Service.Now()); repeated && (to() == nil || active != nil && active.Holder == holder) {
		return e, nil
	}
	if err := s.writeTestSession(ctx, c, e, holder, to); err != nil {
		return nil, err
	}
	_, err = s.Service.UpdateObject(ctx, c, e, func() error { return nil }) // writes the Idempotency-Key
	return e, err
}

// writeTestSession writes the status if no other holder has a session at the time of the write.
func (s *API) writeTestSession(
	ctx context.Context, c *rest.Caller, e *v1alpha1.Environment, holder string, to func() *v1alpha1.TestSession,
) (err error) {
	id := rest.ObjectID(e)
	for range rest.MaxChangeAttempts {
		active := e.ActiveTestSession(s.Service.Now())
		switch {
		case !e.IsTest():
			return rest.NewProblem(http.StatusConflict, httpserver.CodeConflict, "the environment is not a test environment")
		case active != nil && active.Holder != holder:
			return rest.NewProblem(http.StatusConflict, httpserver.CodeTestSession, "another test session is active: "+heldBy(active))
		}
		before := e.DeepCopy()
		e.Status.TestSession = to()
		err = s.Service.Client.Status().Patch(ctx, e, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}), client.FieldOwner(rest.FieldManager))
		e.Status.ID = id
		if err == nil {
			rest.RecordChange(ctx, auditedEnvironment(e), sessionAudited{showTestSession(active)}, sessionAudited{showTestSession(e.Status.TestSession)})
			return nil
		}
		if !apierrors.IsConflict(err) {
			break
		}
		if err := s.Service.Reload(ctx, e); err != nil {
			return err
		}
		if e.UID != before.UID {
			return rest.NotFound("environment") // another object has its name
		}
	}
	return fmt.Errorf("writing the test session of environment %q: %w", e.Name, err)
}

// mustBeUnused returns 409 during a test session.
func (s *API) mustBeUnused(e *v1alpha1.Environment) error {
	if active := e.ActiveTestSession(s.Service.Now()); active != nil {
		return rest.NewProblem(http.StatusConflict, httpserver.CodeTestSession, "a test session is active: "+heldBy(active))
	}
	return nil
}

func heldBy(session *v1alpha1.TestSession) string {
	return fmt.Sprintf("its holder is %q, and it expires at %s unless it is renewed", session.Holder, session.ExpiresAt.UTC().Format(time.RFC3339))
}

// showTestSession returns nil if there is no session.
func showTestSession(session *v1alpha1.TestSession) *TestSession {
	if session == nil {
		return nil
	}
	return &TestSession{Holder: session.Holder, ExpiresAt: session.ExpiresAt.UTC()}
}
