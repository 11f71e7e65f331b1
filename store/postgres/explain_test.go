// SPDX-License-Identifier: Apache-2.0

package postgres_test

import (
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/store/sqldb"
	"github.com/agentplatform/agentplatform/store/storetest/storebench"
)

// plan is the executed plan of a statement.
type plan struct {
	Statement string `json:"Query Text"`
	Plan      node   `json:"Plan"`
}

// node is a step of a plan. Its counts include the steps below it.
type node struct {
	Type     string `json:"Node Type"`
	Relation string `json:"Relation Name"`
	Index    string `json:"Index Name"`
	Filter   string `json:"Filter"`
	Hit      int64  `json:"Shared Hit Blocks"`
	Read     int64  `json:"Shared Read Blocks"`
	Written  int64  `json:"Shared Written Blocks"`
	Plans    []node `json:"Plans"`
}

func (n node) walk(visit func(n node)) {
	visit(n)
	for _, below := range n.Plans {
		below.walk(visit)
	}
}

// blocks returns the pages that the step read.
func (n node) blocks() int64 { return n.Hit + n.Read }

// growth returns the pages that the step may have read only to add pages to a table: while other connections wait for that, PostgreSQL
// adds 20 pages for each of them and records each in the map of free space.
func (n node) growth() int64 { return 3 * n.Written }

// text returns the plan in readable form.
func (n node) text(depth int) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s%s %s %s %s (%d blocks)\n", strings.Repeat("  ", depth), n.Type, n.Relation, n.Index, n.Filter, n.blocks())
	for _, below := range n.Plans {
		b.WriteString(below.text(depth + 1))
	}
	return b.String()
}

// plans are the plans of all statements on the connections of a store, as reported by auto_explain
// of PostgreSQL's contrib.
type plans struct {
	mutex sync.Mutex
	all   []plan
	err   error
}

// forgetPlans drops the plans so far and returns them.
func (p *plans) forgetPlans() []plan {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	forgotten := p.all
	p.all = nil
	return forgotten
}

// blocks returns the pages that all of them read.
func (p *plans) blocks() (n int64) {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	for _, one := range p.all {
		n += one.Plan.blocks()
	}
	return n
}

// recordPlans makes connections report their plans. mode is their plan_cache_mode.
func (p *plans) recordPlans(mode string) func(config *pgx.ConnConfig) {
	return func(config *pgx.ConnConfig) {
		for name, value := range map[string]string{
			"session_preload_libraries": "auto_explain", "auto_explain.log_min_duration": "0", "auto_explain.log_format": "json",
			"auto_explain.log_analyze": "on", "auto_explain.log_buffers": "on", "auto_explain.log_timing": "off",
			"client_min_messages": "log", "plan_cache_mode": mode,
		} {
			config.RuntimeParams[name] = value
		}
		config.OnNotice = func(_ *pgconn.PgConn, notice *pgconn.Notice) {
			_, explained, ok := strings.Cut(notice.Message, "plan:\n")
			if !ok {
				return
			}
			var one plan
			err := json.Unmarshal([]byte(explained), &one)
			p.mutex.Lock()
			defer p.mutex.Unlock()
			p.all, p.err = append(p.all, one), errors.Join(p.err, err)
		}
	}
}

// endedRows and queuedRows fill the tables with the rows of so many connector runs with one run
// each: $1 to $5 are project, environment, connector, deployment and time, $6 is the number. IDs
// are derived from the row number, so that tables agree.
const (
	seedIDs = ` FROM (SELECT stamp(md5('connector' || n)::uuid, $5, 2 * n) AS connector_run, stamp(md5('run' || n)::uuid, $5, 2 * n + 1) AS run, n
		FROM generate_series($7::bigint, $7::bigint + $6::bigint - 1) n) s`
	agentOfRow = `'hello-' || s.n % 2`
)

