// SPDX-License-Identifier: Apache-2.0

package delivery

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/google/uuid"

	"github.com/agentplatform/agentplatform/store"
	"github.com/agentplatform/agentplatform/store/connectorrow"
	"github.com/agentplatform/agentplatform/store/outbox"
	"github.com/agentplatform/agentplatform/store/runrow"
	"github.com/agentplatform/agentplatform/store/sqldb"
)

// posting lists the outbox consumers that create deliveries.
const posting = `'` + outbox.Deliveries + `', '` + outbox.FailureNotices + `'`

// target is a link that sends the result of a run, or another payload.
type target struct {
	// id is the ID of the delivery, once it is created.
	id   uuid.UUID
	kind store.DeliveryKind
	run  store.Key
	// of is the source of the delivery: the run, or the failing connector if word is set; the zero
	// key for a payload that a run sends itself.
	of          store.Key
	word        *store.FailedDelivery
	environment uuid.UUID
	link        uuid.UUID
	connector   uuid.UUID
	// closed is the reason if nothing is sent; "" otherwise.
	closed string
	// hops is the number of deliveries up to and including this one. traceparent is that of the event
	// of the run.
	hops        int
	traceparent string
	// payload is the payload if it is not a result, in a blob if that is set.
	payload json.RawMessage
	blob    *uuid.UUID
}

// Reasons for skipping a delivery, or for ending it before its next attempt.
const (
	closedDisabled = "the connector is disabled"
	closedRetired  = "the connector was removed from the code of the project"
	closedGone     = "the connector was deleted"
	closedPaused   = "the connector is paused: "
)

// PostDeliveries implements store.Deliveries. The work is read first. If several processes read the
// same rows, the one that takes the outbox rows does the work. A row that fails alone is set aside
// and blocks no other row.
func (s *Store) PostDeliveries(ctx context.Context, limit int) (runs int, err error) {
	since := s.turns.Last()
	waiting, err := s.dueOutboxRows(ctx, min(limit, sqldb.MaxIDs))
	if err != nil || len(waiting) == 0 {
		return 0, sqldb.Wrap(err, "reading undelivered results")
	}
	slices.SortFunc(waiting, func(a, b deliveryOutboxRow) int { return sqldb.CompareKeys(a.Key, b.Key) })
	by := outbox.Consumer[deliveryOutboxRow]{DB: s.db, ConsumeAll: s.postAll, TryConsume: s.postForTrial, DelayRow: delayOutboxRow}
	err = by.Consume(ctx, waiting)
	if by.TooSlow(ctx, waiting, err) {
		err = by.SetAside(ctx, waiting[0], err)
	}
	if err != nil && len(waiting) > 1 && !errors.As(err, new(*store.SetAsideError)) {
		s.turns.Rewind(since) // retry with fewer rows until the failing row is alone
	}
	return len(waiting), sqldb.Wrap(err, "creating deliveries")
}

// postAll creates deliveries from outbox rows, all or none. It locks in the same order as
// transactions that record attempts: destinations first, in key order.
func (s *Store) postAll(ctx context.Context, waiting []deliveryOutboxRow) error {
	var ended []store.Key
	var failing []deliveryOutboxRow
	for _, p := range waiting {
		if p.last == nil {
			ended = append(ended, p.Key)
		} else {
			failing = append(failing, p)
		}
	}
	runs, err := s.endedRuns(ctx, ended)
	if err != nil {
		return sqldb.Wrap(err, "reading ended runs")
	}
	targets, err := s.targets(ctx, runs, failing)
	if err != nil {
		return sqldb.Wrap(err, "reading the targets of results")
	}
	return s.db.Write(ctx, func(ctx context.Context, tx *sqldb.Tx) error {
		own, told := map[store.Key]int64{}, map[store.Key]int64{}
		if err := s.takeEnded(ctx, tx, ended, own); err != nil {
			return err
		}
		if err := s.db.CheckMissingRows(ctx, tx, "ended_runs", sqldb.KeysWithoutRow(slices.Collect(maps.Keys(own)), runs), sqldb.ReadableCondition("r.project_id")); err != nil {
			return err
		}
		if err := s.takeFailing(ctx, tx, failing, targets, told); err != nil {
			return err
		}
		var mine []target
		for _, t := range targets {
			count, taken := own[t.of]
			if t.word != nil {
				count, taken = told[t.of]
			}
			if !taken {
				continue
			}
			if t.word != nil {
				word := *t.word
				word.Count = count
				if t.payload, err = json.Marshal(word); err != nil {
					return err
				}
			}
			mine = append(mine, t)
		}
		return s.insertDeliveries(ctx, tx, mine)
	})
}

