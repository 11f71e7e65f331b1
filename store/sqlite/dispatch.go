// SPDX-License-Identifier: Apache-2.0

package sqlite

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/agentplatform/agentplatform/store"
	"github.com/agentplatform/agentplatform/store/openrun"
	"github.com/agentplatform/agentplatform/store/runqueue"
	"github.com/agentplatform/agentplatform/store/runrow"
	"github.com/agentplatform/agentplatform/store/sqldb"
	"github.com/agentplatform/agentplatform/store/trace"
)

// End implements openrun.Engine.
func (e engine) End(ctx context.Context, q sqldb.Queryer, endings []openrun.Ending, keyed bool) (ended []openrun.EndedRun, err error) {
	stored, rolledUp, closed := storedBytes{}, map[uuid.UUID][]uuid.UUID{}, map[uuid.UUID][]uuid.UUID{}
	for _, ending := range endings {
		run, bytes, input, err := moveRunToHistory(ctx, q, ending, keyed)
		switch {
		case errors.Is(err, sql.ErrNoRows):
			continue
		case err != nil:
			return nil, err
		}
		ended = append(ended, run)
		stored.addBytes(run.Run, bytes)
		rolledUp[run.Run.ProjectID] = append(rolledUp[run.Run.ProjectID], run.Run.ID)
		if run.ConnectorRun != nil {
			stored.addBytes(store.Key{ProjectID: run.Run.ProjectID, ID: *run.ConnectorRun}, input)
			closed[run.Run.ProjectID] = append(closed[run.Run.ProjectID], *run.ConnectorRun)
		}
	}
	for on, by := range stored {
		if _, err := q.ExecContext(ctx, `INSERT INTO outbox (project_id, consumer, ended_id, bytes, posted_at)
			VALUES ($1, 'storage', $2, $3, now_us())`, on.project, by.first, by.bytes); err != nil {
			return nil, err
		}
	}
	for project, runs := range rolledUp {
		if _, err := q.ExecContext(ctx, `INSERT INTO outbox_rollups (project_id, ended_id, run_ids, connector_run_ids, posted_at)
			VALUES ($1, $2, $3, $4, now_us())`, project, runs[0], idsText(runs), idsText(append([]uuid.UUID{}, closed[project]...))); err != nil {
			return nil, err
		}
		if _, err := q.ExecContext(ctx, `INSERT INTO outbox_words (project_id, ended_id, run_ids, posted_at)
			VALUES ($1, $2, $3, now_us())`, project, runs[0], idsText(runs)); err != nil {
			return nil, err
		}
	}
	return ended, postTraces(ctx, q, ended)
}

// postTraces adds ended runs to the outbox of traces if their projects export them.
func postTraces(ctx context.Context, q sqldb.Queryer, ended []openrun.EndedRun) error {
	telemetries := map[uuid.UUID]store.Telemetry{}
	for _, run := range ended {
		project := run.Run.ProjectID
		telemetry, known := telemetries[project]
		if !known {
			var text string
			err := q.QueryRowContext(ctx, `SELECT COALESCE(telemetry, '{}') FROM projects WHERE project_id = $1`, project).Scan(&text)
			if errors.Is(err, sql.ErrNoRows) {
				text, err = "{}", nil // without a percentage it exports none
			}
			if err = errors.Join(err, json.Unmarshal([]byte(text), &telemetry)); err != nil {
				return err
			}
			telemetries[project] = telemetry
		}
		if !telemetry.Exports(run.Environment.ID, run.Run.ID) {
			continue
		}
		if _, err := q.ExecContext(ctx, trace.PostStatement+` VALUES ($1, $2, now_us(), now_us())`, project, run.Run.ID); err != nil {
			return err
		}
	}
	return nil
}

// storedBytes has the stored bytes of ended runs and connector runs by day of a project.
type (
	storedBytes map[projectDay]*stored

	projectDay struct {
		project uuid.UUID
		day     int64
	}
	stored struct {
		first uuid.UUID
		bytes int64
	}
)

func (s storedBytes) addBytes(of store.Key, bytes int64) {
	on := projectDay{of.ProjectID, sqldb.DayOf(of.ID)}
	if s[on] == nil {
		s[on] = &stored{first: of.ID}
	}
	s[on].bytes += bytes
}

