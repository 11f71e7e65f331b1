// SPDX-License-Identifier: Apache-2.0

package postgres_test

import (
	"database/sql"
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
	"github.com/agentplatform/agentplatform/store/sqlcore"
	"github.com/agentplatform/agentplatform/store/storetest/storebench"
)

// hotTables are those of what is open, or waits to be counted, and what else has a row for
// much of what is stored.
var hotTables = []string{"open_runs", "open_connector_runs", "idempotency_keys", "outbox", "outbox_rollups", "outbox_words", "stored_bytes", "stored_days", "run_rollups", "usage_rollups", "connector_rollups", "agent_totals", "pools", "blobs", "blob_chunks", "concurrency_slots", "tokens", "deliveries", "destinations", "sends", "cron_ticks", "rejections", "replays"}

// wide are the statements that are about more than one run or connector run, known by
// what they contain, and why they may look at more than others.
var wide = []struct {
	contains, reason string
	// grows: it may look at more the more is stored, or waits. All of them may look into every
	// partition.
	grows bool
}{
	{"AS u ORDER BY u.id DESC LIMIT", "a list of runs looks at as many as it is allowed", true},
	{"SELECT r.id FROM open_runs r WHERE r.project_id = $1", "a search looks for open runs up to a number", true},
	{"SELECT r.id FROM ended_runs r WHERE r.project_id = $1", "a search looks for ended runs up to a number", true},
	{"SELECT w.project_id, w.run_id, w.shared FROM run_words", "a search looks for what has words, in a day at a time", true},
	{"SELECT h.id, h.input_id, 0 FROM open_runs h", "a search asks for the sizes of open runs that it has found", true},
	{"SELECT h.id, h.input_id, octet_length(h.error) +", "a search asks for the sizes of ended runs that it has found", true},
	{"SELECT h.id, h.id, COALESCE(octet_length(h.data)", "a search asks for the sizes of their inputs", true},
	{"run_ids FROM outbox_words WHERE project_id = $1", "a search looks at what of the project is not indexed yet, up to a number", true},
	{"WITH r AS MATERIALIZED (SELECT h.* FROM open_runs h", "a search looks at open runs that it has found, so many at a time", true},
	{"WITH r AS MATERIALIZED (SELECT h.* FROM ended_runs h", "a search looks at ended runs that it has found, so many at a time", true},
	{"SELECT EXISTS (SELECT 1 FROM agent_totals t", "whether an environment that is gone has had runs is asked of what is open of its project too, which has a limit", true},
	{"INSERT INTO run_rollups", "runs are added to as many numbers as they are of, a page of them at a time", true},
	{"SELECT x.status, CAST(SUM(x.runs) AS bigint)", "numbers of a connector count what is open of it, by indexes alone, and what is of an hour at the ends of their window", true},
	{"SELECT c.id FROM ended_connector_runs c WHERE c.project_id = $1 AND c.connector_id BETWEEN $2 AND $2", "a list of connector runs begins where the connector's history does", false},
	{"lines AS MATERIALIZED (SELECT h.class", "what is open of an environment is counted by the index of lines, and has a limit", true},
	{"(SELECT * FROM unnest($3::uuid[], $4::uuid[])) AND r.project_id = $1 AND r.environment_id = $2", "lists of agents read what is not rolled up yet by its keys", true},
	{"FROM ended_runs r\n\t\tWHERE r.project_id = $1 AND r.id >= id_at($2) AND r.id < id_at($3)", "statistics read what is of an hour at the ends of their window", true},
	{"AS bigint) FROM model_calls m\n", "statistics read by their runs what calls cost that are not rolled up yet, or of an hour at the ends of their window", true},
	{"FROM ended_connector_runs c WHERE c.project_id = $1 AND c.connector_id BETWEEN $2 AND $2", "a page of a list of connector runs is from the newest partitions", true},
	{"SELECT c.status, c.trigger_type, c.kind, c.replay_of FROM ended_connector_runs c", "what a replay matches is counted, up to a limit", true},
	{"SELECT id FROM ended_runs WHERE project_id = $1", "who counts runs anew looks for the next one", false},
	{"SELECT id FROM ended_connector_runs WHERE project_id = $1", "who counts connector runs anew looks for the next one", false},
	{"FROM open_connector_runs c WHERE c.project_id = $1 GROUP BY c.environment_id", "a project's backlog is all that is open of it, which has a limit", true},
	{"(SELECT count(*) FROM (SELECT 1 AS one FROM open_runs n", "the queue's figures count what waits, up to a limit", true},
	{"(SELECT count(*) FROM (SELECT 1 AS one FROM concurrency_slots", "the figures count keys, up to a limit", true},
	{"WHERE r.status = 'running' AND r.lease_until <= now_us()", "the sweep looks at all that runs, by an index of its own", true},
	{"SELECT count(*) FROM open_runs r WHERE r.status = 'running'", "the figures count all that runs, by an index of its own", true},
	{"WITH RECURSIVE w (project_id, id) AS (", "the days of open rows are looked for once a minute, from the first row of a table on: over rows that no vacuum has removed yet", true},
	{"SELECT DISTINCT r.deployment_id AS id FROM open_runs r", "bundles that nothing else needs go unless an open run of their project does, for all of them looked through once", true},
	{"c.run_ids[1] = $2 AND c.connector_id = $3", "what is about a run is looked for from its day on, by the index of deliveries", false},
	{"FROM audit_log a LEFT JOIN audit_outcomes o", "a page of the audit log is from the newest partitions", false},
}

