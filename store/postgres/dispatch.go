// SPDX-License-Identifier: Apache-2.0

package postgres

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/agentplatform/agentplatform/store"
	"github.com/agentplatform/agentplatform/store/sqlcore"
)

// claimStatement records the runner if that is due, starts the oldest queued
// runs, fails those of which the deployment has no agent, and reads what a
// runner needs, all at once. A poll that finds nothing writes nothing.
//
// The rows of moved are read through it: the statement's own snapshot does not
// show the change. That picked has locked them says that they are still queued;
// to ask again would tempt the planner to walk the index of all that is queued.
const claimStatement = `WITH seen AS (
	INSERT INTO runners (project_id, environment_id, id, seen_at, digests)
	SELECT $1::uuid, $2::uuid, $3::text, now_us(), $4::text WHERE NOT EXISTS (SELECT 1 FROM runners w
		WHERE w.project_id = $1::uuid AND w.environment_id = $2::uuid AND w.id = $3::text AND w.digests = $4::text
			AND w.seen_at > now_us() - $5::bigint)
	ON CONFLICT (project_id, environment_id, id) DO UPDATE SET seen_at = excluded.seen_at, digests = excluded.digests
), picked AS MATERIALIZED (
	SELECT q.id, q.agent_name, COALESCE(q.deployment_id, e.live_deployment_id) AS deployment_id
	FROM agent_runs q JOIN environments e ON e.project_id = q.project_id AND e.id = q.environment_id
	WHERE q.project_id = $1::uuid AND q.environment_id = $2::uuid AND q.status = 'queued'
		AND e.live_deployment_id IS NOT NULL
	ORDER BY q.id LIMIT $6 FOR UPDATE OF q SKIP LOCKED
), p AS MATERIALIZED (
	SELECT picked.*, EXISTS (SELECT 1 FROM deployment_agents a WHERE a.project_id = $1::uuid
		AND a.deployment_id = picked.deployment_id AND a.name = picked.agent_name) AS known FROM picked
), r AS (
	UPDATE agent_runs u SET
		fencing_token = u.fencing_token + 1, runner_id = $3::text, started_at = COALESCE(u.started_at, now_us()),
		deployment_id = p.deployment_id,
		status = CASE WHEN p.known THEN 'running' ELSE 'failed' END,
		lease_until = CASE WHEN p.known THEN now_us() + $7::bigint END,
		ended_at = CASE WHEN p.known THEN NULL ELSE now_us() END,
		error_code = CASE WHEN p.known THEN '' ELSE '` + string(store.RunErrorAgentNotFound) + `' END,
		error = CASE WHEN p.known THEN '' ELSE ` + sqlcore.AgentNotFound + ` END
	FROM p WHERE u.project_id = $1::uuid AND u.id = p.id RETURNING u.*
), lost AS (
	SELECT connector_run_id, count(*) AS runs FROM r WHERE status = 'failed' GROUP BY connector_run_id
), ended AS (
	UPDATE connector_runs c SET open_runs = c.open_runs - l.runs, failed_runs = c.failed_runs + l.runs,
		status = CASE WHEN c.open_runs > l.runs THEN c.status ELSE 'failed' END,
		ended_at = CASE WHEN c.open_runs > l.runs THEN c.ended_at ELSE now_us() END
	FROM lost l WHERE c.project_id = $1::uuid AND c.id = l.connector_run_id
) SELECT ` + sqlcore.ClaimedColumns + ` FROM r
	LEFT JOIN connector_runs c ON c.project_id = r.project_id AND c.id = r.connector_run_id
	LEFT JOIN deployments d ON d.project_id = r.project_id AND d.id = r.deployment_id
ORDER BY r.id`

// Claim implements store.Dispatch.
func (s *Store) Claim(ctx context.Context, c store.Claim) ([]store.Claimed, error) {
	c = c.Bounded()
	digests, err := json.Marshal(c.Digests)
	if err != nil {
		return nil, fmt.Errorf("marshalling digests: %w", err)
	}
	for {
		var moved []store.Claimed
		err := again(func() error {
			rows, err := s.db.QueryContext(ctx, claimStatement, c.Environment.ProjectID, c.Environment.ID,
				sqlcore.Text(c.RunnerID), string(digests), sqlcore.RunnerSeenEvery.Microseconds(), c.Limit, c.Lease.Microseconds())
			if err != nil {
				return err
			}
			moved, err = sqlcore.ScanClaimed(rows)
			return err
		})
		if err != nil {
			return nil, fmt.Errorf("claiming runs of environment %s: %w", c.Environment, err)
		}
		claimed := s.withoutFailed(moved)
		// With the queue's head full of runs that cannot be, look at the rest.
		if len(claimed) > 0 || len(moved) == 0 {
			return claimed, s.AddJournals(ctx, claimed)
		}
	}
}

// withoutFailed takes out the runs that the claim failed.
func (s *Store) withoutFailed(moved []store.Claimed) (running []store.Claimed) {
	var hints []store.Hint
	for _, c := range moved {
		if c.Run.Status == store.RunRunning {
			running = append(running, c)
		} else if c.Run.ConnectorRunID != nil {
			hints = append(hints, store.Hint{
				Topic: store.TopicDone, Key: store.Key{ProjectID: c.Run.ProjectID, ID: *c.Run.ConnectorRunID},
			})
		}
	}
	if len(hints) > 0 {
		s.publish(hints)
	}
	return running
}

