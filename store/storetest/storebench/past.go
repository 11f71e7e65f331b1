// SPDX-License-Identifier: Apache-2.0

package storebench

import (
	"database/sql"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/store"
)

// Past inserts ended runs of some times, as their ends do. Each has one model call, for 100
// billionths.
func (c *Scene) Past(tb testing.TB, db *sql.DB, at ...time.Time) {
	tb.Helper()
	exec := func(statement string, args ...any) {
		tb.Helper()
		_, err := db.ExecContext(tb.Context(), statement, args...)
		require.NoError(tb, err)
	}
	project := c.Project.String()
	for _, t := range at {
		us, id := t.UnixMicro(), store.Stamp(uuid.Must(uuid.NewV7()), t.UnixMicro(), 0).String()
		exec(`INSERT INTO ended_runs (project_id, id, environment_id, agent_name, input_id, status, token, attempt, runner_id, error_code, error, output,
				input_tokens, output_tokens, thinking_tokens, cached_input_tokens, total_tokens, queued_at, ended_at)
			VALUES ($1, $2, $3, 'first', $2, 'completed', 1, 1, '', '', '', '', 0, 0, 0, 0, 0, $4, $4)`, project, id, c.Environment.String(), us)
		exec(`INSERT INTO model_calls (project_id, run_id, sequence, model, input_tokens, output_tokens, thinking_tokens, cached_input_tokens, total_tokens,
				currency, cost_nanos, at) VALUES ($1, $2, 1, 'openai/one', 0, 0, 0, 0, 0, 'USD', 100, $3)`, project, id, us)
		exec(`INSERT INTO outbox_rollups (project_id, ended_id, posted_at, run_ids) VALUES ($1, $2, 1, $3)`, project, id, "{"+id+"}")
		exec(`INSERT INTO stored_days (project_id, day, bytes) VALUES ($1, $2, 0) ON CONFLICT (project_id, day) DO NOTHING`, project, us/(24*time.Hour).Microseconds())
	}
}

// RollUp rolls up all waiting runs.
func (c *Scene) RollUp(tb testing.TB) {
	tb.Helper()
	for n := 1; n > 0; {
		var err error
		n, err = c.Store.RollUp(tb.Context(), 100)
		require.NoError(tb, err)
	}
}

// Spent returns the cost of calls in the monthly rollups.
func (c *Scene) Spent(tb testing.TB, db *sql.DB) (nanos int64) {
	tb.Helper()
	require.NoError(tb, db.QueryRowContext(tb.Context(), `SELECT COALESCE(SUM(cost_nanos), 0) FROM usage_rollups WHERE grain = 'month' AND project_id = $1`, c.Project.String()).Scan(&nanos))
	return nanos
}
