// SPDX-License-Identifier: Apache-2.0

package connectors

import (
	"context"
	"fmt"
	"net/http"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
	"github.com/agentplatform/agentplatform/apiserver/rest"
	"github.com/agentplatform/agentplatform/connector/crd"
	"github.com/agentplatform/agentplatform/internal/httpserver"
)

// RotateSecret has the options of a rotation.
type RotateSecret struct {
	GraceSeconds *int32 `json:"grace_seconds,omitempty" minimum:"0" maximum:"31536000" doc:"How long the earlier secrets stay valid after this rotation, in seconds; 0 ends them at once. The connector keeps this value for later rotations. Default: the connector's value, at first 86400."`
}

func (RotateSecret) Doc() string { return "The options of a secret rotation." }

// RotateSecretInput is the request that rotates a secret.
type RotateSecretInput struct {
	rest.ConnectorPath
	Body *RotateSecret
}

var rotateSecret = rest.Handle((*API).rotateSecret, rest.Endpoint{
	Method: rest.Post, Path: "/connectors/{connector_id}/rotate-secret", ID: "rotateSecret",
	Permissions: rest.Requires("connectors.update"), Effect: rest.EffectUpdate, Errors: rest.UpdateErrors,
	HasETag: true,
	Summary: "Rotate the secret of a connector",
	Doc: "Creates a new secret and returns the connector once the secret is in effect. Earlier secrets stay valid for " +
		"`grace_seconds`. After two seconds the call returns 503; repeat it with the same `Idempotency-Key` to get the secret. " +
		"The secret rotates once for each `Idempotency-Key`. Returns 409 for a connector without authentication, and for a " +
		"connector with the project's own secret.",
	Example: rest.Example{Path: "/connectors/{connector}/rotate-secret", Body: `{"grace_seconds":86400}`},
})

// rotateSecret increments the version of the generated secret, and responds once the new secret is in effect.
func (s *API) rotateSecret(ctx context.Context, c *rest.Caller, in *RotateSecretInput) (rest.Response[Connector], error) {
	conn, err := s.Service.Connector(ctx, c, in.ConnectorID)
	if err != nil {
		return rest.Response[Connector]{}, err
	}
	was, _, err := s.describeConnector(ctx, c, conn)
	if err != nil {
		return rest.Response[Connector]{}, err
	}
	_, err = s.Service.UpdateObject(ctx, c, conn, func() error {
		if err := mustRotate(conn); err != nil {
			return err
		}
		last := max(conn.SecretVersion(), conn.SecretVersionInEffect())
		if last >= v1alpha1.MaxSecretVersion {
			return rest.NewProblem(http.StatusConflict, httpserver.CodeConflict, fmt.Sprintf("the connector's secret has version %d, which is the highest; "+
				"create another connector, or send your own secret as config.secret", last))
		}
		var grace *int32
		if in.Body != nil {
			grace = in.Body.GraceSeconds
		}
		conn.RotateSecret(last+1, grace)
		return nil
	})
	if err != nil {
		return rest.Response[Connector]{}, err
	}
	s.Service.WaitReady(ctx, conn)
	out, err := s.respondUpdated(ctx, c, conn, was)
	if err == nil && conn.SecretVersionInEffect() < conn.SecretVersion() {
		return rest.Response[Connector]{}, rest.NewProblem(http.StatusServiceUnavailable, httpserver.CodeNotInEffect,
			"the new secret is not in effect yet; send the call again with the same Idempotency-Key, or read the connector later")
	}
	return out, err
}

// mustRotate returns 409 if a higher version would not change the secret.
func mustRotate(conn *v1alpha1.Connector) error {
	kind, routes := crd.KindOf(conn), conn.Status.Condition(v1alpha1.ConditionRoutesReady)
	switch {
	case conn.DefinedInCode():
		return errOnlyEnabled
	case conn.Spec.SecretRef != nil:
		return rest.NewProblem(http.StatusConflict, httpserver.CodeNoSecret,
			fmt.Sprintf("the connector's secret comes from the Secret %q: change it there", conn.Spec.SecretRef.Name))
	case conn.SealedSecret() != "":
		return rest.NewProblem(http.StatusConflict, httpserver.CodeNoSecret, "the platform did not generate the connector's secret; send a new secret as config.secret")
	case !crd.HasSecret(conn) && kind.IsKnown() && !kind.HasCallers():
		return rest.NewProblem(http.StatusConflict, httpserver.CodeNoSecret, "a "+kind.Noun()+" has no secret")
	case !crd.HasSecret(conn):
		return rest.NewProblem(http.StatusConflict, httpserver.CodeNoSecret, "the connector has no secret: its authentication is none")
	case len(conn.Unsupported()) > 0, routes != nil && routes.Status == metav1.ConditionFalse:
		return rest.NewProblem(http.StatusConflict, httpserver.CodeConflict, "the connector is not in effect, so its secret cannot be rotated: "+rest.NotReadyMessage(conn))
	default:
		return nil
	}
}
