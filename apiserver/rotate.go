// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"context"
	"fmt"
	"net/http"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
	"github.com/agentplatform/agentplatform/internal/httpserver"
)

// RotateSecret says how a secret is rotated.
type RotateSecret struct {
	GraceSeconds *int32 `json:"grace_seconds,omitempty" minimum:"0" maximum:"31536000" doc:"How long the secrets before stay valid after this rotation; 0 ends them at once. Without it: as the connector has it, which stays so for later rotations; by default 86400."`
}

// RotateSecretInput is the request that rotates a secret.
type RotateSecretInput struct {
	ConnectorPath
	Body *RotateSecret
}

// rotateSecret raises the version of the generated secret, and answers once the new
// one is in effect: whoever reads it may use it.
func (s *Server) rotateSecret(ctx context.Context, c *caller, in *RotateSecretInput) (answer[Connector], error) {
	conn, err := s.connector(ctx, c, in.ConnectorID)
	if err != nil {
		return answer[Connector]{}, err
	}
	was, _, err := s.describeConnector(ctx, c, conn)
	if err != nil {
		return answer[Connector]{}, err
	}
	_, err = s.amend(ctx, c, conn, func() error {
		if err := mustRotate(conn); err != nil {
			return err
		}
		last := max(conn.SecretVersion(), conn.SecretVersionInEffect())
		if last >= v1alpha1.MaxSecretVersion {
			return problem(http.StatusConflict, httpserver.CodeConflict, fmt.Sprintf("its secret is of version %d, which is the last: "+
				"make another connector, or bring a secret of your own", last))
		}
		var grace *int32
		if in.Body != nil {
			grace = in.Body.GraceSeconds
		}
		conn.RotateSecret(last+1, grace)
		return nil
	})
	if err != nil {
		return answer[Connector]{}, err
	}
	s.awaitReady(ctx, conn)
	out, err := s.amended(ctx, c, conn, was)
	if err == nil && conn.SecretVersionInEffect() < conn.SecretVersion() {
		return answer[Connector]{}, problem(http.StatusServiceUnavailable, httpserver.CodeNotInEffect,
			"the new secret is not in effect yet; send the call again under the same Idempotency-Key, or read the connector later")
	}
	return out, err
}

// mustRotate answers 409 where a higher version would not bring another secret.
func mustRotate(conn *v1alpha1.Connector) error {
	routes := conn.Status.Condition(v1alpha1.ConditionRoutesReady)
	switch {
	case conn.DefinedInCode():
		return errOnlyEnabled
	case conn.Spec.SecretRef != nil:
		return problem(http.StatusConflict, httpserver.CodeNoSecret,
			fmt.Sprintf("the connector's secret is the project's own: change it in the Secret %q", conn.Spec.SecretRef.Name))
	case conn.SealedSecret() != "":
		return problem(http.StatusConflict, httpserver.CodeNoSecret, "the connector's secret is the project's own: send another one as config.secret")
	case conn.Type() == v1alpha1.ConnectorCron:
		return problem(http.StatusConflict, httpserver.CodeNoSecret, "the connector has no secret: nobody calls a schedule")
	case !conn.HasSecret():
		return problem(http.StatusConflict, httpserver.CodeNoSecret, "the connector has no secret: its authentication is none")
	case len(conn.Unsupported()) > 0, routes != nil && routes.Status == metav1.ConditionFalse:
		return problem(http.StatusConflict, httpserver.CodeConflict, "the connector is not in effect, and so no secret of it could be: "+whyNotReady(conn))
	default:
		return nil
	}
}