// moveRunToHistory moves a run to history with all follow-up writes; sql.ErrNoRows if it is not open, or does
// not match the Ending. It returns the stored bytes of the run, and of the input of the connector
// run that has ended with it.
func moveRunToHistory(ctx context.Context, q sqldb.Queryer, e openrun.Ending, keyed bool) (ended openrun.EndedRun, bytes, input int64, err error) {
	var (
		token, first, size int64
		connectorRun       *uuid.UUID
		agent              string
	)
	if e.Token != nil {
		token = *e.Token
	}
	if len(e.Journal) > 0 {
		first, size = e.Journal[0].Sequence, openrun.SizeOf(e.Journal)
	}
	output, blob := e.Output, e.Large.Blob(openrun.OutputPart)
	if blob != nil {
		output = ""
	}
	err = q.QueryRowContext(ctx, `INSERT INTO ended_runs (project_id, id, environment_id, connector_id, connector_run_id,
			link_id, agent_name, input_id, status, deployment_id, token, attempt, runner_id, error_code, error, output, output_blob_id, finish_reason, context, unpublished,
			input_tokens, output_tokens, thinking_tokens, cached_input_tokens, total_tokens, test_name, queued_at, started_at, ended_at)
		SELECT project_id, id, environment_id, connector_id, connector_run_id, link_id, agent_name, input_id, $4, deployment_id,
			$3, attempt, runner_id, $5, $6, $7, $19, $23, $21, $22, $8, $9, $10, $11, $12, `+openrun.ReportedVariant("open_runs", "$20")+`, queued_at, started_at, now_us()
		FROM open_runs WHERE project_id = $1 AND id = $2 AND ($13 OR token = $3 AND status = 'running')
			AND ($17 = '' OR status = $17) AND ($18 OR COALESCE(concurrency_key, '') = '') AND ($14 = 0 OR journal_length = $14 - 1 AND journal_size + $15 <= $16)
		RETURNING environment_id, connector_run_id, agent_name`,
		e.Run.ProjectID, e.Run.ID, token, string(e.Status), string(e.Code), e.Error, output, e.Usage.InputTokens,
		e.Usage.OutputTokens, e.Usage.ThinkingTokens, e.Usage.CachedInputTokens, e.Usage.TotalTokens, e.Token == nil,
		first, size, store.MaxJournal, string(e.Only), keyed, blob, e.TestName, string(e.Context), e.Unpublished, e.FinishReason).Scan(&ended.Environment.ID, &connectorRun, &agent)
	if err != nil {
		return ended, 0, 0, err
	}
	ended.Run, ended.Environment.ProjectID, ended.Status = e.Run, e.Run.ProjectID, e.Status
	if err := q.QueryRowContext(ctx, `DELETE FROM open_runs WHERE project_id = $1 AND id = $2
		RETURNING journal_size, COALESCE(concurrency_key, '') <> ''`, e.Run.ProjectID, e.Run.ID).Scan(&bytes, &ended.Keyed); err != nil {
		return ended, 0, 0, err
	}
	bytes += size + e.TextBytes() + openrun.RunOverhead
	if err := insertEntries(ctx, q, store.Lease{Run: e.Run, Token: token}, e.Journal, e.Large); err != nil {
		return ended, 0, 0, err
	}
	if ended.Posted, err = postToOutbox(ctx, q, e.Run, agent); err != nil || connectorRun == nil {
		return ended, bytes, 0, err
	}
	input, err = endConnectorRun(ctx, q, &ended, *connectorRun)
	return ended, bytes, input, err
}

// postToOutbox adds an ended run to the outbox if its agent has a link to an outbound connector, or if it
// has sent payloads.
func postToOutbox(ctx context.Context, q sqldb.Queryer, run store.Key, agent string) (bool, error) {
	result, err := q.ExecContext(ctx, `INSERT INTO outbox (project_id, consumer, ended_id, bytes, posted_at)
		SELECT $1, 'deliveries', $2, 0, now_us() WHERE EXISTS (SELECT 1 FROM links l
			WHERE l.project_id = $1 AND l.agent_name = $3 AND l.outbound IS NOT NULL)
		OR EXISTS (SELECT 1 FROM sends s WHERE s.project_id = $1 AND s.run_id = $2)`, run.ProjectID, run.ID, agent)
	if err != nil {
		return false, err
	}
	n, err := result.RowsAffected()
	return n > 0, err
}

