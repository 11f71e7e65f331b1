// SPDX-License-Identifier: Apache-2.0

package postgres_test

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/internal/expr"
	"github.com/agentplatform/agentplatform/internal/testenv"
	"github.com/agentplatform/agentplatform/store/postgres"
	"github.com/agentplatform/agentplatform/store/sqldb"
	"github.com/agentplatform/agentplatform/store/storetest/storebench"
)

// hotTables are the tables of open rows and outboxes, and other tables that grow with stored data.
var hotTables = []string{"open_runs", "open_connector_runs", "idempotency_keys", "outbox", "outbox_rollups", "outbox_words", "outbox_traces", "stored_bytes", "stored_days", "audit_days", "run_rollups", "usage_rollups", "connector_rollups", "agent_totals", "pools", "blobs", "blob_chunks", "concurrency_slots", "tokens", "deliveries", "destinations", "sends", "cron_ticks", "rejections", "replays"}

// wide are statements about more than one run or connector run, identified by a part of their text,
// with the reason why they may read more.
var wide = []struct {
	contains, reason string
	// grows means that reads may grow with stored or waiting rows. All of these statements may read
	// every partition.
	grows bool
}{
	{"AS u ORDER BY u.id DESC LIMIT", "a list of runs reads up to its limit", true},
	{"SELECT r.id FROM open_runs r WHERE r.project_id = $1", "a search reads open runs up to a limit", true},
	{"SELECT r.id FROM ended_runs r WHERE r.project_id = $1", "a search reads ended runs up to a limit", true},
	{"SELECT w.project_id, w.run_id, w.shared FROM run_words", "a search reads matching entries of one day at a time", true},
	{"SELECT h.id, h.input_id, 0 FROM open_runs h", "a search reads the sizes of the open runs that it has found", true},
	{"SELECT h.id, h.input_id, octet_length(h.error) +", "a search reads the sizes of the ended runs that it has found", true},
	{"SELECT h.id, h.id, COALESCE(octet_length(h.data)", "a search reads the sizes of their inputs", true},
	{"run_ids FROM outbox_words WHERE project_id = $1", "a search reads runs of the project that are not indexed, up to a limit", true},
	{"WITH r AS MATERIALIZED (SELECT h.* FROM open_runs h", "a search reads the open runs that it has found, in batches", true},
	{"WITH r AS MATERIALIZED (SELECT h.* FROM ended_runs h", "a search reads the ended runs that it has found, in batches", true},
	{"SELECT EXISTS (SELECT 1 FROM agent_totals t", "the check for runs of a deleted environment also reads the open runs of its project, which have a limit", true},
	{"INSERT INTO run_rollups", "runs are added to all their rollups, a page of them at a time", true},
	{"SELECT x.status, CAST(SUM(x.runs) AS bigint)", "connector statistics count open runs index-only, and read parts of hours at the ends of the window", true},
	{"SELECT c.id FROM ended_connector_runs c WHERE c.project_id = $1 AND c.connector_id BETWEEN $2 AND $2", "a list of connector runs begins at the oldest row of the connector", false},
	{"lines AS MATERIALIZED (SELECT h.class", "open runs of an environment are counted by the index of queues, and have a limit", true},
	{"(SELECT * FROM unnest($3::uuid[], $4::uuid[])) AND r.project_id = $1 AND r.environment_id = $2", "lists of agents read runs that are not rolled up by their keys", true},
	{"FROM ended_runs r\n\t\tWHERE r.project_id = $1 AND r.id >= id_at($2) AND r.id < id_at($3)", "statistics read parts of hours at the ends of the window", true},
	{"AS bigint) FROM model_calls m\n", "statistics read the calls of runs that are not rolled up, or in parts of hours, by their runs", true},
	{"FROM ended_connector_runs c WHERE c.project_id = $1 AND c.connector_id BETWEEN $2 AND $2", "a page of connector runs reads the newest partitions", true},
	{"SELECT c.status, c.trigger_type, c.kind, c.replay_of FROM ended_connector_runs c", "the matches of a replay are counted up to a limit", true},
	{"SELECT r.id FROM ended_connector_runs r WHERE r.project_id = $1", "a rebuild of connector rollups reads the next connector run", false},
	{"FROM open_connector_runs c WHERE c.project_id = $1 GROUP BY c.environment_id", "the backlog of a project counts all its open rows, which have a limit", true},
	{"(SELECT count(*) FROM (SELECT 1 AS one FROM open_runs n", "the queue figures count waiting runs up to a limit", true},
	{"(SELECT count(*) FROM (SELECT 1 AS one FROM concurrency_slots", "the queue figures count keys up to a limit", true},
	{"WHERE r.status = 'running' AND r.lease_until <= now_us()", "the sweep reads all running runs by an index", true},
	{"SELECT count(*) FROM open_runs r WHERE r.status = 'running'", "the queue figures count all running runs by an index", true},
	{"WITH RECURSIVE w (project_id, id) AS (", "the days of open rows are read once a minute, from the first row of a table, over rows that are not vacuumed yet", true},
	{"SELECT DISTINCT r.deployment_id AS id FROM open_runs r", "expired bundles are checked against the open runs of their project, once for all of them", true},
	{"c.run_ids[1] = $2 AND c.connector_id = $3", "connector runs of a run are read from its day on, by the index of deliveries", false},
	{"FROM audit_log a LEFT JOIN audit_outcomes o", "a page of the audit log reads the newest partitions", false},
}

