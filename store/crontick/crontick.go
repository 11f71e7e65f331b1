// SPDX-License-Identifier: Apache-2.0

// Package crontick stores when cron connectors tick.
package crontick

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/google/uuid"

	"github.com/agentplatform/agentplatform/store"
	"github.com/agentplatform/agentplatform/store/connectorrow"
	"github.com/agentplatform/agentplatform/store/sqldb"
)

// Store has the ticks of cron connectors.
type Store struct{ db *sqldb.DB }

// New returns a Store.
func New(db *sqldb.DB) *Store { return &Store{db: db} }

// tickCondition is the condition that the connector of a row of cron_ticks is active.
const tickCondition = `EXISTS (SELECT 1 FROM connectors c
	JOIN environments e ON e.project_id = c.project_id AND e.id = c.environment_id
	JOIN projects pr ON pr.project_id = c.project_id
	WHERE c.project_id = cron_ticks.project_id AND c.id = cron_ticks.connector_id AND c.enabled AND NOT c.retired AND NOT c.shadowed)`

// Put starts the schedule of a written cron connector, and restarts it if it has changed.
func Put(ctx context.Context, tx *sqldb.Tx, connector store.Connector) error {
	if connector.Type != store.TypeCron {
		return nil
	}
	var config struct{ Schedule, Timezone string }
	if err := json.Unmarshal(connector.Config, &config); err != nil {
		return fmt.Errorf("reading the schedule of connector %s: %w", connector.Key(), err)
	}
	if _, err := tx.Exec(ctx, `INSERT INTO cron_ticks (project_id, connector_id, schedule, time_zone, active, planned, due_at)
		VALUES ($1, $2, $3, $4, FALSE, FALSE, now_us())
		ON CONFLICT (project_id, connector_id) DO UPDATE SET schedule = excluded.schedule, time_zone = excluded.time_zone,
			planned = FALSE, due_at = excluded.due_at
		WHERE cron_ticks.schedule <> excluded.schedule OR cron_ticks.time_zone <> excluded.time_zone`,
		connector.ProjectID, connector.ID, sqldb.Text(config.Schedule), sqldb.Text(config.Timezone)); err != nil {
		return sqldb.Wrap(err, "planning the ticks of %s", connector.Ref)
	}
	return Settle(ctx, tx, connector.ProjectID, []uuid.UUID{connector.ID})
}

// Settle activates or deactivates ticks of a project's cron connectors after a write in the
// transaction. Ticks during inactivity are not made up.
func Settle(ctx context.Context, tx *sqldb.Tx, project uuid.UUID, connectors []uuid.UUID) error {
	for part := range slices.Chunk(connectors, sqldb.MaxIDs) {
		l := sqldb.Args{Values: []any{project}}
		if _, err := tx.Exec(ctx, `UPDATE cron_ticks SET active = NOT active, planned = FALSE, due_at = now_us()
			WHERE project_id = $1 AND connector_id IN `+l.AddIDs(part)+` AND active <> `+tickCondition, l.Values...); err != nil {
			return sqldb.Wrap(err, "updating the ticks of connectors")
		}
	}
	return nil
}

// nextTickStatement selects the database's time, and when the next tick of all is due.
const nextTickStatement = `SELECT now_us(), (SELECT MIN(t.due_at) FROM cron_ticks t WHERE t.active)`

// dueTicksStatement selects the oldest due ticks.
const dueTicksStatement = `SELECT t.project_id, t.connector_id, t.planned, t.due_at, t.last_tick_at, c.environment_id, c.version, c.config
	FROM cron_ticks t JOIN connectors c ON c.project_id = t.project_id AND c.id = t.connector_id
	WHERE t.active AND t.due_at <= $1 ORDER BY t.due_at LIMIT $2`

// DueTicks implements store.Ticks. Rows may change between its statements. The connector's version
// in the result is then stale.
func (s *Store) DueTicks(ctx context.Context, limit int, without ...uuid.UUID) (due store.DueTicks, err error) {
	err = s.db.Reader().QueryRowContext(ctx, nextTickStatement).Scan(sqldb.ScanTime(&due.Now), sqldb.ScanNullTime(&due.Next))
	if err != nil || due.Next == nil || due.Next.After(due.Now) {
		return due, sqldb.Wrap(err, "reading the next tick")
	}
	l, statement := sqldb.Args{Values: []any{sqldb.Instant(due.Now), limit}}, dueTicksStatement
	if len(without) > 0 {
		statement = strings.Replace(statement, ` ORDER BY`, ` AND t.project_id NOT IN `+l.AddIDs(without)+` ORDER BY`, 1)
	}
	due.Ticks, err = sqldb.Collect(ctx, s.db.Reader(), scanDueTick, statement, l.Values...)
	if err != nil || len(due.Ticks) == 0 {
		return due, sqldb.Wrap(err, "reading the due ticks")
	}
	return due, sqldb.Wrap(s.addLinks(ctx, due.Ticks), "reading the links of connectors with due ticks")
}

func scanDueTick(row sqldb.Scanner) (t store.DueTick, err error) {
	conn, config := &t.Route.Connector, ""
	err = row.Scan(&conn.ProjectID, &conn.ID, &t.Planned, sqldb.ScanTime(&t.At), sqldb.ScanNullTime(&t.LastAt), &conn.EnvironmentID, &conn.Version, &config)
	conn.Type, conn.Config = store.TypeCron, []byte(config)
	return t, err
}