// postForTrial creates one delivery of each kind that uses other tables, for a project that does
// not exist, and rolls back.
func (s *Store) postForTrial(ctx context.Context) error {
	id, err := uuid.NewV7()
	if err != nil {
		return err
	}
	run := store.Key{ProjectID: uuid.New(), ID: id}
	result := target{kind: store.DeliverResult, run: run, environment: id, link: id, connector: id}
	skipped, payload := result, result
	skipped.closed, payload.kind, payload.payload = closedDisabled, store.DeliverPayload, json.RawMessage(`{}`)
	runs, err := s.endedRuns(ctx, []store.Key{run})
	if err != nil {
		return err
	}
	if _, err := s.targets(ctx, runs, nil); err != nil {
		return err
	}
	return s.db.Write(ctx, func(ctx context.Context, tx *sqldb.Tx) error {
		if err := s.takeEnded(ctx, tx, []store.Key{run}, map[store.Key]int64{}); err != nil {
			return err
		}
		if err := s.forgetSends(ctx, tx, []store.Key{run}); err != nil {
			return err
		}
		if err := s.insertDeliveries(ctx, tx, []target{result, skipped, payload}); err != nil {
			return err
		}
		return sqldb.ErrTrial
	})
}

// takeEnded takes the rows of ended runs and marks them as own.
func (s *Store) takeEnded(ctx context.Context, tx *sqldb.Tx, ended []store.Key, own map[store.Key]int64) error {
	if len(ended) == 0 {
		return nil
	}
	var l sqldb.Args
	taken, err := sqldb.Collect(ctx, tx, sqldb.ScanKey, `DELETE FROM outbox WHERE consumer = '`+outbox.Deliveries+`' AND `+
		s.db.KeyCondition(&l, "ended_id", ended)+` RETURNING project_id, ended_id`, l.Values...)
	if err != nil {
		return err
	}
	for _, key := range taken {
		own[key] = 1
	}
	return s.forgetSends(ctx, tx, taken)
}

// endedRun has the fields that decide which links send the result of a run.
type endedRun struct {
	store.Key
	environment uuid.UUID
	agent       string
	status      store.RunStatus
	source      *uuid.UUID
	input       uuid.UUID
	unpublished bool
}

// PrimaryKey implements sqldb.KeyedRow.
func (r endedRun) PrimaryKey() store.Key { return r.Key }

// targets returns the links that send results of ended runs and failure notices about connectors,
// in the order of their destinations.
func (s *Store) targets(ctx context.Context, runs []endedRun, failing []deliveryOutboxRow) (all []target, err error) {
	if all, err = s.noticeLinks(ctx, failing); err != nil {
		return nil, err
	}
	links, err := s.outboundLinks(ctx, runs)
	if err != nil {
		return nil, err
	}
	starts := make([]runrow.Start, 0, len(runs))
	for _, run := range runs {
		starts = append(starts, runrow.Start{Run: run.Key, Input: store.Key{ProjectID: run.ProjectID, ID: run.input}})
		if run.unpublished {
			continue
		}
		for _, link := range links[projectAgent{run.ProjectID, run.agent}] {
			if link.Outbound.Sends(run.status, run.source) {
				all = append(all, target{kind: store.DeliverResult, run: run.Key, of: run.Key, environment: run.environment, link: link.ID, connector: link.ConnectorID})
			}
		}
	}
	if all, err = s.setClosedReasons(ctx, s.db.Reader(), all); err != nil || len(all) == 0 {
		return nil, err
	}
	if err := s.addOrigins(ctx, all, starts); err != nil {
		return nil, err
	}
	slices.SortFunc(all, func(a, b target) int { return sqldb.CompareKeys(a.destination(), b.destination()) })
	return all, nil
}

