// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"cmp"
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/store"
	"github.com/agentplatform/agentplatform/store/openrun"
)

const (
	// postgresClients is the number of clients of a yardstick on PostgreSQL, each with its own connection.
	postgresClients = 64
	leaseTime       = store.LeaseDuration
	seenEvery       = openrun.RunnerSeenEvery
	// agentName is the one agent's.
	agentName = "greeter"

	insertConnectorRun = `INSERT INTO connector_runs (id, project_id, environment_id, connector_id, status, trigger_type,
		input, content_type, open_runs, failed_runs, started_at) VALUES ($1, $2, $3, $4, 'running', 'webhook', $5, 'application/json', 1, 0, $6)`
	insertAgentRun = `INSERT INTO agent_runs (id, project_id, environment_id, connector_id, connector_run_id, link_id, position,
		agent_name, status, error_code, error, queued_at) VALUES ($1, $2, $3, $4, $5, $6, 0, '` + agentName + `', 'queued', '', '', $7)`
)

var (
	// input is 1 KiB of JSON, output 200 bytes, and answer the journal entry that holds it.
	input  = []byte(`{"text":"` + strings.Repeat("x", 1013) + `"}`)
	output = strings.Repeat("y", 200)
	answer = `{"text":"` + output + `"}`

	errNotAccepted = errors.New("the run was not accepted")
)

// cmpErr returns err, or otherwise if err is nil.
func cmpErr(err, otherwise error) error { return cmp.Or(err, otherwise) }

// yardstick is a database with its own tables. A run in it costs plain SQL alone: no HTTP, no runner, no batches. Its tables
// and statements do not follow changes of the store, so that figures stay comparable over time.
type yardstick struct {
	// clients is the number of concurrent calls of run.
	clients int
	dsn     string // of PostgreSQL
	// insert is BEGIN, the two INSERTs of an accepted event, COMMIT.
	insert func(ctx context.Context) error
	// run accepts a run, claims one and completes it.
	run func(ctx context.Context) error
}

// scene holds the IDs of the objects that a yardstick's runs belong to.
type scene struct{ project, environment, connector, link, deployment uuid.UUID }

func newScene() scene { return scene{uuid.New(), uuid.New(), uuid.New(), uuid.New(), uuid.New()} }

// rows are the statements that insert it.
func (s scene) rows() string {
	return strings.NewReplacer("{project}", s.project.String(), "{environment}", s.environment.String(),
		"{connector}", s.connector.String(), "{deployment}", s.deployment.String(), "{agent}", agentName).Replace(`
INSERT INTO environments (id, project_id, display_name, wanted_slug, slug, kind, object_created_at, is_default,
	live_deployment_id, live_rank, live_activated_at, wanted_bundle_digest, created_at)
VALUES ('{environment}', '{project}', 'dev', 'dev', 'dev', 'standard', 1, TRUE, '{deployment}', 1, 1, '', 1);
INSERT INTO connectors (id, project_id, environment_id, name, type, mode, enabled, retired, defined_in_code, config,
	require_authentication, timeout_seconds, files_required, secrets, secret_grace_us, version, created_at, updated_at)
VALUES ('{connector}', '{project}', '{environment}', 'c', 'webhook', 'inbound', TRUE, FALSE, FALSE, '{}', FALSE, 30, FALSE, '[]', 0, 1, 1, 1);
INSERT INTO deployments (id, project_id, environment_id, cluster_uid, namespace, name, object_uid, generation, fingerprint,
	source_type, branch, commit_wanted, skip_tests, skip_failed_connectors, sequence, status, built, bundle_digest, created_at, ended_at)
VALUES ('{deployment}', '{project}', '{environment}', '', '', 'd', '', 1, 'f', 'git', '', '', FALSE, FALSE, 1, 'deployed', TRUE, 'sha256:0', 1, 1);
INSERT INTO deployment_agents (deployment_id, name) VALUES ('{deployment}', '{agent}');`)
}

// A run of the yardstick must pass through all statements. Otherwise the yardstick measures nothing.
func TestYardstick_RunsToTheEnd(t *testing.T) {
	for name, open := range map[string]func(testing.TB) *yardstick{"postgres": yardstickPostgres, "sqlite": yardstickSQLite} {
		t.Run(name, func(t *testing.T) {
			y := open(t)
			require.NoError(t, y.insert(t.Context()))
			for range 3 {
				require.NoError(t, y.run(t.Context()))
			}
		})
	}
}