// addLinks reads the links of all connectors, oldest first, and the concurrency settings of the
// agents. It starts from the links. SQLite would start from environments and read all links of
// each, but executes a CROSS JOIN in the written order.
func (s *Store) addLinks(ctx context.Context, ticks []store.DueTick) error {
	routes, keys := map[store.Key]*store.Route{}, make([]store.Key, len(ticks))
	for i := range ticks {
		route := &ticks[i].Route
		keys[i] = route.Connector.Key()
		routes[keys[i]] = route
	}
	source, args := s.db.Keys(keys, 1)
	return sqldb.EachRow(ctx, s.db.Reader(), func(row sqldb.Scanner) error {
		var (
			link store.Link
			of   store.Concurrency
			live bool
		)
		if err := row.Scan(&link.ProjectID, &link.ConnectorID, &link.ID, &link.AgentName, &link.FilesRequired, &live, &of.Expression, &of.Drop); err != nil {
			return err
		}
		route := routes[store.Key{ProjectID: link.ProjectID, ID: link.ConnectorID}]
		route.Links, route.Live = append(route.Links, link), live
		if of.Expression != "" {
			if route.Concurrency == nil {
				route.Concurrency = map[string]store.Concurrency{}
			}
			route.Concurrency[link.AgentName] = of
		}
		return nil
	}, `SELECT l.project_id, l.connector_id, l.id, l.agent_name, l.files_required, e.live_deployment_id IS NOT NULL,
			COALESCE(a.concurrency_expression, ''), COALESCE(a.concurrency_drop, FALSE)
		FROM links l CROSS JOIN connectors c CROSS JOIN environments e
		LEFT JOIN deployment_agents a ON a.project_id = l.project_id AND a.deployment_id = e.live_deployment_id AND a.name = l.agent_name
		WHERE (l.project_id, l.connector_id) IN `+source+` AND c.project_id = l.project_id AND c.id = l.connector_id
			AND e.project_id = c.project_id AND e.id = c.environment_id ORDER BY `+connectorrow.LinkOrder, args...)
}

// MoveTicks implements store.Ticks.
func (s *Store) MoveTicks(ctx context.Context, moves []store.TickMove) (moved int, err error) {
	err = s.db.Write(ctx, func(ctx context.Context, tx *sqldb.Tx) (err error) {
		moved, err = moveTicks(ctx, s.db, tx, moves)
		return err
	})
	return moved, err
}

// moveTicks moves ticks that are still due, in batches. Rows are found by key, and told apart by
// their keys as texts.
func moveTicks(ctx context.Context, db *sqldb.DB, tx *sqldb.Tx, moves []store.TickMove) (moved int, err error) {
	for part := range slices.Chunk(moves, sqldb.MaxIDs) {
		var l sqldb.Args
		keys, rows := make([]store.Key, len(part)), make([]string, len(part))
		for i, m := range part {
			var done, planned int64
			if !m.Done.IsZero() {
				done = sqldb.Instant(m.Done)
			}
			if m.Planned {
				planned = 1
			}
			keys[i] = m.Connector
			rows[i] = fmt.Sprintf("(CAST(%s AS text), CAST(%s AS text), CAST(%s AS bigint), CAST(%s AS bigint), CAST(%s AS bigint), CAST(%s AS bigint))",
				l.Add(m.Connector.ProjectID.String()), l.Add(m.Connector.ID.String()), l.Add(sqldb.Instant(m.From)), l.Add(sqldb.Instant(m.To)), l.Add(planned), l.Add(done))
		}
		values := strings.Join(rows, ", ")
		n, err := tx.Exec(ctx, `UPDATE cron_ticks SET due_at = v.column4, planned = v.column5 = 1,
				last_tick_at = CASE WHEN v.column6 > 0 THEN v.column6 ELSE last_tick_at END
			FROM (VALUES `+values+`) AS v WHERE `+db.KeyCondition(&l, "connector_id", keys)+` AND active AND due_at = v.column3
				AND CAST(project_id AS text) = v.column1 AND CAST(connector_id AS text) = v.column2`, l.Values...)
		if err != nil {
			return moved, sqldb.Wrap(err, "moving %d ticks", len(part))
		}
		moved += int(n)
	}
	return moved, nil
}

// Take moves the ticks of accepted events, in the accepting transaction. If it cannot, all is
// rolled back.
func Take(ctx context.Context, db *sqldb.DB, tx *sqldb.Tx, events []store.Event) error {
	var moves []store.TickMove
	for _, e := range events {
		if e.Tick != nil {
			moves = append(moves, *e.Tick)
		}
	}
	if moved, err := moveTicks(ctx, db, tx, moves); err != nil || moved < len(moves) {
		return cmp.Or(err, store.ErrTickTaken)
	}
	return nil
}

// TickTimes implements store.Ticks.
func (s *Store) TickTimes(ctx context.Context, projectID uuid.UUID, connectors []uuid.UUID) (map[uuid.UUID]store.TickTimes, error) {
	out := map[uuid.UUID]store.TickTimes{}
	for part := range slices.Chunk(connectors, sqldb.MaxIDs) {
		l := sqldb.Args{Values: []any{projectID}}
		if err := sqldb.CollectMap(ctx, s.db.Reader(), out, func(row sqldb.Scanner) (id uuid.UUID, times store.TickTimes, err error) {
			err = row.Scan(&id, &times.Active, &times.Planned, sqldb.ScanTime(&times.Next), sqldb.ScanNullTime(&times.Last))
			return id, times, err
		}, `SELECT connector_id, active, planned, due_at, last_tick_at FROM cron_ticks
			WHERE project_id = $1 AND connector_id IN `+l.AddIDs(part), l.Values...); err != nil {
			return nil, sqldb.Wrap(err, "reading the ticks of connectors of project %s", projectID)
		}
	}
	return out, nil
}
