// SPDX-License-Identifier: Apache-2.0

package sqlcore

import (
	"context"
	"slices"
	"strconv"
	"strings"

	"github.com/google/uuid"

	"github.com/agentplatform/agentplatform/store"
)

// outbound is the consumer of the outbox that makes deliveries of results.
const outbound = "deliveries"

// target is a link over which the result of an ended run may go out.
type target struct {
	run         store.Key
	environment uuid.UUID
	status      store.RunStatus
	source      *uuid.UUID
	link        uuid.UUID
	policy      store.OutboundPolicy
	connector   uuid.UUID
	// closed is why nothing is sent; "" where it is.
	closed string
}

// Reasons for which a delivery is skipped, or ends before its next attempt.
const (
	closedDisabled    = "the connector is disabled"
	closedRetired     = "the connector was removed from the code of the project"
	closedEnvironment = "the environment of the connector is gone"
	closedGone        = "the connector was deleted"
	closedPaused      = "the connector is paused: "
)

// PostDeliveries implements store.Deliveries.
func (c *Core) PostDeliveries(ctx context.Context, limit int) (runs int, err error) {
	var waits bool
	err = c.engine.Reader().QueryRowContext(ctx, `SELECT EXISTS (SELECT 1 FROM outbox WHERE consumer = '`+outbound+`')`).Scan(&waits)
	if err != nil || !waits {
		return 0, wrap(err, "looking for results to deliver")
	}
	err = c.Write(ctx, func(ctx context.Context, tx *Tx) error {
		ended, err := collect(ctx, tx, scanKey, `DELETE FROM outbox WHERE (project_id, consumer, ended_id) IN
			(SELECT project_id, consumer, ended_id FROM outbox WHERE consumer = '`+outbound+`' ORDER BY posted_at LIMIT $1 `+c.skipLocked+`)
			RETURNING project_id, ended_id`, min(limit, chunk))
		if runs = len(ended); err != nil || runs == 0 {
			return err
		}
		targets, err := c.targets(ctx, tx, ended)
		if err != nil {
			return err
		}
		return c.post(ctx, tx, targets)
	})
	if err != nil {
		return 0, wrap(err, "making deliveries") // nothing was
	}
	return runs, nil
}

// targets are the links over which results of ended runs go out, in the order of their
// connectors. The runs are found in the parts of history between the first and the last
// of them.
func (c *Core) targets(ctx context.Context, tx *Tx, ended []store.Key) ([]target, error) {
	ids := make([]uuid.UUID, len(ended))
	for i, key := range ended {
		ids[i] = key.ID
	}
	l := list{args: []any{slices.MinFunc(ids, compareIDs), slices.MaxFunc(ids, compareIDs)}}
	all, err := collect(ctx, tx, scanTarget, `SELECT r.project_id, r.id, r.environment_id, r.status, r.connector_id, l.id, l.outbound, c.id,
			CASE WHEN c.retired THEN '`+closedRetired+`' WHEN e.id IS NULL OR p.project_id IS NULL THEN '`+closedEnvironment+`'
				WHEN NOT c.enabled THEN '`+closedDisabled+`' WHEN d.paused_generation = k.generation THEN '`+closedPaused+`' || d.paused_reason
				ELSE '' END
		FROM ended_runs r
		JOIN links l ON l.project_id = r.project_id AND l.agent_name = r.agent_name AND l.outbound IS NOT NULL
		JOIN connectors c ON c.project_id = r.project_id AND c.id = l.connector_id AND c.environment_id = r.environment_id
			AND c.mode = 'outbound' AND NOT c.shadowed
		JOIN object_ids k ON k.project_id = r.project_id AND k.id = c.id
		LEFT JOIN environments e ON e.project_id = r.project_id AND e.id = c.environment_id
		LEFT JOIN projects p ON p.project_id = r.project_id
		LEFT JOIN destinations d ON d.project_id = r.project_id AND d.connector_id = c.id
		WHERE r.id >= $1 AND r.id <= $2 AND `+strings.Replace(c.keys(&l, "r.id", ended), "(project_id", "(r.project_id", 1), l.args...)
	all = slices.DeleteFunc(all, func(t target) bool { return !t.policy.Sends(t.status, t.source) })
	slices.SortFunc(all, func(a, b target) int { return CompareKeys(a.destination(), b.destination()) })
	return all, err
}

func scanTarget(row scanner) (t target, err error) {
	err = row.Scan(&t.run.ProjectID, &t.run.ID, &t.environment, &t.status, &t.source, &t.link, document{&t.policy}, &t.connector, &t.closed)
	return t, err
}

func (t target) destination() store.Key { return store.Key{ProjectID: t.run.ProjectID, ID: t.connector} }

// post writes the deliveries of targets, and skips those that are closed.
func (c *Core) post(ctx context.Context, tx *Tx, targets []target) error {
	var now int64
	if err := tx.QueryRowContext(ctx, `SELECT now_us()`).Scan(&now); err != nil {
		return err
	}
	var open, skipped, destinations rows
	var due, stored []store.Key
	for i, t := range targets {
		random, err := uuid.NewV7()
		if err != nil {
			return err
		}
		id := store.Stamp(random, now, i)
		if t.closed != "" {
			skipped.add(t.run.ProjectID, id, t.environment, t.connector, t.run.ID, t.closed, now, now)
			stored = append(stored, store.Key{ProjectID: t.run.ProjectID, ID: id})
			continue
		}
		open.add(t.run.ProjectID, id, t.environment, t.connector, t.link, t.run.ID, now, now)
		if n := len(due); n == 0 || due[n-1] != t.destination() {
			due = append(due, t.destination())
		}
	}
	if err := open.insert(ctx, tx, `INSERT INTO deliveries (project_id, id, environment_id, connector_id, link_id, run_id,
		attempt, due_at, started_at) VALUES `, `(%, %, %, %, %, %, 0, %, %)`, ``); err != nil {
		return err
	}
	if err := skipped.insert(ctx, tx, `INSERT INTO ended_connector_runs (project_id, id, environment_id, connector_id, status, trigger_type,
		content_type, run_ids, error, started_at, ended_at) VALUES `, `(%, %, %, %, 'skipped', 'outbound', '`+deliveryType+`', id_list(%), %, %, %)`, ``); err != nil {
		return err
	}
	if err := countDeliveries(ctx, tx, stored, nil); err != nil {
		return err
	}
	for _, key := range due {
		destinations.add(key.ProjectID, key.ID, now)
	}
	return destinations.insert(ctx, tx, `INSERT INTO destinations AS d (project_id, connector_id, due_at, failures, paused_reason) VALUES `,
		`(%, %, %, 0, '')`, ` ON CONFLICT (project_id, connector_id) DO UPDATE SET due_at = CASE
			WHEN d.due_at IS NULL OR d.due_at > excluded.due_at AND d.failures < `+strconv.Itoa(store.BreakAfter)+` THEN excluded.due_at ELSE d.due_at END`)
}

// deliveryType is the content type of what is delivered.
const deliveryType = "application/json"