var (
	inputRow  = `INSERT INTO inputs (project_id, id, content_type, data) SELECT $1, connector_run, 'text/plain', 'x'` + seedIDs
	endedRows = []string{
		inputRow,
		`INSERT INTO ended_connector_runs (project_id, id, environment_id, connector_id, status, trigger_type, content_type, run_ids, error, started_at, ended_at)
			SELECT $1, connector_run, $2, $3, 'completed', 'webhook', 'text/plain', ARRAY[run], '', $5, $5` + seedIDs,
		`INSERT INTO ended_runs (project_id, id, environment_id, connector_id, connector_run_id, agent_name, input_id, status, deployment_id,
				token, attempt, runner_id, error_code, error, output, input_tokens, output_tokens, thinking_tokens, cached_input_tokens,
				total_tokens, queued_at, ended_at)
			SELECT $1, run, $2, $3, connector_run, ` + agentOfRow + `, connector_run, CASE WHEN n % 10 = 0 THEN 'failed' ELSE 'completed' END, $4,
				n, 1, 'r', '', '', 'done', 1, 1, 1, 1, 1, $5, $5` + seedIDs,
		`INSERT INTO journal (project_id, run_id, sequence, token, kind, data, unsafe, at) SELECT $1, run, 1, n, 'model_answer', '{}', FALSE, $5` + seedIDs,
		`INSERT INTO model_calls (project_id, run_id, sequence, model, input_tokens, output_tokens, thinking_tokens,
				cached_input_tokens, total_tokens, at) SELECT $1, run, 1, 'p/m', 1, 1, 1, 1, 1, $5` + seedIDs,
		`INSERT INTO outbox (project_id, consumer, ended_id, bytes, posted_at) SELECT $1, 'storage', run, 1, $5` + seedIDs,
		`INSERT INTO delivery_attempts (project_id, delivery_id, number, at, duration_us, status_code, error_class, error, response)
			SELECT $1, run, 1, $5, 1, 200, '', '', ''` + seedIDs,
		`INSERT INTO idempotency_keys (project_id, connector_id, key, connector_run_id, run_ids, expires_at)
			SELECT $1, $3, 'key:' || n, connector_run, ARRAY[run], $5 + 3600000000` + seedIDs,
		`INSERT INTO blobs (project_id, id, size, complete, mark, created_at) SELECT $1, run, 1, TRUE, 'history', $5` + seedIDs,
		`INSERT INTO blob_chunks (project_id, blob_id, number, data) SELECT $1, run, 0, 'x'` + seedIDs,
		`INSERT INTO audit_days (project_id, day) SELECT DISTINCT $1, $5 / 86400000000` + seedIDs + ` ON CONFLICT DO NOTHING`,
		`INSERT INTO audit_log (project_id, id, at, actor_kind, actor_name, key_id, owner_kind, owner_name, operation, method, route,
				object_kind, object_id, object_name, request_id, remote_addr, idempotency_key)
			SELECT $1, run, $5, 'api_key', '', '', '', '', 'o', '', '', '', '', '', '', '', ''` + seedIDs,
		`INSERT INTO audit_outcomes (project_id, id, at, status, code, object_kind, object_id, object_name)
			SELECT $1, run, $5, 200, '', '', '', ''` + seedIDs,
		`INSERT INTO rejections (project_id, connector_id, document, last_at, news_at) SELECT $1, run, '{}', $5, $5 + 3600000000` + seedIDs,
		`INSERT INTO replays (project_id, id, connector_id, status, statuses, trigger_type, since, until, per_minute, matched, more, position,
				replayed, refused, reason, detail, fingerprint, due_at, created_at, ended_at)
			SELECT $1, run, md5('elsewhere' || n % 1000)::uuid, 'completed', '[]', '', 0, 1, 1, 1, FALSE, run, 1, '{}', '', '', '', $5, $5, $5` + seedIDs,
		`INSERT INTO tokens (sha256, kind, project_id, environment_id, deployment_id, created_at)
			SELECT decode(md5('token' || n), 'hex'), 'build', $1, md5('elsewhere')::uuid, run, $5` + seedIDs,
	}
	runningRows = []string{
		`INSERT INTO open_runs (project_id, id, environment_id, agent_name, input_id, status, class, deployment_id, attempt, token, runner_id, lease_until, queued_at)
			SELECT $1, run, md5('elsewhere')::uuid, ` + agentOfRow + `, run, 'running', 1, $4, 1, n, 'r', $5 + 3600000000, $5` + seedIDs,
	}
	queuedRows = []string{
		`INSERT INTO deliveries (project_id, id, environment_id, connector_id, link_id, run_id, attempt, due_at, started_at)
			SELECT $1, run, md5('elsewhere')::uuid, md5('connector' || n % 1000)::uuid, $4, run, 1, $5 + 3600000000, $5` + seedIDs,
		`INSERT INTO sends (project_id, run_id, position, delivery_id, skipped, bytes) SELECT $1, run, 1, connector_run, '', 1` + seedIDs,
		`INSERT INTO destinations (project_id, connector_id, due_at, failures, paused_reason)
			SELECT $1, run, $5 + 3600000000, 0, ''` + seedIDs,
		inputRow,
		`INSERT INTO open_connector_runs (project_id, id, environment_id, connector_id, status, trigger_type, content_type, input_size, run_ids,
				runs_left, runs_failed, runs_completed, started_at)
			SELECT $1, connector_run, $2, $3, 'running', 'webhook', 'text/plain', 1, ARRAY[run], 1, 0, 0, $5` + seedIDs,
		`INSERT INTO open_runs (project_id, id, environment_id, connector_id, connector_run_id, agent_name, input_id, status, class, queued_at)
			SELECT $1, run, $2, $3, connector_run, ` + agentOfRow + `, connector_run, 'queued', 1, $5` + seedIDs,
	}
)

