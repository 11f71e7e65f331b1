// SPDX-License-Identifier: Apache-2.0

package connectors

import (
	"context"
	"net/http"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
	"github.com/agentplatform/agentplatform/apiserver/rest"
	"github.com/agentplatform/agentplatform/connector/crd"
	"github.com/agentplatform/agentplatform/internal/httpserver"
)

// ConnectorUpdate has the fields of a connector to change.
type ConnectorUpdate struct {
	Name    *rest.Name           `json:"name,omitempty" minLength:"1" maxLength:"63" doc:"The connector's name. It must be unique in the environment without regard to case, also among current and former connectors of the project's code." example:"Tickets"`
	Type    rest.ConnectorType   `json:"type,omitempty" doc:"The connector's current type, which never changes."`
	Mode    rest.ConnectorMode   `json:"mode,omitempty" doc:"The connector's current mode, which never changes."`
	Enabled *bool                `json:"enabled,omitempty" doc:"Whether the connector is enabled. true also resumes a paused outbound connector. A connector that was removed from the project's code cannot be enabled."`
	Config  ConnectorConfigInput `json:"config,omitempty" doc:"The whole configuration; omitted fields get their defaults. Empty or masked credentials keep their stored values. The project's own secret is also kept if it is omitted and authentication does not change."`
}

func (ConnectorUpdate) Doc() string {
	return "The fields of a connector to change. Other fields keep their values."
}

// ConnectorUpdateInput is the request that changes a connector.
type ConnectorUpdateInput struct {
	rest.ConnectorPath
	Body ConnectorUpdate
}

// errOnlyEnabled rejects changes of a connector that code defines.
var errOnlyEnabled = rest.NewProblem(http.StatusConflict, httpserver.CodeDefinedInCode,
	"the project's code defines the connector: only enabled can be changed here; change the rest there and deploy")

// errRetired rejects enabling a retired connector.
var errRetired = rest.NewProblem(http.StatusConflict, httpserver.CodeConnectorRetired,
	"the connector was removed from the project's code, so it cannot be enabled; deploy code that has it")

var updateConnector = rest.Handle((*API).updateConnector, rest.Endpoint{
	Method: rest.Patch, Path: "/connectors/{connector_id}", ID: "updateConnector",
	Permissions: rest.Requires("connectors.update"), Effect: rest.EffectUpdate, Errors: rest.UpdateErrors,
	HasETag: true,
	Summary: "Update a connector",
	Doc: "Changes the fields in the request; `config` is replaced as a whole. Type, mode and environment never change. The call " +
		"returns once the platform has processed the change, or after two seconds.\n\n" +
		"If the project's code defines the connector, only `enabled` can change. Returns 409 if another connector of the " +
		"environment has the name, or if a GitOps controller owns a field.",
	Example: rest.Example{
		Path: "/connectors/{connector}",
		Body: `{"name":"CRM","enabled":true,"config":{"authentication":"secret"}}`,
	},
})

func (s *API) updateConnector(ctx context.Context, c *rest.Caller, in *ConnectorUpdateInput) (rest.Response[Connector], error) {
	conn, err := s.Service.Connector(ctx, c, in.ConnectorID)
	if err != nil {
		return rest.Response[Connector]{}, err
	}
	was, _, err := s.describeConnector(ctx, c, conn)
	if err != nil {
		return rest.Response[Connector]{}, err
	}
	var before *v1alpha1.Connector
	repeated, err := s.Service.UpdateObject(ctx, c, conn, func() error {
		before = conn.DeepCopy()
		if err := s.editConnector(ctx, c, conn, &in.Body); err != nil || in.Body.Enabled == nil || !*in.Body.Enabled {
			return err
		}
		return s.resume(ctx, c, conn) // before the change, so that a repeated call resumes nothing
	})
	if err != nil {
		return rest.Response[Connector]{}, err
	}
	s.Service.WaitReady(ctx, conn)
	if !repeated && conn.Title() != before.Title() && rest.IsStalledBy(conn, v1alpha1.ReasonNameTaken) {
		s.Service.Revert(ctx, conn, func() { conn.Spec, conn.Annotations = *before.Spec.DeepCopy(), before.Annotations })
		return rest.Response[Connector]{}, nameTaken
	}
	return s.respondUpdated(ctx, c, conn, was)
}

// editConnector writes the fields of a request into a connector.
func (s *API) editConnector(ctx context.Context, c *rest.Caller, conn *v1alpha1.Connector, in *ConnectorUpdate) error {
	switch {
	case in.Type != "" && in.Type != rest.ConnectorType(conn.Type()):
		return rest.InvalidField("body.type", "cannot change: create another connector")
	case in.Mode != "" && in.Mode != rest.ConnectorMode(conn.Spec.Mode.EnumValue()):
		return rest.InvalidField("body.mode", "cannot change: create another connector")
	case conn.DefinedInCode() && (in.Name != nil || in.Type != "" || in.Mode != "" || in.Config.given()):
		return errOnlyEnabled
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
	err := s.applyConfig(c, c.ObjectKey(conn).ID, conn, rest.ConnectorType(conn.Type()), in.Config)
	if err == nil && !crd.HasSecret(conn) && crd.KindOf(conn).HasCallers() && conn.SpecID() == "" {
		return rest.InvalidField("body.config.authentication", "cannot become none: the ID of this connector is derived from its name and would be its only secret; create another connector")
	}
	return err
}

// respondUpdated responds with a connector after a change; was is the connector before the change.
func (s *API) respondUpdated(ctx context.Context, c *rest.Caller, conn *v1alpha1.Connector, was Connector) (rest.Response[Connector], error) {
	shown, _, err := s.describeConnector(ctx, c, conn)
	if err != nil {
		return rest.Response[Connector]{}, err
	}
	rest.RecordChange(ctx, shown.Audited(), was, shown)
	return rest.Response[Connector]{Body: shown, ETag: rest.ETag(conn)}, nil
}
