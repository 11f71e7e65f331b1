// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"context"
	"flag"
	"fmt"
	"log"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/store"
	"github.com/agentplatform/agentplatform/store/sqldb"
	"github.com/agentplatform/agentplatform/store/storetest/storebench"
)

// These flags set the sizes of the stored data. hack/bench.sh passes them on.
var (
	scaleDays     = flag.Int("scale.days", 30, "days over which the runs are spread that are stored at scale")
	scaleProjects = flag.Int("scale.projects", 100, "projects that they are spread over, by Zipf")
	scaleOldest   = flag.Int("scale.oldest", 1_000_000, "how many of them the day has that is dropped")
)

const (
	// agentsOfProject is the number of agents of a project, each with a connector. Their shares of the runs also follow a Zipf
	// distribution.
	agentsOfProject = 8
	// skew is the exponent of both: of 100 projects the largest has a fifth.
	skew = 1.1
	// draws is the number of rows from which a stored run draws its owner.
	draws = 4096
	// openShare is the number of stored runs for each open run.
	openShare = 50
)

// population is the stored data of a platform: projects with agents, their history and their open runs.
type population struct {
	*database
	scenes []*storebench.Scene // the largest first
	hooks  [][]uuid.UUID       // a connector for each agent of each of them
	// oldest is the start of the first partition, and oldestRuns the number of its runs.
	oldest     time.Time
	oldestRuns int
}

// largest is the project that has most, and its agent and connector that have most of that.
func (p *population) largest() (*storebench.Scene, string, uuid.UUID) {
	return p.scenes[0], p.scenes[0].Links[0].AgentName, p.hooks[0][0]
}

// populate stores the given number of ended runs, which are spread over projects, and the matching number of open runs.
func populate(tb testing.TB, db *database, projects, runs int) *population {
	tb.Helper()
	p := &population{database: db, oldest: time.Now().UTC().Truncate(24*time.Hour).AddDate(0, 0, -*scaleDays)}
	for range projects {
		scene := storebench.NewScene(tb, db.store, agentsOfProject)
		var hooks []uuid.UUID
		for _, link := range scene.Links {
			hooks = append(hooks, connect(tb, db.store, scene, "inbound", link.AgentName))
		}
		p.scenes, p.hooks = append(p.scenes, scene), append(p.hooks, hooks)
	}
	p.draw(tb)
	begun, days := time.Now(), daysOf(runs)
	p.oldestRuns = days[0]
	for day, n := range days {
		p.rememberDay(tb, p.oldest.AddDate(0, 0, day), n)
		log.Printf("bench: %s has stored %d of %d days of %d runs after %v", db.name, day+1, *scaleDays, runs, time.Since(begun).Round(time.Second))
	}
	p.consume(tb, "adds up numbers", p.store.RollUp)
	p.consume(tb, "indexes words", p.index)
	p.open(tb, runs/openShare)
	p.settle(tb)
	log.Printf("bench: %s holds %d runs after %v", db.name, runs, time.Since(begun).Round(time.Second))
	return p
}

// daysOf returns the number of runs of each day, oldest first.
func daysOf(runs int) []int {
	days := make([]int, *scaleDays)
	days[0] = min(*scaleOldest, runs/2)
	for day := 1; day < len(days); day++ {
		days[day] = (runs - days[0]) / (len(days) - 1)
	}
	days[len(days)-1] += (runs - days[0]) % (len(days) - 1)
	return days
}

// draw fills a table that assigns runs to projects by the share of each project.
func (p *population) draw(tb testing.TB) {
	tb.Helper()
	random := rand.New(rand.NewPCG(11, 2026))
	project := rand.NewZipf(random, skew, 1, uint64(len(p.scenes)-1))
	agent := rand.NewZipf(random, skew, 1, agentsOfProject-1)
	ctx := tb.Context()
	require.NoError(tb, p.exec(ctx, `CREATE TABLE draws (n BIGINT PRIMARY KEY, project_id `+p.ids()+`, environment_id `+p.ids()+`, deployment_id `+p.ids()+
		`, connector_id `+p.ids()+`, agent_name TEXT)`))
	var values []string
	for n := range draws {
		i, k := project.Uint64(), agent.Uint64()
		scene := p.scenes[i]
		values = append(values, fmt.Sprintf(`(%d, '%s', '%s', '%s', '%s', '%s')`, n, scene.Project, scene.Environment, scene.Deployment,
			p.hooks[i][k], scene.Links[k].AgentName))
	}
	require.NoError(tb, p.exec(ctx, `INSERT INTO draws VALUES `+strings.Join(values, ",")))
}

