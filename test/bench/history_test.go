// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// These expressions generate the IDs of events and of their runs, spread over the day until now, so that new rows land in the
// densest part of the index.
const (
	postgresIDs = `CREATE TABLE stored AS
	SELECT stamp(gen_random_uuid(), t.us, 0) AS event, stamp(gen_random_uuid(), t.us, 1) AS run, t.us FROM (
		SELECT d.us + (now_us() - d.us) / {n} * g.n AS us
		FROM (SELECT now_us() / 86400000000 * 86400000000 AS us) d, generate_series(1, {n}) AS g (n)) t`
	sqliteIDs = `CREATE TABLE stored AS
	WITH RECURSIVE g (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM g WHERE n < {n}),
	d (now, us) AS (SELECT CAST(unixepoch('subsec') * 1000000 AS INTEGER), unixepoch('now', 'start of day') * 1000000),
	t (us, ms) AS (SELECT us + (now - us) / {n} * n, printf('%012x', (us + (now - us) / {n} * n) / 1000) FROM g, d)
	SELECT substr(ms, 1, 8) || '-' || substr(ms, 9) || '-7000-8' || substr(lower(hex(randomblob(2))), 2) || '-' || lower(hex(randomblob(6))) AS event,
		substr(ms, 1, 8) || '-' || substr(ms, 9) || '-7001-8' || substr(lower(hex(randomblob(2))), 2) || '-' || lower(hex(randomblob(6))) AS run, us FROM t`
)

// history are the rows that each of them leaves, as a run of the benchmark does.
var history = []string{
	`INSERT INTO inputs (project_id, id, content_type, data) SELECT '{project}', event, 'application/json', {data} FROM stored`,
	`INSERT INTO ended_connector_runs (project_id, id, environment_id, connector_id, status, trigger_type, content_type, run_ids, error, started_at, ended_at)
		SELECT '{project}', event, '{environment}', '{connector}', 'completed', 'webhook', 'application/json', {list}, '', us, us + 50000 FROM stored`,
	`INSERT INTO ended_runs (project_id, id, environment_id, connector_id, connector_run_id, link_id, agent_name, input_id, status, deployment_id,
			token, attempt, runner_id, error_code, error, output, input_tokens, output_tokens, thinking_tokens, cached_input_tokens, total_tokens,
			queued_at, started_at, ended_at)
		SELECT '{project}', run, '{environment}', '{connector}', event, '{link}', '{agent}', event, 'completed', '{deployment}',
			1, 1, 'bench', '', '', '{output}', 100, 50, 0, 0, 150, us, us + 10000, us + 50000 FROM stored`,
	`INSERT INTO journal (project_id, run_id, sequence, token, kind, data, unsafe, at)
		SELECT '{project}', run, 1, 1, 'model_answer', '{answer}', FALSE, us + 40000 FROM stored`,
	`INSERT INTO model_calls (project_id, run_id, sequence, model, input_tokens, output_tokens, thinking_tokens, cached_input_tokens, total_tokens, at)
		SELECT '{project}', run, 1, 'scripted/{agent}', 100, 50, 0, 0, 150, us + 40000 FROM stored`,
	`DROP TABLE stored`,
}

// remember stores n runs that have ended.
func (d *database) remember(tb testing.TB, s scene, n int) {
	tb.Helper()
	if n == 0 {
		return
	}
	ids, data, list, after := postgresIDs, "convert_to('{input}', 'UTF8')", "ARRAY[run]", []string{"VACUUM ANALYZE", "CHECKPOINT"}
	if d.name == "sqlite" {
		ids, data, list, after = sqliteIDs, "CAST('{input}' AS BLOB)", "json_array(run)", []string{"PRAGMA wal_checkpoint(TRUNCATE)"}
	}
	text := strings.NewReplacer("{n}", fmt.Sprint(n), "{data}", strings.ReplaceAll(data, "{input}", string(input)), "{list}", list, "{output}", output, "{answer}", answer,
		"{project}", s.project.String(), "{environment}", s.environment.String(), "{connector}", s.connector.String(), "{link}", s.link.String(),
		"{deployment}", s.deployment.String(), "{agent}", agentName)
	for _, statement := range append(append([]string{ids}, history...), after...) {
		require.NoError(tb, d.exec(tb.Context(), text.Replace(statement)))
	}
	stored, err := d.count(tb.Context(), `SELECT count(*) FROM ended_runs`)
	require.NoError(tb, err)
	require.EqualValues(tb, n, stored)
}
