// SPDX-License-Identifier: Apache-2.0

package sqlcore

import (
	"context"
	"errors"
	"slices"
	"strconv"

	"github.com/google/uuid"

	"github.com/agentplatform/agentplatform/store"
)

// outbound is the consumer of the outbox that makes deliveries of results.
const outbound = "deliveries"

// target is a link over which the result of an ended run goes out.
type target struct {
	run         store.Key
	environment uuid.UUID
	link        uuid.UUID
	connector   uuid.UUID
	// closed is why nothing is sent; "" where it is.
	closed string
}

// Reasons for which a delivery is skipped, or ends before its next attempt.
const (
	closedDisabled = "the connector is disabled"
	closedRetired  = "the connector was removed from the code of the project"
	closedGone     = "the connector was deleted"
	closedPaused   = "the connector is paused: "
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

// endedRun is what says over which links the result of a run goes out.
type endedRun struct {
	store.Key
	environment uuid.UUID
	agent       string
	status      store.RunStatus
	source      *uuid.UUID
}

// targets are the links over which results of ended runs go out, in the order of their
// connectors. The runs are found in the parts of history between the first and the last
// of them; links and connectors are read once each.
func (c *Core) targets(ctx context.Context, tx *Tx, ended []store.Key) (all []target, err error) {
	runs, err := c.endedRuns(ctx, tx, ended)
	if err != nil {
		return nil, err
	}
	type agent struct {
		project uuid.UUID
		name    string
	}
	links, outlets := map[agent][]store.Link{}, map[store.Key]outlet{}
	for _, run := range runs {
		of := agent{run.ProjectID, run.agent}
		if _, known := links[of]; !known {
			if links[of], err = outboundLinks(ctx, tx, of.project, of.name); err != nil {
				return nil, err
			}
		}
		for _, link := range links[of] {
			to := store.Key{ProjectID: run.ProjectID, ID: link.ConnectorID}
			if _, known := outlets[to]; !known {
				if outlets[to], err = readOutlet(ctx, tx, to); err != nil {
					return nil, err
				}
			}
			if o := outlets[to]; o.mode == "outbound" && o.environment == run.environment && link.Outbound.Sends(run.status, run.source) {
				all = append(all, target{run: run.Key, environment: run.environment, link: link.ID, connector: link.ConnectorID, closed: o.closed})
			}
		}
	}
	slices.SortFunc(all, func(a, b target) int { return CompareKeys(a.destination(), b.destination()) })
	return all, nil
}

func (c *Core) endedRuns(ctx context.Context, tx *Tx, ended []store.Key) ([]endedRun, error) {
	ids := make([]uuid.UUID, len(ended))
	for i, key := range ended {
		ids[i] = key.ID
	}
	first, last := slices.MinFunc(ids, compareIDs), slices.MaxFunc(ids, compareIDs)
	source, args := c.engine.Keys(ended, 3)
	return collect(ctx, tx, func(row scanner) (r endedRun, err error) {
		err = row.Scan(&r.ProjectID, &r.ID, &r.environment, &r.agent, &r.status, &r.source)
		return r, err
	}, `SELECT project_id, id, environment_id, agent_name, status, connector_id FROM ended_runs
		WHERE id >= $1 AND id <= $2 AND (project_id, id) IN `+source, append([]any{first, last}, args...)...)
}

// outboundLinks are those of an agent that say something about results.
func outboundLinks(ctx context.Context, tx *Tx, project uuid.UUID, agent string) ([]store.Link, error) {
	return collect(ctx, tx, scanLink, selectLinks+`WHERE l.project_id = $1 AND l.agent_name = $2 AND l.outbound IS NOT NULL`, project, agent)
}

// outlet is a connector as a result meets it.
type outlet struct {
	mode        string
	environment uuid.UUID
	closed      string
}

func readOutlet(ctx context.Context, tx *Tx, key store.Key) (o outlet, err error) {
	connector, err := scanConnector(tx.QueryRowContext(ctx, selectConnector, key.ProjectID, key.ID))
	if errors.Is(err, store.ErrNotFound) {
		return outlet{}, nil
	}
	if err != nil {
		return outlet{}, err
	}
	d, err := scanDestination(tx.QueryRowContext(ctx, `SELECT `+destinationColumns+` FROM destinations
		WHERE project_id = $1 AND connector_id = $2`, key.ProjectID, key.ID))
	if err = found(err); errors.Is(err, store.ErrNotFound) {
		err = nil
	}
	return outlet{mode: connector.Mode, environment: connector.EnvironmentID, closed: d.closed(connector, true)}, err
}

func (t target) destination() store.Key {
	return store.Key{ProjectID: t.run.ProjectID, ID: t.connector}
}

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