var (
	// partitionOf tells the table of a partition.
	partitionOf = regexp.MustCompile(`^(\w+)_\d{8}$`)
	// today is the end of the name of a partition in a statement: on another day it is
	// the same statement.
	today = regexp.MustCompile(`_\d{8}\b`)
)

// faults are what is wrong with how a statement finds its rows.
func (p plan) faults() (out []string) {
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
		_, history := sqlcore.HistoryTables[table]
		if n.Type == "Seq Scan" && (history || slices.Contains(hotTables, table)) {
			out = append(out, "it reads all of "+n.Relation)
		}
	})
	for table, touched := range parts {
		if _, _, wide := widely(p.Statement); len(touched) > 1 && !wide {
			out = append(out, fmt.Sprintf("it looks into %d partitions of %s", len(touched), table))
		}
	}
	return out
}

// widely says whether a statement is one of those that may look widely.
func widely(statement string) (reason string, grows, found bool) {
	for _, w := range wide {
		if strings.Contains(statement, w.contains) {
			return w.reason, w.grows, true
		}
	}
	return "", false, false
}

// how is a way in which statements are planned.
type how struct{ mode, statistics string }

// Ways in which statements are planned.
var (
	// modes are values of plan_cache_mode.
	modes = []string{"force_generic_plan", "force_custom_plan"}
	// everyStatistics are the states of the planner's statistics: they may date from when the
	// store was empty.
	everyStatistics = []string{"of an empty store", "none", ofTheStore, sincePlanned}
	// usualStatistics are the states of a server whose autovacuum works, and of a connection that
	// has been open since the store was empty.
	usualStatistics = []string{ofTheStore, sincePlanned}
)

// ofTheStore are statistics of the data that is stored.
const ofTheStore = "of the store"

// sincePlanned: a connection plans its statements once, maybe when the store was empty.
const sincePlanned = "none, and planned while the store was empty"

func (h how) String() string { return h.mode + ", statistics " + h.statistics }

// size is how many runs of a store ended, are queued and run; the latter in another
// environment of the project.
type size struct{ ended, queued, running int }

// TestPlans runs every statement on stores of different sizes, with and without
// statistics, planned for its arguments and for any: none reads a table, or more than
// one partition of history, and what it reads grows neither with what is stored nor
// with what waits or runs elsewhere.
func TestPlans(t *testing.T) {
	t.Parallel()
	small := size{ended: 1000, queued: 2000}
	stored, waiting, busy := size{ended: 30_000, queued: 2000}, size{ended: 1000, queued: 20_000}, size{ended: 1000, queued: 2000, running: 5000}
	read := map[size]map[how]map[string]node{}
	var mutex sync.Mutex
	t.Run("tours", func(t *testing.T) {
		for _, s := range []size{{}, small, stored, waiting, busy} {
			t.Run(fmt.Sprintf("%+v", s), func(t *testing.T) {
				t.Parallel()
				as := touredAs(t, s)
				mutex.Lock()
				defer mutex.Unlock()
				read[s] = as
			})
		}
	})
	needed := map[string]bool{}
	for _, large := range []size{stored, waiting, busy} {
		for h, of := range read[large] {
			for statement, most := range of {
				reason, grows, _ := widely(statement)
				needed[reason] = true
				if few := read[small][h][statement]; !grows && most.blocks() > 3*few.blocks()+50 {
					t.Errorf("%s: %d blocks at %+v, %d at %+v\n%s\n%s", h, few.blocks(), small, most.blocks(), large, statement, most.text(0))
				}
			}
		}
	}
	for _, w := range wide {
		require.Truef(t, needed[w.reason], "no statement needs the exception that %s", w.reason)
	}
}

