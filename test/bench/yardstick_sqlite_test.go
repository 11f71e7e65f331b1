// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"context"
	"database/sql"
	"database/sql/driver"
	_ "embed"
	"errors"
	"net/url"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	modernc "modernc.org/sqlite"
)

//go:embed yardstick/sqlite.sql
var sqliteTables string

// These are the statements of a run. They match the statements of the store from the time when open and ended runs shared a
// table.
const (
	sqliteCurrent = `SELECT EXISTS (SELECT 1 FROM connectors WHERE id = $1 AND version = $2),
		$3 IS NULL OR EXISTS (SELECT 1 FROM blobs WHERE id = $3 AND complete)`
	sqliteConnectorRun = `INSERT INTO connector_runs (id, project_id, environment_id, connector_id, status,
			trigger_type, input, input_blob, content_type, open_runs, failed_runs, started_at, ended_at)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, now_us(), CASE WHEN $10 = 0 THEN now_us() END)`
	sqliteAgentRun = `INSERT INTO agent_runs (id, project_id, environment_id, connector_id,
			connector_run_id, link_id, position, agent_name, status, error_code, error, queued_at, ended_at)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, now_us(), CASE WHEN $10 <> '' THEN now_us() END)`

	sqliteLook = `SELECT
			EXISTS (SELECT 1 FROM runners WHERE environment_id = $1 AND id = $2 AND digests = $3
				AND seen_at > now_us() - $4),
			EXISTS (SELECT 1 FROM agent_runs r JOIN environments e ON e.id = r.environment_id
				WHERE r.environment_id = $1 AND r.status = 'queued' AND e.live_deployment_id IS NOT NULL)`
	sqliteSeen = `INSERT INTO runners (environment_id, id, seen_at, digests)
		VALUES ($1, $2, now_us(), $3) ON CONFLICT (environment_id, id)
		DO UPDATE SET seen_at = excluded.seen_at, digests = excluded.digests`
	sqliteMove = `UPDATE agent_runs SET
			fencing_token = fencing_token + 1, runner_id = $4, started_at = COALESCE(started_at, now_us()),
			deployment_id = p.deployment_id,
			status = CASE WHEN p.known THEN 'running' ELSE 'failed' END,
			lease_until = CASE WHEN p.known THEN now_us() + $3 END,
			ended_at = CASE WHEN p.known THEN NULL ELSE now_us() END,
			error_code = CASE WHEN p.known THEN '' ELSE 'agent_not_found' END,
			error = CASE WHEN p.known THEN '' ELSE 'the live deployment has no agent named "' || p.agent_name || '"' END
		FROM (
			SELECT q.*, EXISTS (SELECT 1 FROM deployment_agents a
				WHERE a.deployment_id = q.deployment_id AND a.name = q.agent_name) AS known
			FROM (SELECT r.id, r.agent_name, COALESCE(r.deployment_id, e.live_deployment_id) AS deployment_id
				FROM agent_runs r JOIN environments e ON e.id = r.environment_id
				WHERE r.environment_id = $1 AND r.status = 'queued' AND e.live_deployment_id IS NOT NULL
				ORDER BY r.id LIMIT $2) q
		) p WHERE agent_runs.id = p.id RETURNING agent_runs.id`
	sqliteClaimed = `SELECT r.id, r.fencing_token, r.agent_name, r.connector_id, r.connector_run_id, r.link_id, r.deployment_id,
			r.status, r.queued_at, r.started_at, r.lease_until, r.journal_length, d.bundle_digest, c.input, c.input_blob, c.content_type
		FROM agent_runs r LEFT JOIN connector_runs c ON c.id = r.connector_run_id
		LEFT JOIN deployments d ON d.id = r.deployment_id
		WHERE r.id IN (SELECT value FROM json_each($1)) ORDER BY r.id`

	sqliteEnd = `UPDATE agent_runs SET status = $3, error_code = $4, error = $5, output = $6,
			input_tokens = $7, output_tokens = $8, thinking_tokens = $9, cached_input_tokens = $10, total_tokens = $11,
			completion_token = $2, lease_until = NULL, ended_at = now_us(), open_tools = 0
		WHERE id = $1 AND fencing_token = $2 AND status = 'running' RETURNING connector_run_id, journal_length`
	sqliteEntry  = `INSERT INTO journal (run_id, sequence, token, kind, data, unsafe) VALUES ($1, $2, $3, $4, $5, $6)`
	sqliteLength = `UPDATE agent_runs SET journal_length = $2,
		open_tools = CASE WHEN open_tools + $3 > 0 THEN open_tools + $3 ELSE 0 END WHERE id = $1`
	sqliteClose = `UPDATE connector_runs SET open_runs = open_runs - 1, failed_runs = failed_runs + $2,
			status = CASE WHEN open_runs > 1 THEN status WHEN failed_runs + $2 > 0 THEN 'failed' ELSE 'completed' END,
			ended_at = CASE WHEN open_runs > 1 THEN ended_at ELSE now_us() END
		WHERE id = $1 RETURNING open_runs`
)