// endConnectorRun decrements the open runs of a connector run, and ends it with the last one. It
// then returns the size of the input, which stays.
func endConnectorRun(ctx context.Context, q sqldb.Queryer, ended *openrun.EndedRun, id uuid.UUID) (input int64, err error) {
	project, failed, completed := ended.Run.ProjectID, 0, 0
	switch ended.Status {
	case store.RunFailed:
		failed = 1
	case store.RunCompleted:
		completed = 1
	}
	err = q.QueryRowContext(ctx, `INSERT INTO ended_connector_runs (project_id, id, environment_id, connector_id, status,
			trigger_type, content_type, run_ids, error, replay_of, started_at, ended_at)
		SELECT project_id, id, environment_id, connector_id, `+openrun.OutcomeOf("runs_failed + $3", "runs_completed + $4")+`,
			trigger_type, content_type, run_ids, '', replay_of, started_at, now_us()
		FROM open_connector_runs WHERE project_id = $1 AND id = $2 AND runs_left <= 1 RETURNING id`, project, id, failed, completed).Scan(&id)
	if errors.Is(err, sql.ErrNoRows) { // it has other open runs
		_, err = q.ExecContext(ctx, `UPDATE open_connector_runs SET runs_left = runs_left - 1, runs_failed = runs_failed + $3,
				runs_completed = runs_completed + $4
			WHERE project_id = $1 AND id = $2`, project, id, failed, completed)
		return 0, err
	}
	if err != nil {
		return 0, err
	}
	ended.ConnectorRun = &id
	err = q.QueryRowContext(ctx, `DELETE FROM open_connector_runs WHERE project_id = $1 AND id = $2 RETURNING input_size`,
		project, id).Scan(&input)
	return input, err
}

// insertEntries appends entries, and the cost of their model calls, without checks.
func insertEntries(ctx context.Context, q sqldb.Queryer, l store.Lease, entries []store.JournalEntry, large openrun.Large) error {
	for _, entry := range entries {
		data, blob := large.Row(entry)
		if _, err := q.ExecContext(ctx, `INSERT INTO journal (project_id, run_id, sequence, token, kind, data, blob_id, unsafe, at)
			VALUES ($1, $2, $3, $4, $5, $6, $7, $8, now_us())`,
			l.Run.ProjectID, l.Run.ID, entry.Sequence, l.Token, string(entry.Kind), data, blob, entry.Unsafe); err != nil {
			return err
		}
		u := entry.Usage
		if u == nil {
			continue
		}
		if _, err := q.ExecContext(ctx, `INSERT INTO model_calls (project_id, run_id, sequence, model,
				input_tokens, output_tokens, thinking_tokens, cached_input_tokens, total_tokens, currency, cost_nanos, at)
			VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, now_us())`,
			l.Run.ProjectID, l.Run.ID, entry.Sequence, sqldb.Text(u.Model), u.InputTokens, u.OutputTokens,
			u.ThinkingTokens, u.CachedInputTokens, u.TotalTokens, string(u.Cost.Currency), u.Cost.Nanos); err != nil {
			return err
		}
	}
	return nil
}

// Append implements openrun.Engine.
func (e engine) Append(ctx context.Context, q sqldb.Queryer, appends []openrun.Append) (appended []store.Key, err error) {
	for _, a := range appends {
		run, entries := a.Lease.Run, a.Entries
		result, err := q.ExecContext(ctx, `UPDATE open_runs SET journal_length = $5, journal_size = journal_size + $6,
				open_tools = MAX(open_tools + $7, 0)
			WHERE project_id = $1 AND id = $2 AND token = $3 AND status = 'running' AND journal_length = $4 - 1 AND journal_size + $6 <= $8`,
			run.ProjectID, run.ID, a.Lease.Token, entries[0].Sequence, entries[len(entries)-1].Sequence, openrun.SizeOf(entries),
			openrun.OpenedTools(entries), store.MaxJournal)
		if err != nil {
			return nil, err
		}
		if n, err := result.RowsAffected(); err != nil {
			return nil, err
		} else if n == 0 {
			continue
		}
		if err := insertEntries(ctx, q, a.Lease, entries, a.Large); err != nil {
			return nil, err
		}
		appended = append(appended, run)
	}
	return appended, nil
}

