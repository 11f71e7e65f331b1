// SPDX-License-Identifier: Apache-2.0

package sqlcore

import (
	"context"
	"errors"
	"fmt"

	"github.com/google/uuid"

	"github.com/agentplatform/agentplatform/store"
)

// linkColumns are of links l with their claims k.
const linkColumns = `l.id, l.project_id, l.connector_id, l.agent_name, l.files_required, l.outbound,
	l.object_created_at, l.created_at, l.updated_at,
	k.cluster_uid, k.namespace, k.kind, k.name, k.object_uid, k.generation`

// linkOrder is oldest first.
const linkOrder = `l.object_created_at, l.id`

func scanLink(row scanner) (l store.Link, err error) {
	err = row.Scan(&l.ID, &l.ProjectID, &l.ConnectorID, &l.AgentName, &l.FilesRequired, document{&l.Outbound},
		at(&l.ObjectCreatedAt), at(&l.CreatedAt), at(&l.UpdatedAt),
		&l.Ref.ClusterUID, &l.Ref.Namespace, &l.Ref.Kind, &l.Ref.Name, &l.Ref.ObjectUID, &l.Ref.Generation)
	return l, err
}

// PutLink implements store.Projector.
func (c *Core) PutLink(ctx context.Context, l store.Link) error {
	return c.Write(ctx, func(ctx context.Context, tx *Tx) error { return c.putLink(ctx, tx, l, false) })
}

// putLink writes a link. One that an activation brought stays marked as such
// when its mirror is put.
func (c *Core) putLink(ctx context.Context, tx *Tx, l store.Link, definedInCode bool) error {
	if err := c.claim(ctx, tx, l.Ref, l.ID, l.ProjectID); err != nil {
		return err
	}
	var before uuid.UUID
	err := found(tx.QueryRowContext(ctx, `SELECT connector_id FROM links WHERE id = $1`, l.ID).Scan(&before))
	if err != nil && !errors.Is(err, store.ErrNotFound) {
		return fmt.Errorf("projecting %s: %w", l.Ref, err)
	}
	changed, err := tx.exec(ctx, `INSERT INTO links (id, project_id, connector_id, agent_name, files_required,
			outbound, object_created_at, defined_in_code, created_at, updated_at)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, now_us(), now_us())
		ON CONFLICT (id) DO UPDATE SET project_id = excluded.project_id, connector_id = excluded.connector_id,
			agent_name = excluded.agent_name, files_required = excluded.files_required, outbound = excluded.outbound,
			object_created_at = excluded.object_created_at,
			defined_in_code = links.defined_in_code OR excluded.defined_in_code, updated_at = excluded.updated_at
		WHERE links.connector_id <> excluded.connector_id OR links.agent_name <> excluded.agent_name
			OR links.files_required <> excluded.files_required
			OR COALESCE(links.outbound, '') <> COALESCE(excluded.outbound, '')
			OR links.object_created_at <> excluded.object_created_at`,
		l.ID, l.ProjectID, l.ConnectorID, Text(l.AgentName), l.FilesRequired, JSON(l.Outbound),
		Instant(l.ObjectCreatedAt), definedInCode)
	if err != nil || changed == 0 {
		return wrap(err, "projecting %s", l.Ref)
	}
	return bumpConnectors(ctx, tx, `id IN ($1, $2)`, l.ConnectorID, before)
}

func removeLink(ctx context.Context, tx *Tx, id uuid.UUID) error {
	var connector uuid.UUID
	err := found(tx.QueryRowContext(ctx, `DELETE FROM links WHERE id = $1 RETURNING connector_id`, id).Scan(&connector))
	switch {
	case errors.Is(err, store.ErrNotFound):
		return nil
	case err != nil:
		return err
	}
	return bumpConnectors(ctx, tx, `id = $1`, connector)
}

// Route implements store.Routes.
func (c *Core) Route(ctx context.Context, connectorID uuid.UUID) (store.Route, error) {
	var route store.Route
	err := c.engine.Snapshot(ctx, func(ctx context.Context, q Queryer) (err error) {
		route.Connector, err = scanConnector(q.QueryRowContext(ctx,
			`SELECT `+connectorColumns+` FROM `+connectorTables+` WHERE c.id = $1`, connectorID))
		if err != nil {
			return found(err)
		}
		route.Links, err = collect(ctx, q, scanLink, `SELECT `+linkColumns+`
			FROM links l JOIN claims k ON k.id = l.id WHERE l.connector_id = $1 ORDER BY `+linkOrder, connectorID)
		return err
	})
	return route, wrap(err, "reading the route of connector %s", connectorID)
}