// setClosedReasons sets the reason of each closed target. It drops targets without an outbound connector in
// their environment.
func (s *Store) setClosedReasons(ctx context.Context, q sqldb.Queryer, all []target) (those []target, err error) {
	var keys []store.Key
	for _, t := range all {
		keys = append(keys, t.destination())
	}
	slices.SortFunc(keys, sqldb.CompareKeys)
	outlets := map[store.Key]outlet{}
	for some := range slices.Chunk(slices.Compact(keys), maxOutlets) {
		if err := s.readOutlets(ctx, q, some, outlets); err != nil {
			return nil, err
		}
	}
	for _, t := range all {
		if o := outlets[t.destination()]; o.sends && o.environment == t.environment {
			t.closed = o.closed
			those = append(those, t)
		}
	}
	return those, nil
}

func (s *Store) endedRuns(ctx context.Context, ended []store.Key) (runs []endedRun, err error) {
	for _, same := range s.db.KeysByPart("ended_runs", ended) {
		var l sqldb.Args
		past, err := sqldb.PastRows(ctx, s.db, s.db.Reader(), same[0].ID, func(row sqldb.Scanner) (r endedRun, err error) {
			err = row.Scan(&r.ProjectID, &r.ID, &r.environment, &r.agent, &r.status, &r.source, &r.input, &r.unpublished)
			return r, err
		}, `SELECT r.project_id, r.id, r.environment_id, r.agent_name, r.status, r.connector_id, r.input_id, r.unpublished FROM {ended_runs} r
			WHERE `+s.db.KeyCondition(&l, "r.id", same)+sqldb.ReadableCondition("r.project_id"), l.Values...)
		if err != nil {
			return nil, err
		}
		runs = append(runs, past...)
	}
	return runs, nil
}

// projectAgent identifies an agent of a project.
type projectAgent struct {
	project uuid.UUID
	name    string
}

// outboundLinks returns the outbound links of the agents of runs, read once per project.
func (s *Store) outboundLinks(ctx context.Context, runs []endedRun) (map[projectAgent][]store.Link, error) {
	of, agents := map[projectAgent][]store.Link{}, map[uuid.UUID][]string{}
	for _, run := range runs {
		if !slices.Contains(agents[run.ProjectID], run.agent) {
			agents[run.ProjectID] = append(agents[run.ProjectID], run.agent)
		}
	}
	for project, names := range agents {
		l := sqldb.Args{Values: []any{project}}
		marks := make([]string, len(names))
		for i, name := range names {
			marks[i] = l.Add(name)
		}
		links, err := sqldb.Collect(ctx, s.db.Reader(), connectorrow.ScanLink, connectorrow.SelectLinks+`WHERE l.project_id = $1 AND l.agent_name IN (`+strings.Join(marks, ", ")+`)
			AND l.outbound IS NOT NULL`, l.Values...)
		if err != nil {
			return nil, err
		}
		for _, link := range links {
			of[projectAgent{project, link.AgentName}] = append(of[projectAgent{project, link.AgentName}], link)
		}
	}
	return of, nil
}

// outlet is the connector of a target.
type outlet struct {
	sends       bool
	environment uuid.UUID
	closed      string
}

// maxOutlets is the number of connectors per read.
const maxOutlets = 64

// readOutlets reads the connectors that are in effect.
func (s *Store) readOutlets(ctx context.Context, q sqldb.Queryer, keys []store.Key, outlets map[store.Key]outlet) error {
	connectors, err := connectorrow.ByKeys(ctx, s.db, q, keys)
	if err != nil {
		return err
	}
	var l sqldb.Args
	all, err := sqldb.Collect(ctx, q, scanDestination, `SELECT `+destinationColumns+` FROM destinations WHERE `+s.db.KeyCondition(&l, "connector_id", keys), l.Values...)
	if err != nil {
		return err
	}
	destinations := map[store.Key]destination{}
	for _, d := range all {
		destinations[d.Key] = d
	}
	for key, connector := range connectors {
		outlets[key] = outlet{connector.Sends(), connector.EnvironmentID, destinations[key].closedReason(connector, true)}
	}
	return nil
}

