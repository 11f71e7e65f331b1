// SPDX-License-Identifier: Apache-2.0

package postgres

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/agentplatform/agentplatform/store"
	"github.com/agentplatform/agentplatform/store/openrun"
	"github.com/agentplatform/agentplatform/store/sqldb"
	"github.com/agentplatform/agentplatform/store/trace"
)

// endStatement moves runs to history with all their follow-up writes. The rows of connector runs
// are locked first, in one order, and then closed or decremented in their locked state. So two
// transactions that end the last two runs of a connector run may commit in either order. The
// statement names no partition, because it only inserts into history.
var endStatement = `WITH given AS MATERIALIZED (
	SELECT * FROM ` + endingRows.fromClause(2, "g") + `
), gone AS (
	DELETE FROM open_runs r USING given g
	WHERE r.project_id = g.project_id AND r.id = g.id
		AND (g.token IS NULL OR r.token = g.token AND r.status = 'running') AND (g.only_if = '' OR r.status = g.only_if)
		AND ($1::boolean OR COALESCE(r.concurrency_key, '') = '')
		AND (g.first = 0 OR r.journal_length = g.first - 1 AND r.journal_size + g.size <= ` + strconv.Itoa(store.MaxJournal) + `)
	RETURNING r.project_id, r.id, r.environment_id, r.connector_id, r.connector_run_id, r.link_id, r.agent_name, r.input_id,
		r.deployment_id, r.attempt, r.runner_id, r.concurrency_key, r.queued_at, r.started_at, r.journal_size + g.size AS journal_size,
		COALESCE(g.token, 0) AS token, g.ended, g.error_code, g.error, g.output, g.output_blob, g.finish_reason, g.context, g.unpublished, g.bucket, g.texts, g.input_tokens,
		g.output_tokens, g.thinking_tokens, g.cached_input_tokens, g.total_tokens,
		` + openrun.ReportedVariant("r", "g.test_name") + ` AS test_name
), history AS (
	INSERT INTO ended_runs (project_id, id, environment_id, connector_id, connector_run_id, link_id, agent_name, input_id,
		status, deployment_id, token, attempt, runner_id, error_code, error, output, output_blob_id, finish_reason, context, unpublished, input_tokens,
		output_tokens, thinking_tokens, cached_input_tokens, total_tokens, test_name, queued_at, started_at, ended_at)
	SELECT project_id, id, environment_id, connector_id, connector_run_id, link_id, agent_name, input_id,
		ended, deployment_id, token, attempt, runner_id, error_code, error, output, output_blob, finish_reason, context, unpublished, input_tokens,
		output_tokens, thinking_tokens, cached_input_tokens, total_tokens, test_name, queued_at, started_at, now_us()
	FROM gone
), entries AS (
	INSERT INTO journal (project_id, run_id, sequence, token, kind, data, blob_id, unsafe, at)
	SELECT j.project_id, j.run_id, j.sequence, j.token, j.kind, j.data, j.blob_id, j.unsafe, now_us()
	FROM ` + entryRows.fromClause(2+len(endingRows), "j") + `
	WHERE (j.project_id, j.run_id) IN (SELECT project_id, id FROM gone)
), calls AS (` + insertCalls(2+len(endingRows)+len(entryRows), `(SELECT project_id, id FROM gone)`) + `
), counted AS (
	SELECT project_id, connector_run_id, count(*) AS runs, count(*) FILTER (WHERE ended = 'failed') AS failed,
		count(*) FILTER (WHERE ended = 'completed') AS completed
	FROM gone WHERE connector_run_id IS NOT NULL GROUP BY project_id, connector_run_id
), locked AS MATERIALIZED (
	SELECT c.project_id, c.id, c.runs_left, k.runs, k.failed, k.completed
	FROM open_connector_runs c JOIN counted k ON c.project_id = k.project_id AND c.id = k.connector_run_id
	ORDER BY c.project_id, c.id FOR UPDATE OF c
), closed AS (
	DELETE FROM open_connector_runs c USING locked l
	WHERE c.project_id = l.project_id AND c.id = l.id AND l.runs_left <= l.runs
	RETURNING c.project_id, c.id, c.environment_id, c.connector_id, c.trigger_type, c.content_type, c.run_ids, c.replay_of, c.started_at,
		c.input_size, c.runs_failed + l.failed AS failed, c.runs_completed + l.completed AS completed
), counted_down AS (
	UPDATE open_connector_runs c SET runs_left = c.runs_left - l.runs, runs_failed = c.runs_failed + l.failed,
		runs_completed = c.runs_completed + l.completed
	FROM locked l WHERE c.project_id = l.project_id AND c.id = l.id AND l.runs_left > l.runs
), closed_history AS (
	INSERT INTO ended_connector_runs (project_id, id, environment_id, connector_id, status, trigger_type, content_type,
		run_ids, error, replay_of, started_at, ended_at)
	SELECT project_id, id, environment_id, connector_id, ` + openrun.OutcomeOf("failed", "completed") + `,
		trigger_type, content_type, run_ids, '', replay_of, started_at, now_us()
	FROM closed
), posted AS (
	INSERT INTO outbox (project_id, consumer, ended_id, bytes, posted_at)
	SELECT project_id, 'storage', (array_agg(id))[1], sum(bytes), now_us() FROM (
		SELECT project_id, id, ` + strconv.Itoa(openrun.RunOverhead) + ` + journal_size + texts AS bytes FROM gone
		UNION ALL SELECT project_id, id, input_size FROM closed) s
	GROUP BY project_id, day_of(id)
), rolled_up AS (
	INSERT INTO outbox_rollups (project_id, ended_id, run_ids, connector_run_ids, posted_at)
	SELECT g.project_id, (array_agg(g.id))[1], array_agg(g.id), ARRAY(SELECT c.id FROM closed c WHERE c.project_id = g.project_id), now_us()
	FROM gone g GROUP BY g.project_id
), to_index AS (
	INSERT INTO outbox_words (project_id, ended_id, run_ids, posted_at)
	SELECT g.project_id, (array_agg(g.id))[1], array_agg(g.id), now_us() FROM gone g GROUP BY g.project_id
), to_export AS (
	` + trace.PostStatement + `
	SELECT g.project_id, g.id, now_us(), now_us() FROM gone g WHERE EXISTS (SELECT 1 FROM projects p
		WHERE p.project_id = g.project_id AND p.telemetry IS NOT NULL AND g.bucket < (p.telemetry::jsonb->>'sample_percent')::bigint
			AND (p.telemetry::jsonb->'environments' ? g.environment_id::text
				OR COALESCE(p.telemetry::jsonb->'environments', 'null') IN ('null', '[]')))
), sent_on AS (
	INSERT INTO outbox (project_id, consumer, ended_id, bytes, posted_at)
	SELECT g.project_id, 'deliveries', g.id, 0, now_us() FROM gone g WHERE EXISTS (SELECT 1 FROM links l
		WHERE l.project_id = g.project_id AND l.agent_name = g.agent_name AND l.outbound IS NOT NULL)
		OR EXISTS (SELECT 1 FROM sends s WHERE s.project_id = g.project_id AND s.run_id = g.id)
	RETURNING project_id, ended_id
)
SELECT project_id, id, environment_id, connector_run_id, ended, COALESCE(concurrency_key, '') <> '',
	((project_id, connector_run_id) IN (SELECT project_id, id FROM closed)) IS TRUE,
	(project_id, id) IN (SELECT project_id, ended_id FROM sent_on) FROM gone`

