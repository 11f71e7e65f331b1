// SPDX-License-Identifier: Apache-2.0

package postgres_test

import (
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/store"
)

// A run with invalid data does not keep other expired claims from ending.
func TestSweepLeases_IsolatesBadRun(t *testing.T) {
	t.Parallel()
	dsn := migrated(t)
	s := openAt(t, dsn)
	admin, err := pgx.Connect(t.Context(), dsn)
	require.NoError(t, err)
	for _, statement := range []string{
		`CREATE FUNCTION poison() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'poison' USING ERRCODE = '23000'; END $$`,
		`CREATE TRIGGER poison BEFORE UPDATE ON open_runs FOR EACH ROW WHEN (OLD.agent_name = 'poison') EXECUTE FUNCTION poison()`,
		`INSERT INTO open_runs (project_id, id, environment_id, agent_name, input_id, status, class, deployment_id, attempt, lease_until, queued_at)
			SELECT md5(agent)::uuid, stamp(md5(agent)::uuid, now_us(), 0), md5(agent)::uuid, agent, md5(agent)::uuid, 'running', 1, md5(agent)::uuid, 1, 1, 1
			FROM unnest(ARRAY['poison', 'first', 'second']) agent`,
	} {
		_, err := admin.Exec(t.Context(), statement)
		require.NoError(t, err)
	}
	require.NoError(t, admin.Close(t.Context()))
	swept, err := s.SweepLeases(t.Context(), 10)
	require.ErrorContains(t, err, "poison")
	require.Equal(t, 2, swept.GivenBack)
	at, err := s.Now(t.Context())
	require.NoError(t, err)
	require.WithinDuration(t, time.Now(), at, store.MaxOpen)
}