// clocked is the driver with the clock that the statements ask.
var clocked = func() *modernc.Driver {
	d := &modernc.Driver{}
	d.MustRegisterScalarFunction("now_us", 0, func(*modernc.FunctionContext, []driver.Value) (driver.Value, error) {
		return time.Now().UnixMicro(), nil
	})
	return d
}()

// clockedFile opens connections by that driver.
type clockedFile string

func (f clockedFile) Connect(context.Context) (driver.Conn, error) { return clocked.Open(string(f)) }
func (f clockedFile) Driver() driver.Driver                        { return clocked }

// sqliteSettings are the connection settings that the store uses.
const sqliteSettings = "?_txlock=immediate&_pragma=busy_timeout(60000)&_pragma=synchronous(FULL)&_pragma=journal_mode(WAL)&_pragma=temp_store(MEMORY)"

// sqliteDSN returns the URL of a database file. It escapes the path, because the name of a round can contain characters that
// end a URL's path.
func sqliteDSN(path string) string {
	return "file:" + (&url.URL{Path: path}).EscapedPath() + sqliteSettings
}

// yardstickSQLite creates a yardstick in a new file. It has one client for runs. The client's connection has each statement
// prepared.
func yardstickSQLite(tb testing.TB) *yardstick {
	tb.Helper()
	db := sql.OpenDB(clockedFile(sqliteDSN(filepath.Join(tb.TempDir(), "yardstick.db"))))
	tb.Cleanup(func() { require.NoError(tb, db.Close()) })
	db.SetMaxOpenConns(64)
	db.SetMaxIdleConns(64)
	s := newScene()
	_, err := db.ExecContext(tb.Context(), sqliteTables+s.rows())
	require.NoError(tb, err)
	conn, err := db.Conn(tb.Context())
	require.NoError(tb, err)
	tb.Cleanup(func() { require.NoError(tb, conn.Close()) })
	p := &prepared{conn: conn, statements: map[string]*sql.Stmt{}}
	return &yardstick{
		clients: 1,
		insert:  func(ctx context.Context) error { return s.insertSQLite(ctx, db) },
		run: func(ctx context.Context) error {
			if err := s.acceptSQLite(ctx, p); err != nil {
				return err
			}
			run, token, err := s.claimSQLite(ctx, p)
			if err != nil {
				return err
			}
			return completeSQLite(ctx, p, run, token)
		},
	}
}

// insertSQLite is BEGIN, the two INSERTs of an accepted event, COMMIT.
func (s scene) insertSQLite(ctx context.Context, db *sql.DB) error {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }() // a no-op after the commit
	id, now := newID(), time.Now().UnixMicro()
	if _, err := tx.ExecContext(ctx, insertConnectorRun, id, s.project, s.environment, s.connector, body, now); err != nil {
		return err
	}
	if _, err := tx.ExecContext(ctx, insertAgentRun, newID(), s.project, s.environment, s.connector, id, s.link, now); err != nil {
		return err
	}
	return tx.Commit()
}

