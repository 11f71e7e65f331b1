// SPDX-License-Identifier: Apache-2.0

package connectors

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
	"github.com/agentplatform/agentplatform/apiserver/rest"
	"github.com/agentplatform/agentplatform/internal/httpserver"
	"github.com/agentplatform/agentplatform/store"
)

// errInCode rejects the deletion of a connector that code defines.
func errInCode(conn *v1alpha1.Connector) error {
	return rest.NewProblem(http.StatusConflict, httpserver.CodeDefinedInCode,
		fmt.Sprintf("the project's code defines the connector: remove %s and deploy", conn.File()))
}

// errLinkInCode rejects a change of the links of a connector that code defines.
func errLinkInCode(conn *v1alpha1.Connector) error {
	if conn.Retired() {
		return rest.NewProblem(http.StatusConflict, httpserver.CodeDefinedInCode,
			fmt.Sprintf("the connector is retired, so its links cannot change; deploy code that has %s", conn.File()))
	}
	return rest.NewProblem(http.StatusConflict, httpserver.CodeDefinedInCode,
		fmt.Sprintf("the project's code defines the links of this connector: change %s and deploy", conn.File()))
}

// mustNotBeInCode returns 409 for a connector that the project's code defines. Code does not define retired connectors.
func (s *API) mustNotBeInCode(ctx context.Context, c *rest.Caller, conn *v1alpha1.Connector) error {
	retired, err := s.retired(ctx, c, conn)
	if err == nil && conn.DefinedInCode() && !retired {
		return errInCode(conn)
	}
	return err
}

// retired reports whether a deployment has removed the connector from the project's code. The store decides, because the
// activation writes it there.
func (s *API) retired(ctx context.Context, c *rest.Caller, conn *v1alpha1.Connector) (bool, error) {
	if !conn.DefinedInCode() {
		return false, nil
	}
	row, err := s.Store.Connector(ctx, c.ObjectKey(conn))
	if errors.Is(err, store.ErrNotFound) {
		return conn.Retired(), nil // no deployment has the connector in effect
	}
	if err != nil {
		return false, fmt.Errorf("asking whether connector %q is retired: %w", conn.Name, err)
	}
	return row.Retired, nil
}

var deleteConnector = rest.Handle((*API).deleteConnector, rest.Endpoint{
	Method: rest.Delete, Path: "/connectors/{connector_id}", ID: "deleteConnector",
	Permissions: rest.Requires("connectors.delete"), Effect: rest.EffectUpdate, Errors: rest.DeleteErrors,
	Summary: "Delete a connector",
	Doc: "Deletes the connector and its links permanently. Its events stay in the history of runs. Returns 409 if the project's " +
		"code defines the connector: remove it there and deploy. A repeated call with the same `Idempotency-Key` gets the same " +
		"response.",
	Example: rest.Example{Path: "/connectors/{connector}"},
})

// deleteConnector deletes the links after the connector: if the deletion is rejected, nothing changes, and a link has no
// effect without its connector.
func (s *API) deleteConnector(ctx context.Context, c *rest.Caller, in *rest.ConnectorPath) (rest.Response[rest.Done], error) {
	conn, err := s.Service.Connector(ctx, c, in.ConnectorID)
	if rest.IsNotFound(err) {
		return s.Service.RepeatedDelete(ctx, c, in.ConnectorID, err)
	}
	if err != nil {
		return rest.Response[rest.Done]{}, err
	}
	judge := func() error {
		if err := s.mustNotBeInCode(ctx, c, conn); err != nil {
			return err
		}
		if err := c.CheckMatch(conn); err != nil {
			return err
		}
		return s.Service.CheckOwnership(conn, nil)
	}
	if err := judge(); err != nil {
		return rest.Response[rest.Done]{}, err
	}
	before, links, err := s.describeConnector(ctx, c, conn)
	if err != nil {
		return rest.Response[rest.Done]{}, err
	}
	for i := range links {
		if err := s.Service.CheckOwnership(&links[i], nil); err != nil {
			return rest.Response[rest.Done]{}, err
		}
	}
	if err := s.Service.DeleteObject(ctx, conn, judge); err != nil {
		return rest.Response[rest.Done]{}, err
	}
	done := rest.DeletedResponse(ctx, before)
	var left []string
	for i := range links {
		if err := s.Service.DeleteObject(ctx, &links[i], nil); err != nil {
			s.Service.Logger.WarnContext(ctx, "a link outlives its connector", "namespace", links[i].Namespace, "name", links[i].Name, "error", err)
			left = append(left, links[i].Name)
		}
	}
	if len(left) > 0 {
		return rest.Response[rest.Done]{}, rest.NewProblem(http.StatusInternalServerError, httpserver.CodeInternal, "the connector is deleted, but its links "+
			strings.Join(left, ", ")+" could not be deleted; they have no effect; delete these ConnectorLinks with kubectl")
	}
	return done, nil
}