// ids is the type of columns of ids.
func (p *population) ids() string {
	if p.name == "sqlite" {
		return "TEXT"
	}
	return "UUID"
}

// Ids and owners of a day's events and runs, evenly over the day: {begin} in microseconds.
const (
	postgresDay = `CREATE UNLOGGED TABLE stored AS
	SELECT stamp(gen_random_uuid(), g.us, 0) AS event, stamp(gen_random_uuid(), g.us, 1) AS run, g.us, g.n, d.*
	FROM (SELECT n, {begin} + 86400000000 / {n} * n AS us FROM generate_series(0::bigint, {n} - 1) AS s (n)) g
	JOIN (SELECT n AS draw, project_id, environment_id, deployment_id, connector_id, agent_name FROM draws) d ON d.draw = g.n * 2654435761 % {draws}`
	sqliteDay = `CREATE TABLE stored AS
	WITH RECURSIVE g (n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM g WHERE n < {n} - 1),
	t (n, us, ms) AS (SELECT n, {begin} + 86400000000 / {n} * n, printf('%012x', ({begin} + 86400000000 / {n} * n) / 1000) FROM g)
	SELECT substr(ms, 1, 8) || '-' || substr(ms, 9) || '-7000-8' || substr(lower(hex(randomblob(2))), 2) || '-' || lower(hex(randomblob(6))) AS event,
		substr(ms, 1, 8) || '-' || substr(ms, 9) || '-7001-8' || substr(lower(hex(randomblob(2))), 2) || '-' || lower(hex(randomblob(6))) AS run,
		us, t.n, d.project_id, d.environment_id, d.deployment_id, d.connector_id, d.agent_name
	FROM t JOIN draws d ON d.n = t.n * 2654435761 % {draws}`
	postgresPart = `DO $$ BEGIN EXECUTE format('CREATE TABLE IF NOT EXISTS {table}_{day} PARTITION OF {table} FOR VALUES FROM (%L) TO (%L)',
		id_at({begin}), id_at({begin} + 86400000000)); END $$`
)

// ofDay are the rows that they leave: each hundredth run has failed, and each input has a number
// that no other has.
var ofDay = []string{
	`INSERT INTO inputs (project_id, id, content_type, data) SELECT project_id, event, 'application/json', {data} FROM stored`,
	`INSERT INTO ended_connector_runs (project_id, id, environment_id, connector_id, status, trigger_type, content_type, run_ids, error, started_at, ended_at)
		SELECT project_id, event, environment_id, connector_id, CASE WHEN n % 100 = 7 THEN 'failed' ELSE 'completed' END, 'webhook', 'application/json', {list}, '', us, us + 50000 FROM stored`,
	`INSERT INTO ended_runs (project_id, id, environment_id, connector_id, connector_run_id, link_id, agent_name, input_id, status, deployment_id,
			token, attempt, runner_id, error_code, error, output, input_tokens, output_tokens, thinking_tokens, cached_input_tokens, total_tokens,
			queued_at, started_at, ended_at)
		SELECT project_id, run, environment_id, connector_id, event, connector_id, agent_name, event, CASE WHEN n % 100 = 7 THEN 'failed' ELSE 'completed' END,
			deployment_id, 1, 1, 'bench', CASE WHEN n % 100 = 7 THEN 'model_error' ELSE '' END, '', 'The order ' || n || ' is on its way.',
			100, 50, 0, 0, 150, us, us + 10000, us + 50000 + n % 1000 * 1000 FROM stored`,
	`INSERT INTO journal (project_id, run_id, sequence, token, kind, data, unsafe, at)
		SELECT project_id, run, 1, 1, 'model_answer', '{"text":"on its way"}', FALSE, us + 40000 FROM stored`,
	`INSERT INTO model_calls (project_id, run_id, sequence, model, input_tokens, output_tokens, thinking_tokens, cached_input_tokens, total_tokens, at)
		SELECT project_id, run, 1, 'scripted/' || agent_name, 100, 50, 0, 0, 150, us + 40000 FROM stored`,
	`INSERT INTO stored_days (project_id, day, bytes) SELECT project_id, {begin} / 86400000000, 400 * count(*) FROM stored GROUP BY project_id`,
	`INSERT INTO outbox_rollups (project_id, ended_id, run_ids, posted_at) SELECT project_id, {least}, {lists}, us FROM (
		SELECT project_id, run, {begin} AS us, n / 25000 AS part FROM stored) s GROUP BY project_id, part, us`,
	`INSERT INTO outbox_words (project_id, ended_id, run_ids, posted_at) SELECT project_id, {least}, {lists}, us FROM (
		SELECT project_id, run, {begin} AS us, n / 25000 AS part FROM stored) s GROUP BY project_id, part, us`,
	`DROP TABLE stored`,
}