// prepared prepares each statement once on its connection.
type prepared struct {
	conn       *sql.Conn
	statements map[string]*sql.Stmt
}

func (p *prepared) statement(ctx context.Context, text string) (*sql.Stmt, error) {
	if s := p.statements[text]; s != nil {
		return s, nil
	}
	s, err := p.conn.PrepareContext(ctx, text)
	p.statements[text] = s
	return s, err
}

// row reads the only row of a statement.
func (p *prepared) row(ctx context.Context, text string, args []any, into ...any) error {
	s, err := p.statement(ctx, text)
	if err != nil {
		return err
	}
	return s.QueryRowContext(ctx, args...).Scan(into...)
}

func (p *prepared) exec(ctx context.Context, text string, args ...any) error {
	s, err := p.statement(ctx, text)
	if err == nil {
		_, err = s.ExecContext(ctx, args...)
	}
	return err
}

// transaction runs steps in one until the first that fails, and then undoes them.
func (p *prepared) transaction(ctx context.Context, steps ...func() error) error {
	if err := p.exec(ctx, `BEGIN IMMEDIATE`); err != nil {
		return err
	}
	for _, step := range steps {
		if err := step(); err != nil {
			return errors.Join(err, p.exec(ctx, `ROLLBACK`))
		}
	}
	return p.exec(ctx, `COMMIT`)
}

func (s scene) acceptSQLite(ctx context.Context, p *prepared) error {
	event := newID()
	return p.transaction(ctx, func() error {
		var current, whole bool
		err := p.row(ctx, sqliteCurrent, []any{s.connector, 1, nil}, &current, &whole)
		if err != nil || !current || !whole {
			return cmpErr(err, errNotAccepted)
		}
		return nil
	}, func() error {
		return p.exec(ctx, sqliteConnectorRun, event, s.project, s.environment, s.connector, "running", "webhook", input, nil, "application/json", 1, 0)
	}, func() error {
		return p.exec(ctx, sqliteAgentRun, newID(), s.project, s.environment, s.connector, event, s.link, 0, agentName, "queued", "", "")
	})
}

func (s scene) claimSQLite(ctx context.Context, p *prepared) (run uuid.UUID, token int64, err error) {
	var seen, queued bool
	if err := p.row(ctx, sqliteLook, []any{s.environment, "yardstick", "[]", seenEvery.Microseconds()}, &seen, &queued); err != nil {
		return run, 0, err
	}
	err = p.transaction(ctx, func() error {
		if seen {
			return nil
		}
		return p.exec(ctx, sqliteSeen, s.environment, "yardstick", "[]")
	}, func() error {
		return p.row(ctx, sqliteMove, []any{s.environment, 1, leaseTime.Microseconds(), "yardstick"}, &run)
	}, func() error {
		var rest [14]any
		into := []any{&run, &token}
		for i := range rest {
			into = append(into, &rest[i])
		}
		return p.row(ctx, sqliteClaimed, []any{`["` + run.String() + `"]`}, into...)
	})
	return run, token, err
}

func completeSQLite(ctx context.Context, p *prepared, run uuid.UUID, token int64) error {
	var (
		event        uuid.UUID
		length, open int64
	)
	return p.transaction(ctx, func() error {
		return p.row(ctx, sqliteEnd, []any{run, token, "completed", "", "", output, 100, 50, 0, 0, 150}, &event, &length)
	}, func() error {
		return p.exec(ctx, sqliteEntry, run, length+1, token, "model_answer", answer, false)
	}, func() error {
		return p.exec(ctx, sqliteLength, run, length+1, 0)
	}, func() error {
		return p.row(ctx, sqliteClose, []any{event, 0}, &open)
	})
}
