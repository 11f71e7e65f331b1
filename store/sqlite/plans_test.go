// SPDX-License-Identifier: Apache-2.0

package sqlite

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/internal/expr"
	"github.com/agentplatform/agentplatform/internal/testenv"
	"github.com/agentplatform/agentplatform/store"
	"github.com/agentplatform/agentplatform/store/searchindex"
	"github.com/agentplatform/agentplatform/store/sqldb"
	"github.com/agentplatform/agentplatform/store/storetest/storebench"
)

// statementsSeen are the statements on recorded connections.
type statementsSeen struct {
	mutex sync.Mutex
	all   map[string]bool
}

func (s *statementsSeen) add(statement string) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	s.all[statement] = true
}

// connection is the interface of the driver's connections.
type connection interface {
	driver.Conn
	driver.ConnBeginTx
	driver.ConnPrepareContext
	driver.ExecerContext
	driver.QueryerContext
}

// recorder opens connections that record their statements.
type recorder struct {
	database
	seen *statementsSeen
}

// Connect implements driver.Connector.
func (r recorder) Connect(ctx context.Context) (driver.Conn, error) {
	conn, err := r.database.Connect(ctx)
	if err != nil {
		return nil, err
	}
	return recording{conn.(connection), r.seen}, nil
}

type recording struct {
	connection
	seen *statementsSeen
}

// PrepareContext implements driver.ConnPrepareContext.
func (r recording) PrepareContext(ctx context.Context, query string) (driver.Stmt, error) {
	r.seen.add(query)
	return r.connection.PrepareContext(ctx, query)
}

// ExecContext implements driver.ExecerContext.
func (r recording) ExecContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Result, error) {
	r.seen.add(query)
	return r.connection.ExecContext(ctx, query, args)
}

// QueryContext implements driver.QueryerContext.
func (r recording) QueryContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Rows, error) {
	r.seen.add(query)
	return r.connection.QueryContext(ctx, query, args)
}

// migrated returns the path of a store with its schema. It is created once and copied.
func migrated(t *testing.T) string {
	t.Helper()
	return testenv.FilePrepared(t, "migrated", func(path string) error {
		s, err := Open(t.Context(), Options{Path: path})
		if err != nil {
			return err
		}
		return errors.Join(s.Migrate(t.Context()), s.Close())
	})
}

// recorded returns a store with its schema whose connections record their statements.
func recorded(t *testing.T) (*Store, *statementsSeen) {
	t.Helper()
	path, seen := migrated(t), &statementsSeen{all: map[string]bool{}}
	s, err := Open(t.Context(), Options{Path: path, Evaluate: expr.On})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	require.NoError(t, s.read.Close())
	s.read = sql.OpenDB(recorder{databaseAt(path, "deferred", "ro"), seen})
	s.reader = newStatements(s.read)
	require.NoError(t, s.writer.db.Close())
	s.writer.db = sql.OpenDB(recorder{databaseAt(path, "immediate", "rwc"), seen})
	s.writer.db.SetMaxOpenConns(1)
	return s, seen
}

// growing are the tables of open rows, outboxes, history, and tokens, which each build adds to.
var growing = slices.Concat([]string{"open_runs", "open_connector_runs", "idempotency_keys", "outbox", "blobs", "blob_chunks", "concurrency_slots", "tokens", "deliveries", "destinations", "sends", "cron_ticks", "rejections", "replays", "looks"},
	slices.Sorted(maps.Keys(sqldb.HistoryTables)))

var (
	growingNames = regexp.MustCompile(`\b(` + strings.Join(growing, "|") + `)\b(?:\s+(?:AS\s+)?(\w+))?`)
	scanOf       = regexp.MustCompile(`^SCAN (\w+)(?: USING (?:COVERING )?INDEX (\w+))?`)
	// skipsOf matches steps that go through all projects.
	skipsOf = regexp.MustCompile(`^SEARCH (\w+) USING .*\(ANY\(`)
	// looseOf matches steps that read all rows of a project, or those between two IDs. Open rows
	// have a limit.
	looseOf  = regexp.MustCompile(`^SEARCH (\w+) USING (?:COVERING )?INDEX (?:sqlite_autoindex_)?(?:ended|deliver|inputs|run_words|journal|model)\w* \(project_id=\?(?: AND \w+[<>]\?)*\)$`)
	byRow    = regexp.MustCompile(`\([\w.]+(?:, [\w.]+)+\) [<>]`)
	argument = regexp.MustCompile(`\$(\d+)`)
)