// touredAs runs the tour on a store of a size in every way of planning.
func touredAs(t *testing.T, s size) map[how]map[string]node {
	t.Helper()
	read := map[how]map[string]node{}
	statistics := usualStatistics
	if testenv.Nightly() {
		statistics = everyStatistics
	}
	for _, known := range statistics {
		dsn, scene, fill := stored(t, s, known)
		for _, mode := range modes {
			h := how{mode, known}
			if known != sincePlanned {
				read[h] = toured(t, fmt.Sprintf("%+v, %s", s, h), dsn, mode, scene, nil)
			} else if mode == modes[0] { // the others plan anew
				read[h] = toured(t, fmt.Sprintf("%+v, %s", s, h), dsn, mode, scene, fill)
			}
		}
	}
	return read
}

// toured runs the tour and returns, of each statement, the plan that read most. The store is
// filled between two tours where fill is set.
func toured(t *testing.T, name, dsn, mode string, scene storebench.Scene, fill func()) map[string]node {
	t.Helper()
	var seen plans
	s, err := postgres.Open(t.Context(), postgres.Options{DSN: dsn, Evaluate: expr.On}.Tuned(seen.record(mode)))
	require.NoError(t, err)
	scene.Store = s
	if fill != nil {
		scene.Tour(t)
		fill()
		require.NoError(t, s.Replan(t.Context()))
		seen.forget()
	}
	scene.Tour(t)
	require.NoError(t, s.Close())
	require.NoError(t, seen.err)
	most, reported, named := map[string]node{}, map[string]bool{}, map[string]bool{}
	for _, p := range seen.all {
		statement := today.ReplaceAllString(p.Statement, "")
		if before, ok := most[statement]; !ok || before.blocks() < p.Plan.blocks() {
			most[statement] = p.Plan
		}
		p.Plan.walk(func(n node) { named[partitionOf.ReplaceAllString(n.Relation, "$1")] = true })
		for _, fault := range p.faults() {
			if !reported[p.Statement+fault] {
				reported[p.Statement+fault] = true
				t.Errorf("%s: %s\n%s\n%s", name, fault, p.Statement, p.Plan.text(0))
			}
		}
	}
	require.Greater(t, len(most), 100, "the statements are seen")
	for table := range sqlcore.HistoryTables {
		if strings.HasPrefix(table, "audit_") {
			continue // its days go for all projects
		}
		deleted := func(statement string) bool { return strings.HasPrefix(statement, "DELETE FROM "+table+" WHERE") }
		require.True(t, slices.ContainsFunc(slices.Collect(maps.Keys(most)), deleted), "no statement deletes from %s", table)
	}
	for _, table := range slices.Concat(hotTables, slices.Collect(maps.Keys(sqlcore.HistoryTables))) {
		require.Truef(t, named[table], "no statement names %s", table)
	}
	return most
}

// stored is a database of a size, or one that fill makes as large. Nothing is analyzed there
// but on demand.
func stored(t *testing.T, of size, known string) (dsn string, scene storebench.Scene, fill func()) {
	t.Helper()
	dsn = migrated(t)
	s := openAt(t, dsn)
	_, err := s.EnsurePartitions(t.Context(), 3)
	require.NoError(t, err)
	db, err := sql.Open("pgx", dsn)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
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
	fill = func() { seed(t, db, scene, of) }
	if known == sincePlanned {
		return dsn, scene, fill
	}
	fill()
	if known == ofTheStore {
		exec(`ANALYZE`)
	}
	return dsn, scene, nil
}
