// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"context"
	"fmt"
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
	"github.com/agentplatform/agentplatform/internal/httpserver"
)

// ConnectorUpdate is what is changed of a connector.
type ConnectorUpdate struct {
	Name    *Name                `json:"name,omitempty" minLength:"1" maxLength:"63" doc:"Its name, unique in its environment in any case of letters, also against connectors that code defines or has defined." example:"Tickets"`
	Type    ConnectorType        `json:"type,omitempty" doc:"Only what it is: that never changes."`
	Mode    ConnectorMode        `json:"mode,omitempty" doc:"Only the one that it has: that never changes."`
	Enabled *bool                `json:"enabled,omitempty" doc:"Whether it works; true also lets a paused outbound connector send again. A connector that was removed from the project's code cannot be enabled."`
	Config  ConnectorConfigInput `json:"config,omitempty" doc:"How it behaves, whole: what is left out of it gets its default. Credentials that are empty or ******** stay as they are, and so does the secret of one's own where it is left out and authentication stays."`
}

// ConnectorUpdateInput is the request that changes a connector.
type ConnectorUpdateInput struct {
	ConnectorPath
	Body ConnectorUpdate
}

// errOnlyEnabled is the answer for changes of a connector that code defines.
var errOnlyEnabled = problem(http.StatusConflict, httpserver.CodeDefinedInCode,
	"the project's code defines the connector: only enabled can be changed here; change the rest there and deploy")

// errRetired is the answer for enabling what a deployment has retired.
var errRetired = problem(http.StatusConflict, httpserver.CodeConnectorRetired,
	"the connector was removed from the project's code and cannot be enabled any more")

func (s *Server) updateConnector(ctx context.Context, c *caller, in *ConnectorUpdateInput) (answer[Connector], error) {
	conn, err := s.connector(ctx, c, in.ConnectorID)
	if err != nil {
		return answer[Connector]{}, err
	}
	was, _, err := s.describeConnector(ctx, c, conn)
	if err != nil {
		return answer[Connector]{}, err
	}
	var before *v1alpha1.Connector
	repeated, err := s.amend(ctx, c, conn, func() error {
		before = conn.DeepCopy()
		if err := s.editConnector(ctx, c, conn, &in.Body); err != nil || in.Body.Enabled == nil || !*in.Body.Enabled {
			return err
		}
		return s.resume(ctx, c, conn) // before the change, so that a repetition of both does neither
	})
	if err != nil {
		return answer[Connector]{}, err
	}
	s.awaitReady(ctx, conn)
	if !repeated && conn.Title() != before.Title() && stalledBy(conn, v1alpha1.ReasonNameTaken) {
		s.putBack(ctx, conn, func() { conn.Spec, conn.Annotations = *before.Spec.DeepCopy(), before.Annotations })
		return answer[Connector]{}, nameTaken
	}
	return s.amended(ctx, c, conn, was)
}

// editConnector writes into a connector what a request asks for.
func (s *Server) editConnector(ctx context.Context, c *caller, conn *v1alpha1.Connector, in *ConnectorUpdate) error {
	switch {
	case in.Type != "" && in.Type != ConnectorType(conn.Type()):
		return wrong("body.type", "never changes: create another connector")
	case in.Mode != "" && in.Mode != ConnectorMode(conn.Spec.Mode.Word()):
		return wrong("body.mode", "never changes: create another connector")
	case conn.DefinedInCode() && (in.Name != nil || in.Type != "" || in.Mode != "" || in.Config.given()):
		return errOnlyEnabled
	}
	if err := refuseUnsupported(conn); err != nil {
		return err
	}
	if err := s.mustHaveEnvironment(ctx, c, conn); err != nil {
		return err
	}
	if in.Enabled != nil {
		retired, err := s.retired(ctx, c, conn)
		if err != nil {
			return err
		}
		if retired && *in.Enabled {
			return errRetired
		}
		conn.Spec.Enabled = in.Enabled
	}
	if in.Name != nil && string(*in.Name) != conn.Title() {
		conn.Spec.DisplayName = v1alpha1.DisplayName(*in.Name)
		if err := s.nameIsFree(ctx, c, conn); err != nil {
			return err
		}
	}
	if !in.Config.given() {
		return nil
	}
	err := s.applyConfig(c, c.keyOf(conn).ID, conn, ConnectorType(conn.Type()), in.Config)
	if err == nil && !conn.HasSecret() && conn.Type() == v1alpha1.ConnectorWebhook && conn.SpecID() == "" {
		return wrong("body.config.authentication", "cannot become none: the id of this connector follows from its name, and would be its only secret; create another connector")
	}
	return err
}

// amended answers with a connector as it is after a change, was before it.
func (s *Server) amended(ctx context.Context, c *caller, conn *v1alpha1.Connector, was Connector) (answer[Connector], error) {
	shown, _, err := s.describeConnector(ctx, c, conn)
	if err != nil {
		return answer[Connector]{}, err
	}
	changed(ctx, shown.audited(), was, shown)
	return answer[Connector]{Body: shown, ETag: etag(conn)}, nil
}

// putBack makes an object what it was before a change that cannot stay, as restore says,
// unless somebody has changed it since.
func (s *Server) putBack(ctx context.Context, o v1alpha1.ConditionedObject, restore func()) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoTimeout)
	defer cancel()
	object, changed := o.(client.Object), o.GetGeneration()
	var err error
	for range changeAttempts {
		now := object.DeepCopyObject().(client.Object)
		restore()
		err = s.client.Patch(ctx, object, client.MergeFromWithOptions(now, client.MergeFromWithOptimisticLock{}), client.FieldOwner(fieldManager))
		if !apierrors.IsConflict(err) || s.reread(ctx, o) != nil || o.GetGeneration() != changed {
			break
		}
	}
	if err != nil {
		s.logger.WarnContext(ctx, "a change that cannot stay is not taken back",
			"namespace", o.GetNamespace(), "name", o.GetName(), "error", fmt.Errorf("putting back what it was: %w", err))
	}
}