// insertCalls inserts the cost of model calls of these runs. The first array of callRows is $first.
func insertCalls(first int, runs string) string {
	return `
	INSERT INTO model_calls (project_id, run_id, sequence, model, input_tokens, output_tokens,
		thinking_tokens, cached_input_tokens, total_tokens, currency, cost_nanos, at)
	SELECT m.project_id, m.run_id, m.sequence, m.model, m.input_tokens, m.output_tokens,
		m.thinking_tokens, m.cached_input_tokens, m.total_tokens, m.currency, m.cost_nanos, now_us()
	FROM ` + callRows.fromClause(first, "m") + `
	WHERE (m.project_id, m.run_id) IN ` + runs
}

// End implements openrun.Engine.
func (e engine) End(ctx context.Context, q sqldb.Queryer, endings []openrun.Ending, keyed bool) (ended []openrun.EndedRun, err error) {
	var journal []entryRow
	for i := range endings {
		lease := store.Lease{Run: endings[i].Run}
		if token := endings[i].Token; token != nil {
			lease.Token = *token
		}
		journal = appendEntryRows(journal, lease, endings[i].Journal, endings[i].Large)
	}
	args := slices.Concat([]any{keyed}, endingRows.arguments(endings), entryRows.arguments(journal), callRows.arguments(callsOf(journal)))
	rows, err := q.QueryContext(ctx, endStatement, args...)
	if err != nil {
		return nil, err
	}
	defer func() { _ = rows.Close() }() // Err returns its error
	for rows.Next() {
		var (
			run    openrun.EndedRun
			of     *uuid.UUID
			closed bool
		)
		if err := rows.Scan(&run.Run.ProjectID, &run.Run.ID, &run.Environment.ID, &of, &run.Status, &run.Keyed, &closed, &run.Posted); err != nil {
			return nil, err
		}
		if closed {
			run.ConnectorRun = of
		}
		run.Environment.ProjectID = run.Run.ProjectID
		ended = append(ended, run)
	}
	return ended, rows.Err()
}