var (
	// partitionOf extracts the table of a partition.
	partitionOf = regexp.MustCompile(`^(\w+)_\d{8}$`)
	// today matches the end of a partition's name, and moreRows the rows after the first one. Statements that differ in these only
	// are the same.
	today    = regexp.MustCompile(`_\d{8}\b`)
	moreRows = regexp.MustCompile(`(VALUES \((?:[^()]|\([^()]*\))*\))(?:, \((?:[^()]|\([^()]*\))*\))+`)
)

// planFaults returns the problems of how a statement finds its rows.
func (p plan) planFaults() (out []string) {
	parts := map[string]map[string]bool{}
	p.Plan.walk(func(n node) {
		table := n.Relation
		if m := partitionOf.FindStringSubmatch(table); m != nil && strings.Contains(n.Type, "Scan") {
			table = m[1]
			if parts[table] == nil {
				parts[table] = map[string]bool{}
			}
			parts[table][n.Relation] = true
		}
		_, history := sqldb.HistoryTables[table]
		if n.Type == "Seq Scan" && (history || slices.Contains(hotTables, table)) {
			out = append(out, "it scans "+n.Relation)
		}
	})
	for table, touched := range parts {
		if _, _, wide := isWide(p.Statement); len(touched) > 1 && !wide {
			out = append(out, fmt.Sprintf("it reads %d partitions of %s", len(touched), table))
		}
	}
	return out
}

// isWide reports whether a statement is in wide.
func isWide(statement string) (reason string, grows, found bool) {
	for _, w := range wide {
		if strings.Contains(statement, w.contains) {
			return w.reason, w.grows, true
		}
	}
	return "", false, false
}

// how is a way of planning statements.
type how struct{ mode, statistics string }

// Ways of planning statements.
var (
	// modes are the values of plan_cache_mode.
	modes = []string{"force_generic_plan", "force_custom_plan"}
	// everyStatistics are the states of planner statistics, including the statistics of an empty
	// store.
	everyStatistics = []string{"of an empty store", "none", ofTheStore, sincePlanned}
	// usualStatistics are the states of a server with a working autovacuum, and of a connection
	// that was opened while the store was empty.
	usualStatistics = []string{ofTheStore, sincePlanned}
)

// ofTheStore are statistics of the stored data.
const ofTheStore = "of the store"

// sincePlanned: a connection plans its statements once, possibly while the store is empty.
const sincePlanned = "none, and planned while the store was empty"

