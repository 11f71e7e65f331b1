// SPDX-License-Identifier: Apache-2.0

package postgres

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/agentplatform/agentplatform/store"
	"github.com/agentplatform/agentplatform/store/sqlcore"
)

// endStatement moves runs to history with all their follow-up writes. The rows of connector runs
// are locked first, in one order, and then closed or decremented in their locked state. So two
// transactions that end the last two runs of a connector run may commit in either order. The
// statement names no partition, because it only inserts into history.
var endStatement = `WITH given AS MATERIALIZED (
	SELECT * FROM unnest($1::uuid[], $2::uuid[], $3::bigint[], $4::text[], $5::text[], $6::text[], $7::text[],
		$8::bigint[], $9::bigint[], $10::bigint[], $11::bigint[], $12::bigint[], $13::bigint[], $14::bigint[], $31::text[],
		$33::uuid[], $34::bigint[], $36::text[], $39::text[], $40::boolean[], $41::bigint[], $42::text[])
		AS g (project_id, id, token, ended, error_code, error, output, input_tokens, output_tokens, thinking_tokens,
			cached_input_tokens, total_tokens, first, size, only_if, output_blob, texts, test_name, context, unpublished, bucket, finish_reason)
), gone AS (
	DELETE FROM open_runs r USING given g
	WHERE r.project_id = g.project_id AND r.id = g.id
		AND (g.token IS NULL OR r.token = g.token AND r.status = 'running') AND (g.only_if = '' OR r.status = g.only_if)
		AND ($32::boolean OR COALESCE(r.concurrency_key, '') = '')
		AND (g.first = 0 OR r.journal_length = g.first - 1 AND r.journal_size + g.size <= ` + strconv.Itoa(store.MaxJournal) + `)
	RETURNING r.project_id, r.id, r.environment_id, r.connector_id, r.connector_run_id, r.link_id, r.agent_name, r.input_id,
		r.deployment_id, r.attempt, r.runner_id, r.concurrency_key, r.queued_at, r.started_at, r.journal_size + g.size AS journal_size,
		COALESCE(g.token, 0) AS token, g.ended, g.error_code, g.error, g.output, g.output_blob, g.finish_reason, g.context, g.unpublished, g.bucket, g.texts, g.input_tokens,
		g.output_tokens, g.thinking_tokens, g.cached_input_tokens, g.total_tokens,
		` + sqlcore.ReportedVariant("r", "g.test_name") + ` AS test_name
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
	FROM unnest($15::uuid[], $16::uuid[], $17::bigint[], $18::text[], $19::text[], $20::boolean[], $21::bigint[], $35::uuid[])
		AS j (project_id, run_id, sequence, kind, data, unsafe, token, blob_id)
	WHERE (j.project_id, j.run_id) IN (SELECT project_id, id FROM gone)
), calls AS (` + callRows(22, 37, `(SELECT project_id, id FROM gone)`) + `
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
	SELECT project_id, id, environment_id, connector_id, ` + sqlcore.OutcomeOf("failed", "completed") + `,
		trigger_type, content_type, run_ids, '', replay_of, started_at, now_us()
	FROM closed
), posted AS (
	INSERT INTO outbox (project_id, consumer, ended_id, bytes, posted_at)
	SELECT project_id, 'storage', (array_agg(id))[1], sum(bytes), now_us() FROM (
		SELECT project_id, id, ` + strconv.Itoa(sqlcore.RunOverhead) + ` + journal_size + texts AS bytes FROM gone
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
	` + sqlcore.PostTraces + `
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

// callRows inserts the cost of model calls of these runs. Nine of its arrays begin at $n, two more
// at $price.
func callRows(n, price int, runs string) string {
	arg := func(i int, kind string) string { return "$" + strconv.Itoa(n+i) + "::" + kind + "[]" }
	return `
	INSERT INTO model_calls (project_id, run_id, sequence, model, input_tokens, output_tokens,
		thinking_tokens, cached_input_tokens, total_tokens, currency, cost_nanos, at)
	SELECT m.project_id, m.run_id, m.sequence, m.model, m.input_tokens, m.output_tokens,
		m.thinking_tokens, m.cached_input_tokens, m.total_tokens, m.currency, m.cost_nanos, now_us()
	FROM unnest(` + arg(0, "uuid") + `, ` + arg(1, "uuid") + `, ` + arg(2, "bigint") + `, ` + arg(3, "text") + `, ` + arg(4, "bigint") + `,
		` + arg(5, "bigint") + `, ` + arg(6, "bigint") + `, ` + arg(7, "bigint") + `, ` + arg(8, "bigint") + `, ` + arg(price-n, "text") + `, ` + arg(price-n+1, "bigint") + `)
		AS m (project_id, run_id, sequence, model, input_tokens, output_tokens, thinking_tokens, cached_input_tokens, total_tokens, currency, cost_nanos)
	WHERE (m.project_id, m.run_id) IN ` + runs
}

// End implements sqlcore.Engine.
func (e engine) End(ctx context.Context, q sqlcore.Queryer, endings []sqlcore.Ending, keyed bool) (ended []sqlcore.EndedRun, err error) {
	var c endColumns
	for _, ending := range endings {
		c.addEnding(ending)
	}
	rows, err := q.QueryContext(ctx, endStatement, c.columnArgs(keyed)...)
	if err != nil {
		return nil, err
	}
	defer func() { _ = rows.Close() }() // Err returns its error
	for rows.Next() {
		var (
			run    sqlcore.EndedRun
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

// endColumns are endings as the arrays of endStatement.
type endColumns struct {
	project, run                             []pgtype.UUID
	token                                    []*int64
	status, code, message, output            []string
	input, produced, thinking, cached, total []int64
	first, size                              []int64
	onlyIf, testName                         []string
	outputBlob                               []pgtype.UUID
	texts                                    []int64
	context                                  []string
	unpublished                              []bool
	bucket                                   []int64
	finish                                   []string
	journal                                  entryColumns
	models                                   callColumns
}

func (c *endColumns) addEnding(e sqlcore.Ending) {
	c.project, c.run, c.token = append(c.project, validUUID(e.Run.ProjectID)), append(c.run, validUUID(e.Run.ID)), append(c.token, e.Token)
	c.status, c.code = append(c.status, string(e.Status)), append(c.code, string(e.Code))
	output, blob := e.Output, e.Large.Blob(sqlcore.OutputPart)
	if blob != nil {
		output = ""
	}
	c.message, c.output, c.outputBlob = append(c.message, e.Error), append(c.output, output), append(c.outputBlob, nullableUUID(blob))
	c.texts = append(c.texts, e.TextBytes())
	c.context, c.unpublished = append(c.context, string(e.Context)), append(c.unpublished, e.Unpublished)
	c.bucket = append(c.bucket, int64(store.TraceBucket(e.Run.ID)))
	c.finish = append(c.finish, e.FinishReason)
	c.input, c.produced = append(c.input, e.Usage.InputTokens), append(c.produced, e.Usage.OutputTokens)
	c.thinking, c.cached = append(c.thinking, e.Usage.ThinkingTokens), append(c.cached, e.Usage.CachedInputTokens)
	c.total = append(c.total, e.Usage.TotalTokens)
	var first int64
	if len(e.Journal) > 0 {
		first = e.Journal[0].Sequence
	}
	c.first, c.size = append(c.first, first), append(c.size, sqlcore.SizeOf(e.Journal))
	c.onlyIf, c.testName = append(c.onlyIf, string(e.Only)), append(c.testName, e.TestName)
	var token int64
	if e.Token != nil {
		token = *e.Token
	}
	for _, entry := range e.Journal {
		c.journal.addEntry(e.Run, token, entry, e.Large)
		c.models.addCall(e.Run, entry)
	}
}

func (c *endColumns) columnArgs(keyed bool) []any {
	args := []any{
		c.project, c.run, c.token, c.status, c.code, c.message, c.output, c.input, c.produced, c.thinking, c.cached, c.total,
		c.first, c.size,
	}
	return append(append(append(args, c.journal.columnArgs()...), c.models.columnArgs()...), c.onlyIf, keyed, c.outputBlob, c.texts, c.journal.blob, c.testName, c.models.currency, c.models.nanos, c.context, c.unpublished, c.bucket, c.finish)
}

// entryColumns are journal entries as arrays.
type entryColumns struct {
	project, run []pgtype.UUID
	sequence     []int64
	kind         []string
	data         []*string
	unsafe       []bool
	token        []int64
	blob         []pgtype.UUID
}

func (c *entryColumns) addEntry(run store.Key, token int64, e store.JournalEntry, large sqlcore.Large) {
	data, blob := large.Row(e)
	c.project, c.run = append(c.project, validUUID(run.ProjectID)), append(c.run, validUUID(run.ID))
	c.sequence, c.kind = append(c.sequence, e.Sequence), append(c.kind, string(e.Kind))
	c.data, c.unsafe, c.token = append(c.data, data), append(c.unsafe, e.Unsafe), append(c.token, token)
	c.blob = append(c.blob, nullableUUID(blob))
}

// columnArgs returns the columns without the blobs, which are the last arguments of a statement.
func (c *entryColumns) columnArgs() []any {
	return []any{c.project, c.run, c.sequence, c.kind, c.data, c.unsafe, c.token}
}

// callColumns are the costs of model calls as arrays.
type callColumns struct {
	project, run                           []pgtype.UUID
	sequence                               []int64
	model                                  []string
	input, output, thinking, cached, total []int64
	currency                               []string
	nanos                                  []int64
}

func (c *callColumns) addCall(run store.Key, e store.JournalEntry) {
	u := e.Usage
	if u == nil {
		return
	}
	c.project, c.run, c.sequence = append(c.project, validUUID(run.ProjectID)), append(c.run, validUUID(run.ID)), append(c.sequence, e.Sequence)
	c.model = append(c.model, sqlcore.Text(u.Model))
	c.input, c.output = append(c.input, u.InputTokens), append(c.output, u.OutputTokens)
	c.thinking, c.cached, c.total = append(c.thinking, u.ThinkingTokens), append(c.cached, u.CachedInputTokens), append(c.total, u.TotalTokens)
	c.currency, c.nanos = append(c.currency, string(u.Cost.Currency)), append(c.nanos, u.Cost.Nanos)
}

// columnArgs returns the columns without the prices, which are the last arguments of a statement.
func (c *callColumns) columnArgs() []any {
	return []any{c.project, c.run, c.sequence, c.model, c.input, c.output, c.thinking, c.cached, c.total}
}

// appendStatement appends entries to the journal of a run under a current claim, if they continue
// it: $4 is the first sequence, $5 the last, $6 their bytes, $7 the change of open tools.
var appendStatement = `WITH r AS (
	UPDATE open_runs u SET journal_length = $5, journal_size = u.journal_size + $6, open_tools = GREATEST(u.open_tools + $7, 0)
	WHERE u.project_id = $1 AND u.id = $2 AND u.token = $3 AND u.status = 'running' AND u.journal_length = $4::bigint - 1
		AND u.journal_size + $6 <= ` + strconv.Itoa(store.MaxJournal) + `
	RETURNING u.project_id, u.id
), entries AS (
	INSERT INTO journal (project_id, run_id, sequence, token, kind, data, blob_id, unsafe, at)
	SELECT j.project_id, j.run_id, j.sequence, j.token, j.kind, j.data, j.blob_id, j.unsafe, now_us()
	FROM unnest($8::uuid[], $9::uuid[], $10::bigint[], $11::text[], $12::text[], $13::boolean[], $14::bigint[], $24::uuid[])
		AS j (project_id, run_id, sequence, kind, data, unsafe, token, blob_id) WHERE (j.project_id, j.run_id) IN (SELECT project_id, id FROM r)
), calls AS (` + callRows(15, 25, `(SELECT project_id, id FROM r)`) + `
) SELECT count(*) FROM r`

// Append implements sqlcore.Engine.
func (e engine) Append(ctx context.Context, q sqlcore.Queryer, l store.Lease, entries []store.JournalEntry, large sqlcore.Large) (bool, error) {
	var (
		journal entryColumns
		models  callColumns
		n       int
	)
	for _, entry := range entries {
		journal.addEntry(l.Run, l.Token, entry, large)
		models.addCall(l.Run, entry)
	}
	args := []any{
		l.Run.ProjectID, l.Run.ID, l.Token, entries[0].Sequence, entries[len(entries)-1].Sequence,
		sqlcore.SizeOf(entries), sqlcore.OpenedTools(entries),
	}
	args = append(append(append(args, journal.columnArgs()...), models.columnArgs()...), journal.blob, models.currency, models.nanos)
	err := q.QueryRowContext(ctx, appendStatement, args...).Scan(&n)
	return n == 1, err
}

// renewStatement also revives swept claims without a later claim.
var renewStatement = `UPDATE open_runs u SET lease_until = now_us() + $4::bigint, status = 'running',
		losses = u.losses - CASE WHEN u.status = 'running' THEN 0 ELSE 1 END,
		test_name = ` + sqlcore.ReportedVariant("u", "l.test_name") + `
	FROM unnest($1::uuid[], $2::uuid[], $3::bigint[], $7::text[]) AS l (project_id, id, token, test_name)
	WHERE u.project_id = l.project_id AND u.id = l.id AND u.token = l.token AND u.project_id = $5 AND u.environment_id = $6
		AND (u.status = 'running' OR u.status = 'queued' AND u.runner_id <> '')
	RETURNING u.project_id, u.id, u.token`

// Renew implements sqlcore.Engine.
func (e engine) Renew(ctx context.Context, q sqlcore.Queryer, environment store.Key, held []store.Held, lease time.Duration) (renewed []store.Lease, err error) {
	var (
		project, run []pgtype.UUID
		token        []int64
		test         []string
	)
	for _, h := range held {
		project, run = append(project, validUUID(h.Run.ProjectID)), append(run, validUUID(h.Run.ID))
		token, test = append(token, h.Token), append(test, h.TestName)
	}
	rows, err := q.QueryContext(ctx, renewStatement, project, run, token, lease.Microseconds(), environment.ProjectID, environment.ID, test)
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

// Part implements sqlcore.Engine: a day in UTC.
func (e engine) Part(table string, id uuid.UUID) string {
	return partitionName(table, store.TimeOf(id))
}

// HasPart implements sqlcore.Engine.
func (e engine) HasPart(ctx context.Context, q sqlcore.Queryer, table string, id uuid.UUID) (there bool, err error) {
	err = q.QueryRowContext(ctx, `SELECT to_regclass($1) IS NOT NULL`, e.Part(table, id)).Scan(&there)
	return there, err
}

func partitionName(table string, day time.Time) string {
	return fmt.Sprintf("%s_%s", table, day.UTC().Format("20060102"))
}

// Among implements sqlcore.Engine.
func (e engine) Among(column string) string { return "= ANY(" + column + ")" }

// First implements sqlcore.Engine.
func (e engine) First(column string) string { return column + "[1]" }