// endingRows are the columns of endings.
var endingRows = rowset[openrun.Ending]{
	uuidColumn("project_id", func(e *openrun.Ending) uuid.UUID { return e.Run.ProjectID }),
	uuidColumn("id", func(e *openrun.Ending) uuid.UUID { return e.Run.ID }),
	columnOf("token", func(e *openrun.Ending) *int64 { return e.Token }),
	columnOf("ended", func(e *openrun.Ending) string { return string(e.Status) }),
	columnOf("error_code", func(e *openrun.Ending) string { return string(e.Code) }),
	columnOf("error", func(e *openrun.Ending) string { return e.Error }),
	columnOf("output", func(e *openrun.Ending) string {
		if e.Large.Blob(openrun.OutputPart) != nil {
			return ""
		}
		return e.Output
	}),
	columnOf("input_tokens", func(e *openrun.Ending) int64 { return e.Usage.InputTokens }),
	columnOf("output_tokens", func(e *openrun.Ending) int64 { return e.Usage.OutputTokens }),
	columnOf("thinking_tokens", func(e *openrun.Ending) int64 { return e.Usage.ThinkingTokens }),
	columnOf("cached_input_tokens", func(e *openrun.Ending) int64 { return e.Usage.CachedInputTokens }),
	columnOf("total_tokens", func(e *openrun.Ending) int64 { return e.Usage.TotalTokens }),
	columnOf("first", func(e *openrun.Ending) int64 {
		if len(e.Journal) == 0 {
			return 0
		}
		return e.Journal[0].Sequence
	}),
	columnOf("size", func(e *openrun.Ending) int64 { return openrun.SizeOf(e.Journal) }),
	columnOf("only_if", func(e *openrun.Ending) string { return string(e.Only) }),
	columnOf("output_blob", func(e *openrun.Ending) pgtype.UUID { return nullableUUID(e.Large.Blob(openrun.OutputPart)) }),
	columnOf("texts", func(e *openrun.Ending) int64 { return e.TextBytes() }),
	columnOf("test_name", func(e *openrun.Ending) string { return e.TestName }),
	columnOf("context", func(e *openrun.Ending) string { return string(e.Context) }),
	columnOf("unpublished", func(e *openrun.Ending) bool { return e.Unpublished }),
	columnOf("bucket", func(e *openrun.Ending) int64 { return int64(store.TraceBucket(e.Run.ID)) }),
	columnOf("finish_reason", func(e *openrun.Ending) string { return e.FinishReason }),
}

// entryRow is a journal entry of a run under a claim. data or blob has its content.
type entryRow struct {
	*store.JournalEntry
	lease store.Lease
	data  *string
	blob  *uuid.UUID
}