func (h how) String() string { return h.mode + ", statistics " + h.statistics }

// size is the number of ended, queued and running runs of a store. Running runs are in another
// environment of the project.
type size struct{ ended, queued, running int }

// Every statement runs on stores of different sizes, with and without statistics, with generic and
// custom plans. No statement scans a table or reads more than one partition, and reads grow neither
// with stored data nor with queued or running runs of other environments.
func TestPlans_ReadFewRows(t *testing.T) {
	t.Parallel()
	small := size{ended: 1000, queued: 2000}
	baseline := map[how]map[string]node{}
	runTours(t, small, func(h how, r *tour) {
		r.lower(r.run(t), slices.Collect(maps.Keys(r.most)))
		baseline[h] = r.most
	})
	needed := map[string]bool{}
	var mutex sync.Mutex
	t.Run("tours", func(t *testing.T) {
		for _, s := range []size{{}, {ended: 30_000, queued: 2000}, {ended: 1000, queued: 20_000}, {ended: 1000, queued: 2000, running: 5000}} {
			t.Run(fmt.Sprintf("%+v", s), func(t *testing.T) {
				t.Parallel()
				runTours(t, s, func(h how, r *tour) {
					if s == (size{}) {
						return
					}
					r.compare(t, baseline[h])
					mutex.Lock()
					defer mutex.Unlock()
					for statement := range r.most {
						reason, _, _ := isWide(statement)
						needed[reason] = true
					}
				})
			})
		}
	})
	for _, w := range wide {
		t.Run(w.reason, func(t *testing.T) {
			require.Truef(t, needed[w.reason], "no statement needs the exception that %s", w.reason)
		})
	}
}

// runTours runs the tour on a store of a size in every way of planning. A store is open until inspect returns.
func runTours(t *testing.T, s size, inspect func(h how, r *tour)) {
	t.Helper()
	statistics := usualStatistics
	if testenv.Nightly() {
		statistics = everyStatistics
	}
	for _, known := range statistics {
		dsn, scene, fill := stored(t, s, known)
		for _, mode := range modes {
			if known == sincePlanned && mode != modes[0] { // it plans again
				continue
			}
			h := how{mode, known}
			r := &tour{name: fmt.Sprintf("%+v, %s", s, h), scene: scene}
			opened, err := postgres.Open(t.Context(), postgres.Options{DSN: dsn, Evaluate: expr.On}.Tuned(r.seen.recordPlans(mode)))
			require.NoError(t, err)
			r.scene.Store = opened
			if known == sincePlanned {
				r.scene.Tour(t)
				fill()
				require.NoError(t, opened.Replan(t.Context()))
				r.seen.forgetPlans()
			}
			r.most = r.run(t)
			inspect(h, r)
			require.NoError(t, opened.Close())
		}
	}
}

// tour runs all statements of a store, in one way of planning.
type tour struct {
	name  string
	scene storebench.Scene
	seen  plans
	// most has the most expensive plan of each statement.
	most map[string]node
}

const (
	// repetitions is the maximum number of repeated tours.
	repetitions = 3
	// catalogPages is the number of pages that a statement may read only because its connection reads the catalog again: at most about
	// 100 were seen for each table, and 300 for a statement.
	catalogPages = 500
)

// lower replaces the plans of statements by those of another tour that read fewer pages. The difference must be small enough to be pages of
// the catalog. A connection reads the catalog beside the rows of a statement if it is new, or if so many tables of the server's databases
// have changed that PostgreSQL resets the connection's catalog cache.
func (r *tour) lower(again map[string]node, statements []string) {
	for _, statement := range statements {
		other, ran := again[statement]
		if less := r.most[statement].blocks() - other.blocks(); ran && less > 0 && less <= catalogPages {
			r.most[statement] = other
		}
	}
}