// pastRows are the endedRows that the project's own retention deletes.
func pastRows() (statements []string) {
	for _, statement := range endedRows {
		table, _, _ := strings.Cut(strings.TrimPrefix(statement, "INSERT INTO "), " ")
		if _, history := sqldb.HistoryTables[table]; history && !strings.HasPrefix(table, "audit_") {
			statements = append(statements, statement)
		}
	}
	return statements
}

// insert fills tables with so many rows of a project and time, from a number on.
func insert(t *testing.T, db *sql.DB, scene storebench.Scene, project string, us int64, statements []string, rows, first int) {
	t.Helper()
	for _, statement := range statements {
		typed := `WITH given AS (SELECT $1::uuid, $2::uuid, $3::uuid, $4::uuid, $5::bigint) ` + statement
		for _, name := range []string{"$1", "$2", "$3", "$4"} {
			typed = strings.ReplaceAll(typed, name+",", name+"::uuid,")
		}
		typed = strings.ReplaceAll(typed, "$5", "$5::bigint")
		_, err := db.ExecContext(t.Context(), typed, project, scene.Environment, scene.Connector, scene.Deployment, us, rows, first)
		require.NoError(t, err, statement)
	}
}

// seedRows fills a database with ended and queued connector runs, and with rows of another project on a
// day beyond this project's retention.
func seedRows(t *testing.T, db *sql.DB, scene storebench.Scene, of size) {
	t.Helper()
	var us int64
	require.NoError(t, db.QueryRowContext(t.Context(), `SELECT now_us()`).Scan(&us))
	own := scene.Project.String()
	insert(t, db, scene, own, us, endedRows, of.ended, 0)
	insert(t, db, scene, own, us, queuedRows, of.queued, of.ended)
	insert(t, db, scene, own, us, runningRows, of.running, of.ended+of.queued)
	insert(t, db, scene, uuid.NewString(), trimmedDay().UnixMicro(), pastRows(), of.ended/3, 0)
}

// trimmedDay is a day within the platform's retention.
func trimmedDay() time.Time { return time.Now().UTC().Truncate(aDay).Add(-40 * aDay) }

// trimmed creates rows of a project on a day beyond its retention.
func trimmed(t *testing.T, db *sql.DB, scene storebench.Scene) {
	t.Helper()
	day, own := trimmedDay(), scene.Project.String()
	insert(t, db, scene, own, day.UnixMicro(), pastRows(), 3, 0)
	for _, statement := range []string{
		`UPDATE projects SET history_us = 10 * 86400000000 WHERE project_id = $1 AND $2 > 0`,
		`INSERT INTO stored_days (project_id, day, bytes) VALUES ($1, $2, 1)`,
	} {
		_, err := db.ExecContext(t.Context(), statement, own, day.Unix()/86400)
		require.NoError(t, err)
	}
}
