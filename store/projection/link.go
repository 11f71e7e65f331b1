// SPDX-License-Identifier: Apache-2.0

package projection

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"time"

	"github.com/google/uuid"

	"github.com/agentplatform/agentplatform/store"
	"github.com/agentplatform/agentplatform/store/connectorrow"
	"github.com/agentplatform/agentplatform/store/object"
	"github.com/agentplatform/agentplatform/store/sqldb"
)

// PutLink implements store.Projector. It reads first, because usually nothing has changed.
func (s *Store) PutLink(ctx context.Context, l store.Link) error {
	stored, err := connectorrow.ScanLink(s.db.Reader().QueryRowContext(ctx,
		connectorrow.SelectLinks+`WHERE l.project_id = $1 AND l.id = $2`, l.ProjectID, l.ID))
	if err == nil && sameLink(stored, l) {
		return nil
	}
	if err = sqldb.MapNoRows(err); err != nil && !errors.Is(err, store.ErrNotFound) {
		return fmt.Errorf("reading the stored row of %s: %w", l.Ref, err)
	}
	var refused error // the claim stays
	err = s.db.Write(ctx, func(ctx context.Context, tx *sqldb.Tx) (err error) {
		refused, err = s.putLink(ctx, tx, l, l.Activation != 0)
		return err
	})
	if err == nil {
		err = refused
	}
	return err
}

// sameLink reports whether writing b over a changes nothing.
func sameLink(a, b store.Link) bool {
	return a.Ref == b.Ref && a.ConnectorID == b.ConnectorID && a.AgentName == sqldb.Text(b.AgentName) &&
		a.FilesRequired == b.FilesRequired && reflect.DeepEqual(a.Outbound, b.Outbound) &&
		a.ObjectCreatedAt.Equal(b.ObjectCreatedAt.Truncate(time.Microsecond))
}

// putLink writes a link. It does not if another link joins the same connector and agent, the
// connector has reached its limit of links, or the agent has a tool with its name or has reached
// its limit of outbound links. A link of an activation stays marked as such when its mirror is
// written.
func (s *Store) putLink(ctx context.Context, tx *sqldb.Tx, l store.Link, definedInCode bool) (refused, err error) {
	if err := s.ClaimIDInTx(ctx, tx, l.Key(), l.Ref); err != nil {
		return nil, err
	}
	if err := mustBeLive(ctx, tx, l.Activation, `id =
		(SELECT environment_id FROM connectors WHERE project_id = $1 AND id = $2)`, l.ProjectID, l.ConnectorID); err != nil {
		return nil, sqldb.Wrap(err, "projecting %s", l.Ref)
	}
	l.AgentName = sqldb.Text(l.AgentName)
	was, err := linkSurroundings(ctx, tx, l)
	if err != nil {
		return nil, fmt.Errorf("reading the links beside %s: %w", l.Ref, err)
	}
	switch {
	case was.holder.Name != "":
		refused = &store.DuplicateError{Holder: was.holder}
	case was.others >= store.MaxLinks:
		refused = &store.TooManyLinksError{}
	default:
		if refused, err = checkOutbound(ctx, tx, l); err != nil {
			return nil, fmt.Errorf("reading the outbound links beside %s: %w", l.Ref, err)
		}
	}
	if refused == nil {
		return nil, sqldb.Wrap(writeLink(ctx, tx, l, was.connector, definedInCode), "projecting %s", l.Ref)
	}
	return refused, sqldb.Wrap(removeLink(ctx, tx, l.Key()), "taking %s out of effect", l.Ref)
}

// surroundings are the stored rows that a new link may conflict with.
type surroundings struct {
	// connector is the connector of the stored link, the zero ID without one.
	connector uuid.UUID
	// others is the number of other links of the connector.
	others int
	// holder is another link with the same connector and agent.
	holder store.ObjectRef
}