// partial are the indexes that may be scanned completely: of running or suspended runs, which are
// few, and of the queue if only its first run is needed.
var partial = map[string]string{"open_runs_running": "", "open_runs_waiting": "", "open_runs_queued": "LIMIT 1"}

// fullScans returns the steps of a plan that scan a growing table, or all its rows of a project
// although the statement is about one agent or connector, and row comparisons with a growing table,
// for which an index uses the first column only.
func fullScans(statement string, steps []string) (out []string) {
	grows := map[string]bool{}
	for _, m := range growingNames.FindAllStringSubmatch(statement, -1) {
		grows[m[1]], grows[m[2]] = true, true
	}
	if row := byRow.FindString(statement); row != "" && len(grows) > 0 {
		out = append(out, row)
	}
	for _, step := range steps { // a sub-select has the name of its table
		if name, ok := strings.CutPrefix(step, "CO-ROUTINE "); ok {
			delete(grows, name)
		}
	}
	for _, step := range steps {
		m := scanOf.FindStringSubmatch(step)
		if m == nil || !grows[m[1]] {
			loose, skips := looseOf.FindStringSubmatch(step), skipsOf.FindStringSubmatch(step)
			if loose != nil && grows[loose[1]] && (isOfOne(statement, loose[1]) || ofDeliveries(step, statement)) || skips != nil && grows[skips[1]] {
				out = append(out, step)
			}
			continue
		}
		if condition, ok := partial[m[2]]; !ok || !strings.Contains(statement, condition) {
			out = append(out, step)
		}
	}
	return out
}

// isOfOne reports whether a statement selects rows of one agent or connector under this name.
func isOfOne(statement, name string) bool {
	return regexp.MustCompile(`\b` + name + `\.(?:connector_id|agent_name) (?:=|IN) `).MatchString(statement)
}

// ofDeliveries reports whether a step reads all deliveries of a project, any number of them, and
// not just one.
func ofDeliveries(step, statement string) bool {
	return strings.Contains(step, "deliveries") && strings.HasSuffix(step, "(project_id=?)") && !strings.Contains(statement, "FROM departed d")
}

// No statement scans a growing table.
func TestPlans_ReadFewRows(t *testing.T) {
	t.Parallel()
	s, seen := recorded(t)
	agedScene(t, s).Tour(t)
	explained, named := scansOf(t, s, seen)
	require.Greater(t, explained, 100, "statements were recorded")
	for _, table := range growing {
		require.Truef(t, named[table], "no statement names %s", table)
	}
}

// The same for statements that delete history, in a project with a short retention.
func TestPlans_OfRetention(t *testing.T) {
	t.Parallel()
	s, seen := recorded(t)
	agedScene(t, s).Tour(t)
	clear(seen.all)
	require.NoError(t, s.Write(t.Context(), func(ctx context.Context, tx *sqldb.Tx) error {
		_, err := tx.ExecContext(ctx, `UPDATE projects SET history_us = $1`, -(4 * 24 * time.Hour).Microseconds())
		return err
	}))
	for more := true; more; {
		trimmed, err := s.TrimHistory(t.Context(), 50)
		require.NoError(t, err)
		more = trimmed.Count > 0
	}
	deletes := 0
	for statement := range seen.all {
		if strings.HasPrefix(statement, "DELETE FROM ") {
			deletes++
		}
	}
	require.Equal(t, 7+1, deletes, "of each history table except the audit log, and of its days")
	scansOf(t, s, seen)
}

// The same for a search that scans index entries by key.
func TestPlans_OfCommonWord(t *testing.T) {
	t.Parallel()
	s, seen := recorded(t)
	scene := agedScene(t, s)
	require.NoError(t, s.Write(t.Context(), func(ctx context.Context, tx *sqldb.Tx) error {
		var entries []searchindex.Entry
		for range 2500 {
			entries = append(entries, searchindex.Entry{
				Project: scene.Project,
				Runs:    []uuid.UUID{store.Stamp(uuid.New(), 1, 0)},
				Terms:   []searchindex.Term{searchindex.WordTerm(scene.Project, "order")},
			})
		}
		_, err := engine{s}.AddTerms(ctx, tx, entries)
		return err
	}))
	clear(seen.all)
	_, _, err := s.ListRuns(t.Context(), store.RunQuery{ProjectID: scene.Project, Limit: 10, Search: &store.Search{Words: []string{"order"}}})
	require.NoError(t, err)
	require.True(t, slices.ContainsFunc(slices.Collect(maps.Keys(seen.all)), func(statement string) bool { return strings.Contains(statement, "AS has FROM e") }))
	scansOf(t, s, seen)
}

