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
	// today matches the end of a partition's name, to treat statements of different days as the
	// same.
	today = regexp.MustCompile(`_\d{8}\b`)
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
				reason, grows, _ := isWide(statement)
				needed[reason] = true
				if few := read[small][h][statement]; !grows && most.blocks() > 3*few.blocks()+50+most.growth() {
					t.Errorf("%s: %d blocks at %+v, %d at %+v\n%s\n%s", h, few.blocks(), small, most.blocks(), large, statement, most.text(0))
				}
			}
		}
	}
	for _, w := range wide {
		t.Run(w.reason, func(t *testing.T) {
			require.Truef(t, needed[w.reason], "no statement needs the exception that %s", w.reason)
		})
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
				read[h] = touredPlans(t, fmt.Sprintf("%+v, %s", s, h), dsn, mode, scene, nil)
			} else if mode == modes[0] { // the others plan again
				read[h] = touredPlans(t, fmt.Sprintf("%+v, %s", s, h), dsn, mode, scene, fill)
			}
		}
	}
	return read
}

// touredPlans runs the tour and returns the most expensive plan of each statement. With fill, the store
// is filled between two tours.
func touredPlans(t *testing.T, name, dsn, mode string, scene storebench.Scene, fill func()) map[string]node {
	t.Helper()
	var seen plans
	s, err := postgres.Open(t.Context(), postgres.Options{DSN: dsn, Evaluate: expr.On}.Tuned(seen.recordPlans(mode)))
	require.NoError(t, err)
	scene.Store = s
	if fill != nil {
		scene.Tour(t)
		fill()
		require.NoError(t, s.Replan(t.Context()))
		seen.forgetPlans()
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
		for _, fault := range p.planFaults() {
			if !reported[p.Statement+fault] {
				reported[p.Statement+fault] = true
				t.Errorf("%s: %s\n%s\n%s", name, fault, p.Statement, p.Plan.text(0))
			}
		}
	}
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
	return most
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