// rememberDay stores runs of a day.
func (p *population) rememberDay(tb testing.TB, day time.Time, n int) {
	tb.Helper()
	if n == 0 {
		return
	}
	begin := fmt.Sprint(day.UnixMicro())
	ids, data, list, least, lists := postgresDay, `convert_to('{"order":' || n || ',"text":"where is it?"}', 'UTF8')`, "ARRAY[run]", "min(run::text)::uuid", "array_agg(run)"
	if p.name == "sqlite" {
		ids, data, list, least, lists = sqliteDay, `CAST('{"order":' || n || ',"text":"where is it?"}' AS BLOB)`, "json_array(run)", "min(run)", "json_group_array(run)"
	} else {
		for table := range sqldb.HistoryTables {
			require.NoError(tb, p.exec(tb.Context(), strings.NewReplacer("{table}", table, "{day}", day.Format("20060102"), "{begin}", begin).Replace(postgresPart)))
		}
	}
	text := strings.NewReplacer("{n}", fmt.Sprint(n), "{begin}", begin, "{draws}", fmt.Sprint(draws), "{data}", data, "{list}", list, "{least}", least, "{lists}", lists)
	for _, statement := range append([]string{ids}, ofDay...) {
		require.NoError(tb, p.exec(tb.Context(), text.Replace(statement)))
	}
}

// consume runs an outbox consumer of the store until it has processed all stored rows.
func (p *population) consume(tb testing.TB, what string, some func(ctx context.Context, limit int) (int, error)) {
	tb.Helper()
	begun, said := time.Now(), time.Now()
	for {
		n, err := some(tb.Context(), 500)
		require.NoError(tb, err)
		if n == 0 {
			break
		}
		if time.Since(said) > 10*time.Second {
			said = time.Now()
			log.Printf("bench: %s %s, for %v", p.name, what, time.Since(begun).Round(time.Second))
		}
	}
}

// open queues n runs with the same distribution as the stored runs.
func (p *population) open(tb testing.TB, n int) {
	tb.Helper()
	random := rand.New(rand.NewPCG(12, 2026))
	project := rand.NewZipf(random, skew, 1, uint64(len(p.scenes)-1))
	of := make([]int, len(p.scenes))
	for range n {
		of[project.Uint64()]++
	}
	for i, runs := range of {
		queue(tb, p.store, store.Key{ProjectID: p.scenes[i].Project, ID: p.hooks[i][0]}, min(runs, 90_000)) // below the limit of a backlog
	}
}

// settle brings the database into the state that it has some time after the history was written.
func (p *population) settle(tb testing.TB) {
	tb.Helper()
	after := []string{"VACUUM ANALYZE", "CHECKPOINT"}
	if p.name == "sqlite" {
		after = []string{"PRAGMA wal_checkpoint(TRUNCATE)"} // the platform itself updates the planner's statistics
	}
	for _, statement := range after {
		require.NoError(tb, p.exec(tb.Context(), statement))
	}
}
