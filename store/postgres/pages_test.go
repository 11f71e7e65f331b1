// SPDX-License-Identifier: Apache-2.0

package postgres_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/internal/expr"
	"github.com/agentplatform/agentplatform/store"
	"github.com/agentplatform/agentplatform/store/postgres"
	"github.com/agentplatform/agentplatform/store/storetest/storebench"
)

// The connector runs of two days: allOfTwoDays, numbered n. Each hundredth has failed, three were
// skipped and three are cron runs.
const (
	allOfTwoDays = 40_000
	pastStatus   = `CASE WHEN (n - 7) % ($4::bigint / 3) = 0 THEN 'skipped' WHEN n % 100 = 0 THEN 'failed' ELSE 'completed' END`
	pastTrigger  = `CASE WHEN (n - 9) % ($4::bigint / 3) = 0 THEN 'cron' ELSE 'webhook' END`
)

// twoDays insert $4 connector runs, evenly over two days from $3 on, and their rollups. $1 and $2
// are project and connector.
var twoDays = []string{
	`INSERT INTO ended_connector_runs (project_id, id, environment_id, connector_id, status, trigger_type, content_type, run_ids, error, started_at, ended_at)
		SELECT $1::uuid, stamp(md5(n::text)::uuid, $3::bigint + n * 172800000000 / $4::bigint, 0), $1::uuid, $2::uuid, ` + pastStatus + `,
			` + pastTrigger + `, 'text/plain', '{}', repeat('x', 100), 0, 0 FROM generate_series(0, $4::bigint - 1) n`,
	`INSERT INTO stored_days (project_id, day, bytes) SELECT $1::uuid, $3::bigint / 86400000000 + n, 1 FROM generate_series(0, 1) n WHERE $2::uuid IS NOT NULL AND $4::bigint > 0`,
	`INSERT INTO connector_rollups (project_id, connector_id, grain, begins_at, trigger_type, status, runs, duration_us)
		SELECT $1::uuid, $2::uuid, 'hour', $3::bigint + h * 3600000000, trigger, status, count(*), 0
		FROM (SELECT n * 48 / $4::bigint AS h, ` + pastStatus + ` AS status, ` + pastTrigger + ` AS trigger FROM generate_series(0, $4::bigint - 1) n) s GROUP BY h, trigger, status`,
	`INSERT INTO connector_rollups (project_id, connector_id, grain, begins_at, trigger_type, status, runs, duration_us)
		SELECT project_id, connector_id, g, CASE g WHEN 'day' THEN begins_at / 86400000000 * 86400000000
			ELSE (extract(epoch FROM date_trunc('month', to_timestamp(begins_at / 1000000) AT TIME ZONE 'UTC')) * 1000000)::bigint END AS b,
			trigger_type, status, sum(runs), 0
		FROM connector_rollups, unnest(ARRAY['day', 'month']) g WHERE project_id = $1::uuid AND connector_id = $2::uuid AND $3::bigint + $4::bigint > 0
		GROUP BY project_id, connector_id, g, b, trigger_type, status`,
}

var justFailed = []store.ConnectorRunStatus{store.ConnectorRunFailed}

// pagesOfTwoDays are pages with the maximum number of blocks per read.
var pagesOfTwoDays = []struct {
	statuses     []store.ConnectorRunStatus
	trigger      store.TriggerType
	offset, most int
	total        int64
}{
	{nil, "", 0, 100, allOfTwoDays},
	{nil, "", allOfTwoDays / 2, 300, allOfTwoDays},
	{nil, "", allOfTwoDays - 30, 300, allOfTwoDays},
	{justFailed, "", 0, 100, allOfTwoDays / 100},
	{justFailed, "", allOfTwoDays/100 - 30, 200, allOfTwoDays / 100},
	{[]store.ConnectorRunStatus{store.ConnectorRunSkipped}, "", 0, 150, 3},
	{[]store.ConnectorRunStatus{store.ConnectorRunFailed, store.ConnectorRunSkipped, store.ConnectorRunPending}, "", 0, 150, allOfTwoDays/100 + 3},
	{nil, store.TriggerCron, 0, 450, 3},
	{nil, store.TriggerCron, 2, 450, 3},
	{[]store.ConnectorRunStatus{store.ConnectorRunCompleted}, store.TriggerCron, 0, 450, 3},
	{nil, store.TriggerWebhook, 0, 150, allOfTwoDays - 3},
}

// Neither the first page nor a deep page nor the total reads all connector runs: forty thousand in
// two days, in two thousand blocks.
func TestListConnectorRuns_ReadsFewBlocks(t *testing.T) {
	t.Parallel()
	dsn := migrated(t)
	scene := *storebench.NewScene(t, openAt(t, dsn), 2)
	_, err := scene.Store.EnsurePartitions(t.Context(), 3)
	require.NoError(t, err)
	db := openDB(t, dsn)
	now, err := scene.Store.Now(t.Context())
	require.NoError(t, err)
	tomorrow := now.UTC().Truncate(24*time.Hour).AddDate(0, 0, 1).UnixMicro()
	for _, statement := range twoDays {
		_, err := db.ExecContext(t.Context(), statement, scene.Project, scene.Connector, tomorrow, allOfTwoDays)
		require.NoError(t, err, statement)
	}
	for _, mode := range modes {
		var seen plans
		s, err := postgres.Open(t.Context(), postgres.Options{DSN: dsn, Evaluate: expr.On}.Tuned(seen.recordPlans(mode)))
		require.NoError(t, err)
		blocks := func() (n int64) {
			require.NoError(t, seen.err)
			for _, p := range seen.all {
				n += p.Plan.blocks()
			}
			seen.forgetPlans()
			return n
		}
		connector := store.Key{ProjectID: scene.Project, ID: scene.Connector}
		for _, since := range []time.Duration{0, time.Hour} {
			for _, c := range pagesOfTwoDays {
				t.Run(fmt.Sprintf("%s %q %q from %d since %s", mode, c.statuses, c.trigger, c.offset, since), func(t *testing.T) {
					blocks()
					page, total, err := s.ListConnectorRuns(t.Context(), store.ConnectorRunQuery{Connector: connector, Since: since, Statuses: c.statuses, Trigger: c.trigger, Offset: c.offset, Limit: 25})
					require.NoError(t, err)
					require.Len(t, page, min(25, int(c.total)-c.offset))
					require.Equal(t, c.total, total)
					read := blocks()
					require.Positive(t, read)
					require.Less(t, read, int64(c.most), "%s, %q, %q from %d", mode, c.statuses, c.trigger, c.offset)
				})
			}
		}
		found, err := s.ConnectorStatistics(t.Context(), store.ConnectorStatisticsQuery{Connector: connector, Since: now})
		require.NoError(t, err)
		require.EqualValues(t, allOfTwoDays, found.Total())
		require.Less(t, blocks(), int64(100), mode)
		found, err = s.ConnectorStatistics(t.Context(), store.ConnectorStatisticsQuery{Connector: connector, Since: now, Trigger: store.TriggerCron})
		require.NoError(t, err)
		require.Equal(t, store.ConnectorRunCompleted, found.Last)
		require.Less(t, blocks(), int64(150), mode)
		require.NoError(t, s.Close())
	}
}