// agedScene returns a scene whose bundles are due at once.
func agedScene(t *testing.T, s *Store) *storebench.Scene {
	t.Helper()
	scene := storebench.NewScene(t, s, 2)
	scene.Age = func() {
		require.NoError(t, s.Write(t.Context(), func(ctx context.Context, tx *sqldb.Tx) error {
			_, err := tx.ExecContext(ctx, `UPDATE bundles SET kept_until = 0`)
			return err
		}))
	}
	return scene
}

// scansOf fails for each statement that scans a growing table. It returns the number of statements,
// and the tables that they name.
func scansOf(t *testing.T, s *Store, seen *statementsSeen) (explained int, named map[string]bool) {
	t.Helper()
	named = map[string]bool{}
	for _, statement := range slices.Sorted(maps.Keys(seen.all)) {
		verb, _, _ := strings.Cut(strings.TrimSpace(statement), " ")
		if !slices.Contains([]string{"SELECT", "INSERT", "UPDATE", "DELETE", "WITH"}, verb) {
			continue
		}
		explained++
		for _, m := range growingNames.FindAllStringSubmatch(statement, -1) {
			named[m[1]] = true
		}
		steps := explain(t, s, statement)
		for _, scan := range fullScans(statement, steps) {
			t.Errorf("%s\n%s\n%s", scan, statement, strings.Join(steps, "\n"))
		}
	}
	return explained, named
}

// The token of a build is found by its deployment, not among the tokens of all builds of the
// project.
func TestPutToken_FindsTokenByDeployment(t *testing.T) {
	t.Parallel()
	s, seen := recorded(t)
	scene := storebench.NewScene(t, s, 1)
	require.NoError(t, s.PutToken(t.Context(), store.Token{
		SHA256: make([]byte, 32), Kind: store.TokenBuild, ProjectID: scene.Project, EnvironmentID: scene.Environment, DeploymentID: &scene.Deployment,
	}))
	explained := 0
	for statement := range seen.all {
		if strings.HasPrefix(statement, "DELETE FROM tokens") {
			explained++
			require.Contains(t, strings.Join(explain(t, s, statement), "\n"), "tokens_deployment", statement)
		}
	}
	require.Equal(t, 1, explained)
}

// A backlog is counted index-only, queue by queue. Only the newest row and rows of released or
// resumed runs are read.
func TestStatistics_CountBacklogByIndex(t *testing.T) {
	t.Parallel()
	s, seen := recorded(t)
	scene := storebench.NewScene(t, s, 1)
	environment := store.Key{ProjectID: scene.Project, ID: scene.Environment}
	_, err := s.Agents(t.Context(), environment)
	require.NoError(t, err)
	_, err = s.RunStatistics(t.Context(), store.StatisticsQuery{Environment: environment, AgentName: "agent"})
	require.NoError(t, err)
	const queue = " INDEX open_runs_queued (project_id=? AND environment_id=? AND class=? AND agent_name=? AND fresh=?)"
	counting := 0
	for _, statement := range slices.Sorted(maps.Keys(seen.all)) {
		if strings.Contains(statement, "lines AS MATERIALIZED") {
			counting++
			steps := explain(t, s, statement)
			require.Contains(t, steps, "SEARCH r USING COVERING"+queue)
			require.Contains(t, steps, "SEARCH r USING"+queue)
			require.Contains(t, steps, "SEARCH n USING"+queue)
		}
	}
	require.Equal(t, 2, counting, "of the list of agents, and of rollups")
}

// Deliveries are counted index-only, because any number of them may wait.
func TestStatistics_CountDeliveriesByIndex(t *testing.T) {
	t.Parallel()
	s, seen := recorded(t)
	scene := storebench.NewScene(t, s, 1)
	all := store.ConnectorStatisticsQuery{Connector: store.Key{ProjectID: scene.Project, ID: scene.Connector}}
	for _, statuses := range [][]store.ConnectorRunStatus{
		nil, {store.ConnectorRunPending}, {store.ConnectorRunRunning}, {store.ConnectorRunPending, store.ConnectorRunRunning}, {store.ConnectorRunFailed, store.ConnectorRunRunning},
	} {
		clear(seen.all)
		for _, since := range []time.Time{{}, time.Now()} {
			q := all
			q.Statuses, q.Since = statuses, since
			_, err := s.ConnectorStatistics(t.Context(), q)
			require.NoError(t, err)
		}
		counting := 0
		for _, statement := range slices.Sorted(maps.Keys(seen.all)) {
			for _, step := range explain(t, s, statement) {
				if strings.Contains(step, "deliveries") {
					require.Regexp(t, "COVERING INDEX deliveries_|INDEX deliveries_leased", step, statement)
					counting++
				}
			}
		}
		require.Positive(t, counting, "of statuses %q", statuses)
	}
}

