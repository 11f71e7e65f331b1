// SPDX-License-Identifier: Apache-2.0

package sqlite

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/google/uuid"

	"github.com/agentplatform/agentplatform/store"
	"github.com/agentplatform/agentplatform/store/sqlcore"
)

// Claim implements store.Dispatch. A poll that finds nothing writes nothing.
func (s *Store) Claim(ctx context.Context, c store.Claim) ([]store.Claimed, error) {
	c = c.Bounded()
	digests, err := json.Marshal(c.Digests)
	if err != nil {
		return nil, fmt.Errorf("marshalling digests: %w", err)
	}
	for {
		var seen, queued bool
		err := s.reader.QueryRowContext(ctx, `SELECT
				EXISTS (SELECT 1 FROM runners WHERE project_id = $1 AND environment_id = $2 AND id = $3 AND digests = $4
					AND seen_at > now_us() - $5),
				EXISTS (SELECT 1 FROM agent_runs r
					JOIN environments e ON e.project_id = r.project_id AND e.id = r.environment_id
					WHERE r.project_id = $1 AND r.environment_id = $2 AND r.status = 'queued' AND e.live_deployment_id IS NOT NULL)`,
			c.Environment.ProjectID, c.Environment.ID, c.RunnerID, string(digests), sqlcore.RunnerSeenEvery.Microseconds()).Scan(&seen, &queued)
		if err != nil {
			return nil, fmt.Errorf("looking for runs of environment %s: %w", c.Environment, err)
		}
		queued = queued && c.Limit > 0
		if seen && !queued {
			return nil, nil
		}
		claimed, failed, err := s.claim(ctx, c, string(digests), !seen, queued)
		if err != nil {
			return nil, fmt.Errorf("claiming runs of environment %s: %w", c.Environment, err)
		}
		// With the queue's head full of runs that cannot be, look at the rest.
		if len(claimed) > 0 || failed == 0 {
			return claimed, s.AddJournals(ctx, claimed)
		}
	}
}

func (s *Store) claim(ctx context.Context, c store.Claim, digests string, record, take bool) (claimed []store.Claimed, failed int, err error) {
	err = s.Write(ctx, func(ctx context.Context, tx *sqlcore.Tx) error {
		claimed, failed = nil, 0
		if record {
			if _, err := tx.ExecContext(ctx, `INSERT INTO runners (project_id, environment_id, id, seen_at, digests)
				VALUES ($1, $2, $3, now_us(), $4) ON CONFLICT (project_id, environment_id, id)
				DO UPDATE SET seen_at = excluded.seen_at, digests = excluded.digests`,
				c.Environment.ProjectID, c.Environment.ID, c.RunnerID, digests); err != nil {
				return fmt.Errorf("recording the runner: %w", err)
			}
		}
		if !take {
			return nil
		}
		moved, err := moveRuns(ctx, tx, c)
		if err != nil || len(moved) == 0 {
			return err
		}
		claimed, err = readClaimed(ctx, tx, c.Environment.ProjectID, moved)
		if err != nil {
			return err
		}
		claimed, failed, err = sqlcore.WithoutFailed(ctx, tx, claimed)
		return err
	})
	return claimed, failed, err
}

// moveRuns starts the oldest queued runs, and fails those of which the
// deployment has no agent.
func moveRuns(ctx context.Context, tx *sqlcore.Tx, c store.Claim) (moved []uuid.UUID, err error) {
	rows, err := tx.QueryContext(ctx, `UPDATE agent_runs SET
			fencing_token = fencing_token + 1, runner_id = $5, started_at = COALESCE(started_at, now_us()),
			deployment_id = p.deployment_id,
			status = CASE WHEN p.known THEN 'running' ELSE 'failed' END,
			lease_until = CASE WHEN p.known THEN now_us() + $4 END,
			ended_at = CASE WHEN p.known THEN NULL ELSE now_us() END,
			error_code = CASE WHEN p.known THEN '' ELSE '`+string(store.RunErrorAgentNotFound)+`' END,
			error = CASE WHEN p.known THEN '' ELSE `+sqlcore.AgentNotFound+` END
		FROM (
			SELECT q.*, EXISTS (SELECT 1 FROM deployment_agents a
				WHERE a.project_id = $1 AND a.deployment_id = q.deployment_id AND a.name = q.agent_name) AS known
			FROM (SELECT r.id, r.agent_name, COALESCE(r.deployment_id, e.live_deployment_id) AS deployment_id
				FROM agent_runs r JOIN environments e ON e.project_id = r.project_id AND e.id = r.environment_id
				WHERE r.project_id = $1 AND r.environment_id = $2 AND r.status = 'queued' AND e.live_deployment_id IS NOT NULL
				ORDER BY r.id LIMIT $3) q
		) p WHERE agent_runs.project_id = $1 AND agent_runs.id = p.id RETURNING agent_runs.id`,
		c.Environment.ProjectID, c.Environment.ID, c.Limit, c.Lease.Microseconds(), sqlcore.Text(c.RunnerID))
	if err != nil {
		return nil, fmt.Errorf("moving runs: %w", err)
	}
	defer func() { _ = rows.Close() }() // its error is that of Err
	for rows.Next() {
		var id uuid.UUID
		if err := rows.Scan(&id); err != nil {
			return nil, fmt.Errorf("moving runs: %w", err)
		}
		moved = append(moved, id)
	}
	return moved, rows.Err()
}