// Renew implements openrun.Engine.
func (e engine) Renew(ctx context.Context, q sqldb.Queryer, environment store.Key, held []store.Held, lease time.Duration) (renewed []store.Lease, err error) {
	for _, h := range held {
		l := h.Lease
		result, err := q.ExecContext(ctx, `UPDATE open_runs SET lease_until = now_us() + $4, status = 'running',
				losses = losses - CASE WHEN status = 'running' THEN 0 ELSE 1 END, test_name = `+openrun.ReportedVariant("open_runs", "$7")+`
			WHERE project_id = $1 AND id = $2 AND token = $3 AND $1 = $5 AND environment_id = $6
				AND (status = 'running' OR status = 'queued' AND runner_id <> '')`,
			l.Run.ProjectID, l.Run.ID, l.Token, lease.Microseconds(), environment.ProjectID, environment.ID, h.TestName)
		if err != nil {
			return nil, err
		}
		if n, err := result.RowsAffected(); err != nil {
			return nil, err
		} else if n == 1 {
			renewed = append(renewed, l)
		}
	}
	return renewed, nil
}

// Look implements openrun.Engine.
func (e engine) Look(ctx context.Context, c store.Claim) (look openrun.Look, err error) {
	err = e.Snapshot(ctx, func(ctx context.Context, q sqldb.Queryer) error {
		look = openrun.Look{Pool: store.Pool{Running: map[string]int{}}}
		if err := lookAtPool(ctx, q, c, &look); err != nil {
			return err
		}
		if err := eachRow(ctx, q, func(rows *sql.Rows) error {
			var (
				agent      string
				runs, some int
			)
			err := rows.Scan(&agent, &runs, &some)
			look.Pool.Running[agent] = runs
			look.Pool.Lower += some
			return err
		}, `SELECT agent_name, count(*), SUM(CASE WHEN class > 0 AND fresh THEN 1 ELSE 0 END) FROM open_runs
			WHERE project_id = $1 AND environment_id = $2 AND status = 'running' GROUP BY agent_name`,
			c.Environment.ProjectID, c.Environment.ID); err != nil {
			return err
		}
		if err := eachRow(ctx, q, func(rows *sql.Rows) error {
			l := store.Lease{Run: store.Key{ProjectID: c.Environment.ProjectID}}
			err := rows.Scan(&l.Run.ID, &l.Token)
			look.Leased = append(look.Leased, l)
			return err
		}, openrun.LeasedStatement, c.Environment.ProjectID, c.Environment.ID, sqldb.Text(c.RunnerID)); err != nil {
			return err
		}
		if look.Live == nil || c.Limit == 0 {
			return nil
		}
		return lookAtQueue(ctx, q, c, &look)
	})
	return look, err
}

// eachRow calls scan for all rows of a query.
func eachRow(ctx context.Context, q sqldb.Queryer, scan func(rows *sql.Rows) error, query string, args ...any) error {
	rows, err := q.QueryContext(ctx, query, args...)
	if err != nil {
		return err
	}
	defer func() { _ = rows.Close() }() // Err returns its error
	for rows.Next() {
		if err := scan(rows); err != nil {
			return err
		}
	}
	return rows.Err()
}