// entryRows are the columns of journal entries.
var entryRows = rowset[entryRow]{
	uuidColumn("project_id", func(e *entryRow) uuid.UUID { return e.lease.Run.ProjectID }),
	uuidColumn("run_id", func(e *entryRow) uuid.UUID { return e.lease.Run.ID }),
	columnOf("sequence", func(e *entryRow) int64 { return e.Sequence }),
	columnOf("kind", func(e *entryRow) string { return string(e.Kind) }),
	columnOf("data", func(e *entryRow) *string { return e.data }),
	columnOf("unsafe", func(e *entryRow) bool { return e.Unsafe }),
	columnOf("token", func(e *entryRow) int64 { return e.lease.Token }),
	columnOf("blob_id", func(e *entryRow) pgtype.UUID { return nullableUUID(e.blob) }),
}

func appendEntryRows(rows []entryRow, lease store.Lease, entries []store.JournalEntry, large openrun.Large) []entryRow {
	for i := range entries {
		data, blob := large.Row(entries[i])
		rows = append(rows, entryRow{&entries[i], lease, data, blob})
	}
	return rows
}

// callRows are the columns of the costs of model calls, each of an entry with usage.
var callRows = rowset[entryRow]{
	uuidColumn("project_id", func(e *entryRow) uuid.UUID { return e.lease.Run.ProjectID }),
	uuidColumn("run_id", func(e *entryRow) uuid.UUID { return e.lease.Run.ID }),
	columnOf("sequence", func(e *entryRow) int64 { return e.Sequence }),
	columnOf("model", func(e *entryRow) string { return sqldb.Text(e.Usage.Model) }),
	columnOf("input_tokens", func(e *entryRow) int64 { return e.Usage.InputTokens }),
	columnOf("output_tokens", func(e *entryRow) int64 { return e.Usage.OutputTokens }),
	columnOf("thinking_tokens", func(e *entryRow) int64 { return e.Usage.ThinkingTokens }),
	columnOf("cached_input_tokens", func(e *entryRow) int64 { return e.Usage.CachedInputTokens }),
	columnOf("total_tokens", func(e *entryRow) int64 { return e.Usage.TotalTokens }),
	columnOf("currency", func(e *entryRow) string { return string(e.Usage.Cost.Currency) }),
	columnOf("cost_nanos", func(e *entryRow) int64 { return e.Usage.Cost.Nanos }),
}

// callsOf returns the entries of model calls.
func callsOf(entries []entryRow) (calls []entryRow) {
	for _, e := range entries {
		if e.Usage != nil {
			calls = append(calls, e)
		}
	}
	return calls
}

// appendRows are the columns of appends. first and last are their sequences, size is their bytes, and opened the change of open tools.
var appendRows = rowset[openrun.Append]{
	uuidColumn("project_id", func(a *openrun.Append) uuid.UUID { return a.Lease.Run.ProjectID }),
	uuidColumn("id", func(a *openrun.Append) uuid.UUID { return a.Lease.Run.ID }),
	columnOf("token", func(a *openrun.Append) int64 { return a.Lease.Token }),
	columnOf("first", func(a *openrun.Append) int64 { return a.Entries[0].Sequence }),
	columnOf("last", func(a *openrun.Append) int64 { return a.Entries[len(a.Entries)-1].Sequence }),
	columnOf("size", func(a *openrun.Append) int64 { return openrun.SizeOf(a.Entries) }),
	columnOf("opened", func(a *openrun.Append) int64 { return openrun.OpenedTools(a.Entries) }),
}

// appendStatement appends entries to the journals of runs under current claims, if they continue them.
var appendStatement = `WITH r AS (
	UPDATE open_runs u SET journal_length = a.last, journal_size = u.journal_size + a.size, open_tools = GREATEST(u.open_tools + a.opened, 0)
	FROM ` + appendRows.fromClause(1, "a") + `
	WHERE u.project_id = a.project_id AND u.id = a.id AND u.token = a.token AND u.status = 'running' AND u.journal_length = a.first - 1
		AND u.journal_size + a.size <= ` + strconv.Itoa(store.MaxJournal) + `
	RETURNING u.project_id, u.id
), entries AS (
	INSERT INTO journal (project_id, run_id, sequence, token, kind, data, blob_id, unsafe, at)
	SELECT j.project_id, j.run_id, j.sequence, j.token, j.kind, j.data, j.blob_id, j.unsafe, now_us()
	FROM ` + entryRows.fromClause(1+len(appendRows), "j") + ` WHERE (j.project_id, j.run_id) IN (SELECT project_id, id FROM r)
), calls AS (` + insertCalls(1+len(appendRows)+len(entryRows), `(SELECT project_id, id FROM r)`) + `
) SELECT project_id, id FROM r`