// A list of the last hour does not read all earlier connector runs.
func TestListConnectorRuns_FindsRunsByTime(t *testing.T) {
	t.Parallel()
	s, seen := recorded(t)
	scene := storebench.NewScene(t, s, 1)
	scene.Trip(t.Context(), t)
	clear(seen.all)
	_, _, err := s.ListConnectorRuns(t.Context(), store.ConnectorRunQuery{Connector: store.Key{ProjectID: scene.Project, ID: scene.Connector}, Since: time.Hour, Limit: 10})
	require.NoError(t, err)
	found := 0
	for _, statement := range slices.Sorted(maps.Keys(seen.all)) {
		for _, step := range explain(t, s, statement) {
			if strings.Contains(step, "ended_connector_runs_connector") {
				require.Contains(t, step, "(project_id=? AND connector_id=? AND id>?", statement)
				found++
			}
		}
	}
	require.Greater(t, found, 1, "the start of a list, and a page")
}

// explain returns the steps of a statement's plan.
func explain(t *testing.T, s *Store, statement string) (steps []string) {
	t.Helper()
	most := 0
	for _, m := range argument.FindAllStringSubmatch(statement, -1) {
		n, err := strconv.Atoi(m[1])
		require.NoError(t, err)
		most = max(most, n)
	}
	rows, err := s.read.QueryContext(t.Context(), "EXPLAIN QUERY PLAN "+statement, make([]any, most)...)
	require.NoError(t, err, statement)
	defer func() { require.NoError(t, rows.Close()) }()
	for rows.Next() {
		var (
			id, parent, none int
			step             string
		)
		require.NoError(t, rows.Scan(&id, &parent, &none, &step))
		steps = append(steps, step)
	}
	require.NoError(t, rows.Err())
	return steps
}

func TestScans_FindsFullScans(t *testing.T) {
	t.Parallel()
	s, _ := recorded(t)
	for statement, scanned := range map[string]bool{
		`SELECT * FROM open_runs`:                                                                 true,
		`SELECT * FROM open_runs r WHERE r.agent_name = $1`:                                       true,
		`SELECT * FROM ended_runs WHERE id = $1`:                                                  true,
		`SELECT count(*) FROM open_runs AS r WHERE r.status = 'queued'`:                           true,
		`SELECT count(*) FROM open_runs r WHERE r.status = 'running'`:                             false,
		`SELECT * FROM ended_runs WHERE project_id = $1 AND id = $2`:                              false,
		`SELECT * FROM ended_runs r WHERE r.project_id = $1 AND r.id < $2 AND r.agent_name = $3`:  false,
		`SELECT * FROM ended_runs r WHERE r.project_id = $1 AND r.id < $2 AND +r.agent_name = $3`: true,
		`SELECT * FROM deliveries WHERE project_id = $1 AND tries > 3`:                            true,
		`DELETE FROM outbox WHERE bytes = $1`:                                                     true,
		`SELECT 1 FROM open_runs n WHERE n.project_id = $1 AND (n.id, n.class) > ($2, $3)`:        true,
		`SELECT 1 FROM environments e JOIN ended_runs x ON x.project_id = e.project_id`:           false,
		`SELECT 1 FROM ended_runs x WHERE EXISTS (SELECT 1 FROM journal j WHERE j.token = 1)`:     true,
	} {
		t.Run(statement, func(t *testing.T) {
			require.Equal(t, scanned, len(fullScans(statement, explain(t, s, statement))) > 0, fmt.Sprint(statement, explain(t, s, statement)))
		})
	}
}

// TestHasRuns_ReadsNoOutboxForUnknownEnvironment: a request that names any environment must not read the
// backlog of its project.
func TestHasRuns_ReadsNoOutboxForUnknownEnvironment(t *testing.T) {
	t.Parallel()
	s, seen := recorded(t)
	has, err := s.HasRuns(t.Context(), store.Key{ProjectID: uuid.New(), ID: uuid.New()})
	require.NoError(t, err)
	require.False(t, has)
	require.NotEmpty(t, seen.all)
	for statement := range seen.all {
		require.NotContains(t, statement, "outbox")
	}
}