// compare fails the test for each statement that reads many more pages than on a small store, in this tour and in repetitions of it.
func (r *tour) compare(t *testing.T, baseline map[string]node) {
	t.Helper()
	grownStatements := func() (statements []string) {
		for statement, most := range r.most {
			if _, grows, _ := isWide(statement); !grows && most.blocks() > 3*baseline[statement].blocks()+50+most.growth() {
				statements = append(statements, statement)
			}
		}
		return statements
	}
	for range repetitions {
		suspected := grownStatements()
		if len(suspected) == 0 {
			return
		}
		r.lower(r.run(t), suspected)
	}
	for _, statement := range grownStatements() {
		most := r.most[statement]
		t.Errorf("%s: %d blocks, %d on a small store\n%s\n%s", r.name, most.blocks(), baseline[statement].blocks(), statement, most.text(0))
	}
}

// run runs the tour and returns the most expensive plan of each statement.
func (r *tour) run(t *testing.T) map[string]node {
	t.Helper()
	r.scene.Tour(t)
	seen := r.seen.forgetPlans()
	require.NoError(t, r.seen.err)
	most, reported, named := map[string]node{}, map[string]bool{}, map[string]bool{}
	for _, p := range seen {
		statement := moreRows.ReplaceAllString(today.ReplaceAllString(p.Statement, ""), "$1")
		if before, ok := most[statement]; !ok || before.blocks() < p.Plan.blocks() {
			most[statement] = p.Plan
		}
		p.Plan.walk(func(n node) { named[partitionOf.ReplaceAllString(n.Relation, "$1")] = true })
		for _, fault := range p.planFaults() {
			if !reported[p.Statement+fault] {
				reported[p.Statement+fault] = true
				t.Errorf("%s: %s\n%s\n%s", r.name, fault, p.Statement, p.Plan.text(0))
			}
		}
	}
	requireAll(t, most, named)
	return most
}

// requireAll fails the test if the tour left out a table.
func requireAll(t *testing.T, most map[string]node, named map[string]bool) {
	t.Helper()
	require.Greater(t, len(most), 100, "statements were recorded")
	for table := range sqldb.HistoryTables {
		if strings.HasPrefix(table, "audit_") {
			continue // its days are deleted for all projects
		}
		deleted := func(statement string) bool { return strings.HasPrefix(statement, "DELETE FROM "+table+" WHERE") }
		require.True(t, slices.ContainsFunc(slices.Collect(maps.Keys(most)), deleted), "no statement deletes from %s", table)
	}
	for _, table := range slices.Concat(hotTables, slices.Collect(maps.Keys(sqldb.HistoryTables))) {
		require.Truef(t, named[table], "no statement names %s", table)
	}
}

// stored returns a database of a size, or one that fill enlarges. It is analyzed on demand only.
func stored(t *testing.T, of size, known string) (dsn string, scene storebench.Scene, fill func()) {
	t.Helper()
	dsn = migrated(t)
	s := openAt(t, dsn)
	_, err := s.EnsurePartitions(t.Context(), 3)
	require.NoError(t, err)
	db := openDB(t, dsn)
	exec := func(statement string) {
		_, err := db.ExecContext(t.Context(), statement)
		require.NoError(t, err)
	}
	oldDayOf(t, db, trimmedDay())
	exec(`DO $$ DECLARE r regclass; BEGIN
		FOR r IN SELECT oid FROM pg_class WHERE relnamespace = 'public'::regnamespace AND relkind = 'r' LOOP
			EXECUTE format('ALTER TABLE %s SET (autovacuum_enabled = off)', r);
		END LOOP; END $$`)
	scene = *storebench.NewScene(t, s, 2)
	scene.Age = func() { exec(`UPDATE bundles SET kept_until = 0`) }
	scene.Old = func() { trimmed(t, db, scene) }
	if known == "of an empty store" {
		exec(`ANALYZE`)
	}
	fill = func() { seedRows(t, db, scene, of) }
	if known == sincePlanned {
		return dsn, scene, fill
	}
	fill()
	if known == ofTheStore {
		exec(`ANALYZE`)
	}
	return dsn, scene, nil
}