// Append implements openrun.Engine.
func (e engine) Append(ctx context.Context, q sqldb.Queryer, appends []openrun.Append) (appended []store.Key, err error) {
	var journal []entryRow
	for _, a := range appends {
		journal = appendEntryRows(journal, a.Lease, a.Entries, a.Large)
	}
	return readKeys(q.QueryContext(ctx, appendStatement, slices.Concat(appendRows.arguments(appends), entryRows.arguments(journal), callRows.arguments(callsOf(journal)))...))
}

// readKeys reads the keys that a statement returns.
func readKeys(rows *sql.Rows, err error) (keys []store.Key, _ error) {
	if err != nil {
		return nil, err
	}
	defer func() { _ = rows.Close() }() // Err returns its error
	for rows.Next() {
		var key store.Key
		if err := rows.Scan(&key.ProjectID, &key.ID); err != nil {
			return nil, err
		}
		keys = append(keys, key)
	}
	return keys, rows.Err()
}

// heldRows are the columns of claims.
var heldRows = rowset[store.Held]{
	uuidColumn("project_id", func(h *store.Held) uuid.UUID { return h.Run.ProjectID }),
	uuidColumn("id", func(h *store.Held) uuid.UUID { return h.Run.ID }),
	columnOf("token", func(h *store.Held) int64 { return h.Token }),
	columnOf("test_name", func(h *store.Held) string { return h.TestName }),
}

// renewStatement also revives swept claims without a later claim.
var renewStatement = `UPDATE open_runs u SET lease_until = now_us() + $3::bigint, status = 'running',
		losses = u.losses - CASE WHEN u.status = 'running' THEN 0 ELSE 1 END,
		test_name = ` + openrun.ReportedVariant("u", "l.test_name") + `
	FROM ` + heldRows.fromClause(4, "l") + `
	WHERE u.project_id = l.project_id AND u.id = l.id AND u.token = l.token AND u.project_id = $1 AND u.environment_id = $2
		AND (u.status = 'running' OR u.status = 'queued' AND u.runner_id <> '')
	RETURNING u.project_id, u.id, u.token`

// Renew implements openrun.Engine.
func (e engine) Renew(ctx context.Context, q sqldb.Queryer, environment store.Key, held []store.Held, lease time.Duration) (renewed []store.Lease, err error) {
	args := append([]any{environment.ProjectID, environment.ID, lease.Microseconds()}, heldRows.arguments(held)...)
	rows, err := q.QueryContext(ctx, renewStatement, args...)
	if err != nil {
		return nil, err
	}
	defer func() { _ = rows.Close() }() // Err returns its error
	for rows.Next() {
		var l store.Lease
		if err := rows.Scan(&l.Run.ProjectID, &l.Run.ID, &l.Token); err != nil {
			return nil, err
		}
		renewed = append(renewed, l)
	}
	return renewed, rows.Err()
}

// Part implements sqldb.Engine: a day in UTC.
func (e engine) Part(table string, id uuid.UUID) string {
	return partitionName(table, store.TimeOf(id))
}

// HasPart implements sqldb.Engine.
func (e engine) HasPart(ctx context.Context, q sqldb.Queryer, table string, id uuid.UUID) (there bool, err error) {
	err = q.QueryRowContext(ctx, `SELECT to_regclass($1) IS NOT NULL`, e.Part(table, id)).Scan(&there)
	return there, err
}

func partitionName(table string, day time.Time) string {
	return fmt.Sprintf("%s_%s", table, day.UTC().Format("20060102"))
}

// Among implements sqldb.Engine.
func (e engine) Among(column string) string { return "= ANY(" + column + ")" }

// FirstElement implements sqldb.Engine.
func (e engine) FirstElement(column string) string { return column + "[1]" }