// linkSurroundings reads all of them at once. A lock serializes writes of a project's links.
func linkSurroundings(ctx context.Context, tx *sqldb.Tx, l store.Link) (was surroundings, err error) {
	var connector uuid.NullUUID
	err = tx.QueryRowContext(ctx, `SELECT b.connector_id, n.others, COALESCE(k.namespace, ''), COALESCE(k.kind, ''),
			COALESCE(k.name, ''), COALESCE(k.object_uid, ''), COALESCE(k.generation, 0)
		FROM (SELECT count(*) AS others FROM links WHERE project_id = $1 AND connector_id = $2 AND id <> $4) n
		LEFT JOIN links b ON b.project_id = $1 AND b.id = $4
		LEFT JOIN links l ON l.project_id = $1 AND l.connector_id = $2 AND l.agent_name = $3 AND l.id <> $4
		LEFT JOIN object_ids k ON k.project_id = $1 AND k.id = l.id`,
		l.ProjectID, l.ConnectorID, l.AgentName, l.ID).Scan(append([]any{&connector, &was.others}, object.RefFields(&was.holder)...)...)
	was.connector = connector.UUID
	return was, err
}

// writeLink writes a link. before is its previous connector.
func writeLink(ctx context.Context, tx *sqldb.Tx, l store.Link, before uuid.UUID, definedInCode bool) error {
	policy, err := policyOf(l)
	if err != nil {
		return err
	}
	changed, err := tx.Exec(ctx, `INSERT INTO links (project_id, id, connector_id, agent_name, files_required,
			outbound, tells_failures, object_created_at, defined_in_code, created_at, updated_at)
		VALUES ($1, $2, $3, $4, $5, $6, $9, $7, $8, now_us(), now_us())
		ON CONFLICT (project_id, id) DO UPDATE SET connector_id = excluded.connector_id,
			agent_name = excluded.agent_name, files_required = excluded.files_required, outbound = excluded.outbound, tells_failures = excluded.tells_failures,
			object_created_at = excluded.object_created_at,
			defined_in_code = links.defined_in_code OR excluded.defined_in_code, updated_at = excluded.updated_at
		WHERE links.connector_id <> excluded.connector_id OR links.agent_name <> excluded.agent_name
			OR links.files_required <> excluded.files_required
			OR COALESCE(links.outbound, '') <> COALESCE(excluded.outbound, '')
			OR links.object_created_at <> excluded.object_created_at`,
		l.ProjectID, l.ID, l.ConnectorID, l.AgentName, l.FilesRequired, policy, sqldb.Instant(l.ObjectCreatedAt),
		definedInCode, l.Outbound != nil && l.Outbound.TellsFailures())
	if err != nil || changed == 0 {
		return err
	}
	return bumpConnectors(ctx, tx, l.ProjectID, `id IN ($2, $3)`, l.ConnectorID, before)
}

// policyOf returns the stored form of a link's outbound policy.
func policyOf(l store.Link) (any, error) {
	if l.Outbound == nil {
		return nil, nil
	}
	return sqldb.MarshalText(l.Outbound)
}

func removeLink(ctx context.Context, tx *sqldb.Tx, key store.Key) error {
	connector, err := sqldb.ScanUUID(tx.QueryRowContext(ctx,
		`DELETE FROM links WHERE project_id = $1 AND id = $2 RETURNING connector_id`, key.ProjectID, key.ID))
	switch err = sqldb.MapNoRows(err); {
	case errors.Is(err, store.ErrNotFound):
		return nil
	case err != nil:
		return err
	}
	return bumpConnectors(ctx, tx, key.ProjectID, `id = $2`, connector)
}

// Route implements store.Routes.
func (s *Store) Route(ctx context.Context, connector store.Key) (store.Route, error) {
	var route store.Route
	err := s.db.Snapshot(ctx, func(ctx context.Context, q sqldb.Queryer) (err error) {
		route.Connector, err = connectorrow.Scan(q.QueryRowContext(ctx, connectorrow.SelectOne, connector.ProjectID, connector.ID))
		if err != nil {
			return err
		}
		route.Links, err = sqldb.Collect(ctx, q, connectorrow.ScanLink, connectorrow.SelectLinks+`WHERE l.project_id = $1 AND l.connector_id = $2
			ORDER BY `+connectorrow.LinkOrder, connector.ProjectID, connector.ID)
		if err != nil {
			return err
		}
		return addConcurrency(ctx, q, &route)
	})
	return route, sqldb.Wrap(err, "reading the route of connector %s", connector)
}