func readClaimed(ctx context.Context, tx *sqlcore.Tx, project uuid.UUID, ids []uuid.UUID) ([]store.Claimed, error) {
	which, err := json.Marshal(ids)
	if err != nil {
		return nil, fmt.Errorf("marshalling ids: %w", err)
	}
	rows, err := tx.QueryContext(ctx, `SELECT `+sqlcore.ClaimedColumns+`
		FROM agent_runs r LEFT JOIN connector_runs c ON c.project_id = r.project_id AND c.id = r.connector_run_id
		LEFT JOIN deployments d ON d.project_id = r.project_id AND d.id = r.deployment_id
		WHERE r.project_id = $1 AND r.id IN (SELECT value FROM json_each($2)) ORDER BY r.id`, project, string(which))
	if err != nil {
		return nil, fmt.Errorf("reading claimed runs: %w", err)
	}
	return sqlcore.ScanClaimed(rows)
}

// Complete implements store.Dispatch.
func (s *Store) Complete(ctx context.Context, c store.Completion) error {
	c = sqlcore.Bounded(c)
	err := s.Write(ctx, func(ctx context.Context, tx *sqlcore.Tx) error {
		if !c.Status.Terminal() {
			return store.ErrConflict
		}
		var (
			connectorRun *uuid.UUID
			length       int64
		)
		err := tx.QueryRowContext(ctx, `UPDATE agent_runs SET status = $4, error_code = $5, error = $6, output = $7,
				input_tokens = $8, output_tokens = $9, thinking_tokens = $10, cached_input_tokens = $11, total_tokens = $12,
				completion_token = $3, lease_until = NULL, ended_at = now_us(), open_tools = 0
			WHERE project_id = $1 AND id = $2 AND fencing_token = $3 AND status = 'running'
			RETURNING connector_run_id, journal_length`,
			c.Run.ProjectID, c.Run.ID, c.Token, string(c.Status), string(c.ErrorCode), sqlcore.Text(c.Error), sqlcore.Text(c.Output),
			c.Usage.InputTokens, c.Usage.OutputTokens, c.Usage.ThinkingTokens, c.Usage.CachedInputTokens,
			c.Usage.TotalTokens).Scan(&connectorRun, &length)
		switch {
		case errors.Is(err, sql.ErrNoRows):
			return sqlcore.Ended(ctx, tx, c.Lease)
		case err != nil:
			return err
		}
		if err := sqlcore.WriteJournal(ctx, tx, c.Lease, length, c.Journal); err != nil || connectorRun == nil {
			return err
		}
		return endConnectorRun(ctx, tx, store.Key{ProjectID: c.Run.ProjectID, ID: *connectorRun}, c.Status)
	})
	if err != nil {
		return fmt.Errorf("completing run %s: %w", c.Run, err)
	}
	return nil
}

func endConnectorRun(ctx context.Context, tx *sqlcore.Tx, key store.Key, status store.RunStatus) error {
	failed := 0
	if status != store.RunCompleted {
		failed = 1
	}
	var open int
	err := tx.QueryRowContext(ctx, `UPDATE connector_runs SET open_runs = open_runs - 1, failed_runs = failed_runs + $3,
			status = CASE WHEN open_runs > 1 THEN status WHEN failed_runs + $3 > 0 THEN 'failed' ELSE 'completed' END,
			ended_at = CASE WHEN open_runs > 1 THEN ended_at ELSE now_us() END
		WHERE project_id = $1 AND id = $2 RETURNING open_runs`, key.ProjectID, key.ID, failed).Scan(&open)
	if err != nil {
		return fmt.Errorf("ending connector run %s: %w", key, err)
	}
	if open == 0 {
		tx.Hint(store.TopicDone, key)
	}
	return nil
}