func lookAtPool(ctx context.Context, q sqldb.Queryer, c store.Claim, look *openrun.Look) error {
	var (
		turns  string
		others int
	)
	err := q.QueryRowContext(ctx, `SELECT e.live_deployment_id, p.version, p.served, p.turns,
			COALESCE((SELECT sum(w.places) FROM runners w WHERE w.project_id = $1 AND w.environment_id = $2
				AND w.id <> $3 AND w.seen_at > now_us() - $7), 0),
			EXISTS (SELECT 1 FROM runners w WHERE w.project_id = $1 AND w.environment_id = $2 AND w.id = $3
				AND w.places = $4 AND w.digests = $5 AND w.seen_at > now_us() - $6)
		FROM environments e JOIN pools p ON p.project_id = e.project_id AND p.environment_id = e.id
		WHERE e.project_id = $1 AND e.id = $2`, c.Environment.ProjectID, c.Environment.ID, sqldb.Text(c.RunnerID), c.Slots,
		openrun.Digests(c), openrun.RunnerSeenEvery.Microseconds(), store.RunnerPresence.Microseconds()).
		Scan(&look.Live, &look.Version, &look.Pool.Served, &turns, &others, &look.Seen)
	if errors.Is(err, sql.ErrNoRows) { // the environment is deleted
		look.Seen = true
		return nil
	}
	if err != nil {
		return err
	}
	look.Pool.Slots = others + c.Slots
	return json.Unmarshal([]byte(turns), &look.Pool.LastAgents)
}

// lookAtQueue reads the heads of the queues, queue by queue.
func lookAtQueue(ctx context.Context, q sqldb.Queryer, c store.Claim, look *openrun.Look) error {
	type queue struct {
		class store.Class
		agent string
		fresh bool
	}
	var queues []queue
	if err := eachRow(ctx, q, func(rows *sql.Rows) error {
		var of queue
		err := rows.Scan(&of.class, &of.agent, &of.fresh)
		queues = append(queues, of)
		return err
	}, `WITH RECURSIVE `+runqueue.WalkQueues("rowid", runqueue.InEnvironment)+`
		SELECT c.class, c.agent_name, c.fresh FROM q JOIN open_runs c ON c.rowid = q.address LIMIT $3`,
		c.Environment.ProjectID, c.Environment.ID, runqueue.MaxQueues); err != nil {
		return err
	}
	for _, of := range queues {
		if err := eachRow(ctx, q, func(rows *sql.Rows) error {
			w := openrun.Waiting{Candidate: store.Candidate{Class: of.class, Agent: of.agent, Fresh: of.fresh}}
			var (
				digest *string
				most   *int
			)
			if err := rows.Scan(&w.ID, &w.Input, &w.Deployment, &digest, &most, &w.Concurrency.Expression, &w.Concurrency.Drop); err != nil {
				return err
			}
			if digest != nil {
				w.Digest = *digest
			}
			if w.Known = most != nil; w.Known {
				w.Max = *most
			}
			look.Waiting = append(look.Waiting, w)
			return nil
		}, `SELECT h.id, h.input_id, h.deployment_id, d.bundle_digest, a.max_concurrent_runs,
				CASE WHEN h.keyless THEN COALESCE(a.concurrency_expression, '') ELSE '' END, COALESCE(a.concurrency_drop, FALSE)
			FROM (SELECT n.id, n.input_id, COALESCE(n.deployment_id, $5) AS deployment_id, n.concurrency_key IS NULL AS keyless
				FROM open_runs n WHERE n.status = 'queued' AND n.blocked = FALSE AND n.project_id = $1 AND n.environment_id = $2 AND n.class = $3 AND n.agent_name = $4
					AND n.fresh = $6 AND n.not_before <= now_us() ORDER BY n.id LIMIT `+runqueue.HeadsOf("$7", "$8")+`) h
			LEFT JOIN deployments d ON d.project_id = $1 AND d.id = h.deployment_id
			LEFT JOIN deployment_agents a ON a.project_id = $1 AND a.deployment_id = h.deployment_id AND a.name = $4 AND a.variant_of = ''`,
			c.Environment.ProjectID, c.Environment.ID, int64(of.class), of.agent, *look.Live, of.fresh, c.Limit, len(queues)); err != nil {
			return err
		}
	}
	return nil
}

