// SPDX-License-Identifier: Apache-2.0

package connectors

import (
	"context"

	"github.com/agentplatform/agentplatform/apiserver/rest"
)

var deleteLink = rest.Handle((*Links).deleteLink, rest.Endpoint{
	Method: rest.Delete, Path: "/connectors/{connector_id}/links/{link_id}", ID: "deleteLink",
	Permissions: rest.Requires("connectors.link"), Effect: rest.EffectUpdate, Errors: rest.DeleteErrors,
	Summary: "Delete a link",
	Doc: "Events of the connector no longer start the agent. Started runs continue. Returns 409 if the project's code defines " +
		"the connector.",
	Example: rest.Example{Path: "/connectors/{connector}/links/{link}"},
})

func (s *Links) deleteLink(ctx context.Context, c *rest.Caller, in *LinkPath) (rest.Response[rest.Done], error) {
	conn, err := s.Service.Connector(ctx, c, in.ConnectorID)
	if rest.IsNotFound(err) {
		return s.Service.RepeatedDelete(ctx, c, in.LinkID, err)
	}
	if err != nil {
		return rest.Response[rest.Done]{}, err
	}
	link, err := s.link(ctx, c, conn, in.LinkID)
	switch {
	case rest.IsNotFound(err):
		return s.Service.RepeatedDelete(ctx, c, in.LinkID, err)
	case err != nil:
		return rest.Response[rest.Done]{}, err
	case conn.DefinedInCode():
		return rest.Response[rest.Done]{}, errLinkInCode(conn)
	}
	judge := func() error {
		if err := c.CheckMatch(link); err != nil {
			return err
		}
		return s.Service.CheckOwnership(link, nil)
	}
	if err := judge(); err != nil {
		return rest.Response[rest.Done]{}, err
	}
	from, err := s.sourcesOf(ctx, c, conn)
	if err != nil {
		return rest.Response[rest.Done]{}, err
	}
	before := showLink(conn, link, from)
	if err := s.Service.DeleteObject(ctx, link, judge); err != nil {
		return rest.Response[rest.Done]{}, err
	}
	return rest.DeletedResponse(ctx, before), nil
}
