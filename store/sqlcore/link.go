// SPDX-License-Identifier: Apache-2.0

package sqlcore

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/agentplatform/agentplatform/store"
)

// selectLinks are links l with the objects k that hold their ids.
const selectLinks = `SELECT l.id, l.project_id, l.connector_id, l.agent_name, l.files_required, l.outbound,
	l.object_created_at, l.created_at, l.updated_at, ` + refColumns + `
	FROM links l JOIN object_ids k ON k.project_id = l.project_id AND k.id = l.id `

// linkOrder is oldest first.
const linkOrder = `l.object_created_at, l.id`

func scanLink(row scanner) (l store.Link, err error) {
	err = row.Scan(append([]any{
		&l.ID, &l.ProjectID, &l.ConnectorID, &l.AgentName, &l.FilesRequired, document{&l.Outbound},
		at(&l.ObjectCreatedAt), at(&l.CreatedAt), at(&l.UpdatedAt),
	}, refFields(&l.Ref)...)...)
	return l, err
}

// PutLink implements store.Projector. It reads first: most often nothing changed.
func (c *Core) PutLink(ctx context.Context, l store.Link) error {
	stored, err := scanLink(c.engine.Reader().QueryRowContext(ctx,
		selectLinks+`WHERE l.project_id = $1 AND l.id = $2`, l.ProjectID, l.ID))
	if err == nil && sameLink(stored, l) {
		return nil
	}
	if err = found(err); err != nil && !errors.Is(err, store.ErrNotFound) {
		return fmt.Errorf("reading what is stored of %s: %w", l.Ref, err)
	}
	var refused error // the claim stays
	err = c.Write(ctx, func(ctx context.Context, tx *Tx) (err error) {
		refused, err = c.putLink(ctx, tx, l, false)
		return err
	})
	if err == nil {
		err = refused
	}
	return err
}

// sameLink says whether putting b would change nothing where a is stored.
func sameLink(a, b store.Link) bool {
	return a.Ref == b.Ref && a.ConnectorID == b.ConnectorID && a.AgentName == Text(b.AgentName) &&
		a.FilesRequired == b.FilesRequired && bytes.Equal(a.Outbound, []byte(Text(string(b.Outbound)))) &&
		a.ObjectCreatedAt.Equal(b.ObjectCreatedAt.Truncate(time.Microsecond))
}

// putLink writes a link, unless another one joins the same connector and agent, or
// the connector has as many as it may have. One that an activation brought stays
// marked as such when its mirror is put.
func (c *Core) putLink(ctx context.Context, tx *Tx, l store.Link, definedInCode bool) (refused, err error) {
	if err := c.claimID(ctx, tx, l.Key(), l.Ref); err != nil {
		return nil, err
	}
	l.AgentName = Text(l.AgentName)
	var holder store.ObjectRef
	err = found(tx.QueryRowContext(ctx, `SELECT `+refColumns+`
		FROM links l JOIN object_ids k ON k.project_id = l.project_id AND k.id = l.id
		WHERE l.project_id = $1 AND l.connector_id = $2 AND l.agent_name = $3 AND l.id <> $4`,
		l.ProjectID, l.ConnectorID, l.AgentName, l.ID).Scan(refFields(&holder)...))
	switch {
	case err == nil:
		return &store.DuplicateError{Holder: holder}, wrap(removeLink(ctx, tx, l.Key()), "taking %s out of effect", l.Ref)
	case !errors.Is(err, store.ErrNotFound):
		return nil, fmt.Errorf("reading who joins what %s joins: %w", l.Ref, err)
	}
	var others int
	if err := tx.QueryRowContext(ctx, `SELECT count(*) FROM links WHERE project_id = $1 AND connector_id = $2 AND id <> $3`,
		l.ProjectID, l.ConnectorID, l.ID).Scan(&others); err != nil {
		return nil, fmt.Errorf("counting the links beside %s: %w", l.Ref, err)
	}
	if others >= store.MaxLinks {
		return &store.TooManyLinksError{}, wrap(removeLink(ctx, tx, l.Key()), "taking %s out of effect", l.Ref)
	}
	return nil, wrap(writeLink(ctx, tx, l, definedInCode), "projecting %s", l.Ref)
}

func writeLink(ctx context.Context, tx *Tx, l store.Link, definedInCode bool) error {
	var before uuid.UUID
	err := found(tx.QueryRowContext(ctx, `SELECT connector_id FROM links WHERE project_id = $1 AND id = $2`,
		l.ProjectID, l.ID).Scan(&before))
	if err != nil && !errors.Is(err, store.ErrNotFound) {
		return fmt.Errorf("reading what is stored: %w", err)
	}
	changed, err := tx.exec(ctx, `INSERT INTO links (project_id, id, connector_id, agent_name, files_required,
			outbound, object_created_at, defined_in_code, created_at, updated_at)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, now_us(), now_us())
		ON CONFLICT (project_id, id) DO UPDATE SET connector_id = excluded.connector_id,
			agent_name = excluded.agent_name, files_required = excluded.files_required, outbound = excluded.outbound,
			object_created_at = excluded.object_created_at,
			defined_in_code = links.defined_in_code OR excluded.defined_in_code, updated_at = excluded.updated_at
		WHERE links.connector_id <> excluded.connector_id OR links.agent_name <> excluded.agent_name
			OR links.files_required <> excluded.files_required
			OR COALESCE(links.outbound, '') <> COALESCE(excluded.outbound, '')
			OR links.object_created_at <> excluded.object_created_at`,
		l.ProjectID, l.ID, l.ConnectorID, l.AgentName, l.FilesRequired, JSON(l.Outbound), Instant(l.ObjectCreatedAt),
		definedInCode)
	if err != nil || changed == 0 {
		return err
	}
	return bumpConnectors(ctx, tx, l.ProjectID, `id IN ($2, $3)`, l.ConnectorID, before)
}

func removeLink(ctx context.Context, tx *Tx, key store.Key) error {
	connector, err := scanID(tx.QueryRowContext(ctx,
		`DELETE FROM links WHERE project_id = $1 AND id = $2 RETURNING connector_id`, key.ProjectID, key.ID))
	switch err = found(err); {
	case errors.Is(err, store.ErrNotFound):
		return nil
	case err != nil:
		return err
	}
	return bumpConnectors(ctx, tx, key.ProjectID, `id = $2`, connector)
}

// Route implements store.Routes.
func (c *Core) Route(ctx context.Context, connector store.Key) (store.Route, error) {
	var route store.Route
	err := c.engine.Snapshot(ctx, func(ctx context.Context, q Queryer) (err error) {
		route.Connector, err = scanConnector(q.QueryRowContext(ctx, selectConnector, connector.ProjectID, connector.ID))
		if err != nil {
			return err
		}
		route.Links, err = collect(ctx, q, scanLink, selectLinks+`WHERE l.project_id = $1 AND l.connector_id = $2
			ORDER BY `+linkOrder, connector.ProjectID, connector.ID)
		return err
	})
	return route, wrap(err, "reading the route of connector %s", connector)
}