// Start implements openrun.Engine.
func (e engine) Start(ctx context.Context, c store.Claim, s openrun.Start) (started []store.Claimed, current bool, err error) {
	err = e.writer.runOperation(ctx, func(ctx context.Context, q sqldb.Queryer) error {
		started, current = nil, false
		result, err := q.ExecContext(ctx, `UPDATE pools SET version = version + 1, served = $4, turns = $5
			WHERE project_id = $1 AND environment_id = $2 AND version = $3`,
			c.Environment.ProjectID, c.Environment.ID, s.Version, s.Pool.Served, openrun.EncodeLastAgents(s.Pool.LastAgents))
		if err != nil {
			return err
		}
		if n, err := result.RowsAffected(); err != nil || n == 0 {
			return err
		}
		current = true
		var inputs []uuid.UUID
		for i, w := range s.Runs {
			claimed, err := startRun(ctx, q, c, w, s.Salts[i])
			switch {
			case errors.Is(err, sql.ErrNoRows): // no longer queued
			case err != nil:
				return err
			default:
				started, inputs = append(started, claimed), append(inputs, w.Input)
			}
		}
		return runrow.AddInputs(ctx, e.DB, q, c.Environment.ProjectID, started, inputs)
	})
	return started, current, err
}

func startRun(ctx context.Context, q sqldb.Queryer, c store.Claim, w openrun.Waiting, salt int64) (store.Claimed, error) {
	result, err := q.ExecContext(ctx, `UPDATE open_runs SET status = 'running', attempt = attempt + 1,
			token = ((attempt + 1) << $4) | $5, runner_id = $6, lease_until = now_us() + $7,
			started_at = COALESCE(started_at, now_us()), deployment_id = $3
		WHERE project_id = $1 AND id = $2 AND status = 'queued' AND blocked = FALSE`,
		c.Environment.ProjectID, w.ID, w.Deployment, openrun.TokenBits, salt, sqldb.Text(c.RunnerID), c.Lease.Microseconds())
	if err != nil {
		return store.Claimed{}, err
	}
	if n, err := result.RowsAffected(); err != nil || n == 0 {
		return store.Claimed{}, errors.Join(err, sql.ErrNoRows)
	}
	claimed, _, err := openrun.ScanStarted(q.QueryRowContext(ctx, `SELECT `+openrun.StartedColumns+` FROM open_runs r
		LEFT JOIN deployments d ON d.project_id = r.project_id AND d.id = r.deployment_id
		WHERE r.project_id = $1 AND r.id = $2`, c.Environment.ProjectID, w.ID))
	return claimed, err
}

// Part implements sqldb.Engine. History has no partitions.
func (e engine) Part(table string, _ uuid.UUID) string { return table }

// Lists implements sqldb.Engine.
func (e engine) Lists() sqldb.Queryer { return e.reader }

// Replan implements store.Housekeeping. Plans depend on the schema only.
func (s *Store) Replan(context.Context) error { return nil }

// EnsurePartitions implements store.Housekeeping. There are none.
func (s *Store) EnsurePartitions(_ context.Context, ahead int) (int, error) { return ahead + 1, nil }

// Keys implements sqldb.Engine.
func (e engine) Keys(keys []store.Key, first int) (string, []any) {
	pairs := make([][2]string, len(keys))
	for i, key := range keys {
		pairs[i] = [2]string{key.ProjectID.String(), key.ID.String()}
	}
	text, _ := json.Marshal(pairs) // strings always marshal
	return fmt.Sprintf("(SELECT json_extract(k.value, '$[0]'), json_extract(k.value, '$[1]') FROM json_each($%d) k)", first), []any{string(text)}
}

// Attend implements openrun.Engine.
func (e engine) Attend(ctx context.Context, q sqldb.Queryer, runners []store.RunnerKey) error {
	for _, r := range runners {
		if _, err := q.ExecContext(ctx, `UPDATE runners SET seen_at = now_us() WHERE project_id = $1 AND environment_id = $2 AND id = $3`,
			r.Environment.ProjectID, r.Environment.ID, sqldb.Text(r.ID)); err != nil {
			return err
		}
	}
	return nil
}

// Among implements sqldb.Engine.
func (e engine) Among(column string) string {
	return "IN (SELECT value FROM json_each(" + column + "))"
}

// FirstElement implements sqldb.Engine.
func (e engine) FirstElement(column string) string { return "json_extract(" + column + ", '$[0]')" }