func (t target) destination() store.Key {
	return store.Key{ProjectID: t.run.ProjectID, ID: t.connector}
}

// insertDeliveries inserts the deliveries of targets, which are in the order of their destinations, and skips
// closed ones. It sets their IDs.
func (s *Store) insertDeliveries(ctx context.Context, tx *sqldb.Tx, targets []target) error {
	var now int64
	if err := tx.QueryRowContext(ctx, `SELECT now_us()`).Scan(&now); err != nil {
		return err
	}
	var open, skipped, payloads sqldb.RowBatch
	more := map[store.Key]int64{}
	var due, stored, ended []store.Key
	for i, t := range targets {
		random, err := uuid.NewV7()
		if err != nil {
			return err
		}
		id := store.Stamp(random, now, i)
		targets[i].id = id
		key := store.Key{ProjectID: t.run.ProjectID, ID: id}
		stored = append(stored, key)
		if t.kind != store.DeliverResult {
			inline := any([]byte(t.payload))
			if t.blob != nil {
				inline = nil
			}
			payloads.Add(t.run.ProjectID, id, inline, t.blob)
			more[key] = int64(len(t.payload))
		}
		if t.closed != "" {
			skipped.Add(t.run.ProjectID, id, t.environment, t.connector, t.run.ID, string(t.kind), t.closed, now, now)
			ended = append(ended, key)
			continue
		}
		open.Add(t.run.ProjectID, id, t.environment, t.connector, t.link, t.run.ID, string(t.kind), now, now, t.hops, runrow.TraceparentColumn(t.traceparent))
		if n := len(due); n == 0 || due[n-1] != t.destination() {
			due = append(due, t.destination())
		}
	}
	if err := open.Insert(ctx, tx, `INSERT INTO deliveries (project_id, id, environment_id, connector_id, link_id, run_id,
		kind, attempt, due_at, started_at, hops, traceparent) VALUES `, `(%, %, %, %, %, %, %, 0, %, %, %, %)`, ``); err != nil {
		return err
	}
	if err := skipped.Insert(ctx, tx, `INSERT INTO ended_connector_runs (project_id, id, environment_id, connector_id, status, trigger_type,
		content_type, run_ids, kind, error, started_at, ended_at) VALUES `, `(%, %, %, %, 'skipped', 'outbound', '`+runrow.DeliveryType+`', id_list(%), %, %, %, %)`, ``); err != nil {
		return err
	}
	if err := outbox.PostConnectorRuns(ctx, tx, ended); err != nil {
		return err
	}
	if err := payloads.Insert(ctx, tx, `INSERT INTO inputs (project_id, id, content_type, data, blob_id) VALUES `,
		`(%, %, '`+runrow.DeliveryType+`', %, %)`, ``); err != nil {
		return err
	}
	if err := countDeliveries(ctx, tx, stored, more); err != nil {
		return err
	}
	return wakeDestinations(ctx, tx, due, now)
}

// wakeDestinations lets claims read destinations with due deliveries.
func wakeDestinations(ctx context.Context, tx *sqldb.Tx, due []store.Key, now int64) error {
	var destinations sqldb.RowBatch
	for _, key := range due {
		destinations.Add(key.ProjectID, key.ID, now)
	}
	return destinations.Insert(ctx, tx, `INSERT INTO destinations AS d (project_id, connector_id, due_at, failures, paused_reason) VALUES `,
		`(%, %, %, 0, '')`, ` ON CONFLICT (project_id, connector_id) DO UPDATE SET due_at = excluded.due_at
			WHERE d.due_at IS NULL OR d.due_at > excluded.due_at AND d.failures < `+strconv.Itoa(store.BreakAfter))
}