// completeStatement ends a run, its journal, and with the last run the
// connector run. It changes nothing unless the claim is current and the journal
// continues without a gap: $13 and $14 are its first and last new sequence, 0
// without entries.
const completeStatement = `WITH run AS (
	UPDATE agent_runs u SET status = $3::text, error_code = $4, error = $5, output = $6, input_tokens = $7,
		output_tokens = $8, thinking_tokens = $9, cached_input_tokens = $10, total_tokens = $11,
		completion_token = $2::bigint, lease_until = NULL, ended_at = now_us(), open_tools = 0,
		journal_length = GREATEST(u.journal_length, $14::bigint)
	WHERE u.project_id = $19::uuid AND u.id = $1::uuid AND u.fencing_token = $2::bigint AND u.status = 'running'
		AND ($13::bigint = 0 OR u.journal_length = $13::bigint - 1
			OR u.journal_length >= $13::bigint AND NOT EXISTS (SELECT 1 FROM journal j
				WHERE j.project_id = $19::uuid AND j.run_id = $1::uuid AND j.sequence BETWEEN $13::bigint AND $14::bigint AND j.token <> $2::bigint))
	RETURNING u.id, u.connector_run_id
), entries AS (
	INSERT INTO journal (project_id, run_id, sequence, token, kind, data, unsafe)
	SELECT $19::uuid, run.id, e.sequence, $2::bigint, e.kind, e.data, e.unsafe
	FROM run, unnest($15::bigint[], $16::text[], $17::text[], $18::boolean[]) AS e (sequence, kind, data, unsafe)
	ON CONFLICT (project_id, run_id, sequence) DO NOTHING
), ended AS (
	UPDATE connector_runs c SET open_runs = c.open_runs - 1, failed_runs = c.failed_runs + $12::bigint,
		status = CASE WHEN c.open_runs > 1 THEN c.status WHEN c.failed_runs + $12::bigint > 0 THEN 'failed' ELSE 'completed' END,
		ended_at = CASE WHEN c.open_runs > 1 THEN c.ended_at ELSE now_us() END
	FROM run WHERE c.project_id = $19::uuid AND c.id = run.connector_run_id RETURNING c.id, c.open_runs
) SELECT ended.id, COALESCE(ended.open_runs, 0) FROM run LEFT JOIN ended ON TRUE`

// Complete implements store.Dispatch.
func (s *Store) Complete(ctx context.Context, c store.Completion) error {
	if !c.Status.Terminal() {
		return fmt.Errorf("completing run %s as %s: %w", c.Run, c.Status, store.ErrConflict)
	}
	c = sqlcore.Bounded(c)
	journal, err := columnsOf(c.Journal)
	if err == nil {
		err = again(func() error { return s.complete(ctx, c, journal) })
	}
	if err != nil {
		return fmt.Errorf("completing run %s: %w", c.Run, err)
	}
	return nil
}

func (s *Store) complete(ctx context.Context, c store.Completion, j journalColumns) error {
	failed := 0
	if c.Status != store.RunCompleted {
		failed = 1
	}
	var (
		connectorRun *uuid.UUID
		open         int64
	)
	err := s.pool.QueryRow(ctx, completeStatement, c.Run.ID, c.Token, string(c.Status), string(c.ErrorCode),
		sqlcore.Text(c.Error), sqlcore.Text(c.Output), c.Usage.InputTokens, c.Usage.OutputTokens,
		c.Usage.ThinkingTokens, c.Usage.CachedInputTokens, c.Usage.TotalTokens, failed,
		j.first, j.last, j.sequence, j.kind, j.data, j.unsafe, c.Run.ProjectID).Scan(&connectorRun, &open)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return s.refused(ctx, c.Lease)
	case err != nil:
		return err
	}
	if connectorRun != nil && open == 0 {
		s.publish([]store.Hint{{Topic: store.TopicDone, Key: store.Key{ProjectID: c.Run.ProjectID, ID: *connectorRun}}})
	}
	return nil
}

// refused is why a completion changed nothing; nil when it is a repetition.
func (s *Store) refused(ctx context.Context, l store.Lease) error {
	var current bool
	err := s.pool.QueryRow(ctx, `SELECT EXISTS (SELECT 1 FROM agent_runs
		WHERE project_id = $1 AND id = $2 AND fencing_token = $3 AND status = 'running')`, l.Run.ProjectID, l.Run.ID, l.Token).Scan(&current)
	switch {
	case err != nil:
		return fmt.Errorf("reading the claim: %w", err)
	case current:
		return fmt.Errorf("the journal does not continue: %w", store.ErrConflict)
	}
	return sqlcore.Ended(ctx, s.db, l)
}

// journalColumns are entries as the arrays of completeStatement; first and last are
// 0 without entries.
type journalColumns struct {
	first, last int64
	sequence    []int64
	kind        []string
	data        []*string
	unsafe      []bool
}

func columnsOf(entries []store.JournalEntry) (c journalColumns, err error) {
	c = journalColumns{sequence: []int64{}, kind: []string{}, data: []*string{}, unsafe: []bool{}}
	if len(entries) == 0 {
		return c, nil
	}
	c.first, c.last = entries[0].Sequence, entries[len(entries)-1].Sequence
	for i, e := range entries {
		if e.Sequence != c.first+int64(i) {
			return c, fmt.Errorf("journal entry %d is out of order: %w", e.Sequence, store.ErrConflict)
		}
		var data *string
		if len(e.Data) > 0 {
			text := sqlcore.Text(string(e.Data))
			data = &text
		}
		c.sequence, c.kind = append(c.sequence, e.Sequence), append(c.kind, string(e.Kind))
		c.data, c.unsafe = append(c.data, data), append(c.unsafe, e.Unsafe)
	}
	return c, nil
}
