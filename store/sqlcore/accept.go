// SPDX-License-Identifier: Apache-2.0

package sqlcore

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/agentplatform/agentplatform/store"
	"github.com/agentplatform/agentplatform/store/openrun"
	"github.com/agentplatform/agentplatform/store/outbox"
	"github.com/agentplatform/agentplatform/store/sqldb"
	"github.com/agentplatform/agentplatform/store/storedbytes"
)

// Admitted returns the result of an event whose rows were written at a time of the database's
// clock, in microseconds. n and first order the event and its runs among the rows of that time.
func Admitted(e store.Event, us int64, n, first int) store.Admission {
	a := store.Admission{ConnectorRunID: store.Stamp(e.ConnectorRunID, us, n), RunIDs: make([]uuid.UUID, len(e.Runs))}
	for i, run := range e.Runs {
		a.RunIDs[i] = store.Stamp(run.ID, us, first+i)
	}
	return a
}

// Beginning is the claim with which an event's run starts on acceptance; nil if it is queued.
type Beginning struct {
	Runner, Agent string
	Token         int64
	Link          uuid.UUID
}

// BeginningOf returns the Beginning of an event.
func BeginningOf(e store.Event) *Beginning {
	if e.RunnerID == "" || !e.MayBegin() {
		return nil
	}
	run := e.Runs[0]
	return &Beginning{Runner: sqldb.Text(e.RunnerID), Agent: sqldb.Text(run.AgentName), Token: 1<<openrun.TokenBits | openrun.NewSalts(1)[0], Link: run.LinkID}
}

// LiveAgent selects, for an event e, the environment's live deployment and its bundle, if it has
// the agent without limits. Then a direct handoff depends on no other run. Otherwise it is NULL.
const LiveAgent = `(SELECT CAST(d.id AS text) || d.bundle_digest FROM environments v
	JOIN deployment_agents a ON a.project_id = v.project_id AND a.deployment_id = v.live_deployment_id AND a.name = e.agent AND a.variant_of = ''
	JOIN deployments d ON d.project_id = v.project_id AND d.id = v.live_deployment_id
	WHERE v.project_id = e.project_id AND v.id = e.environment_id AND a.max_concurrent_runs = 0 AND a.concurrency_expression = '')`

// Begun returns the claim on the started run of an accepted event, from the value of LiveAgent, at
// a time of the database's clock in microseconds.
func Begun(e store.Event, a store.Admission, b Beginning, live string, us int64) *store.Claimed {
	at, run := time.UnixMicro(us).UTC(), e.Runs[0]
	deployment, digest := uuid.MustParse(live[:sqldb.IDLength]), live[sqldb.IDLength:]
	return &store.Claimed{
		Run: store.Run{
			ID: a.RunIDs[0], ProjectID: e.ProjectID, EnvironmentID: e.EnvironmentID, AgentName: b.Agent, ConnectorID: &e.ConnectorID,
			ConnectorRunID: &a.ConnectorRunID, LinkID: &run.LinkID, DeploymentID: &deployment, Status: store.RunRunning, Class: e.Class,
			Attempt: 1, QueuedAt: at, StartedAt: &at,
		},
		Token: b.Token, LeaseUntil: at.Add(store.UnconfirmedLease), Now: at, BundleDigest: digest,
		Input: e.Input, InputBlob: e.InputBlob, ContentType: sqldb.Text(e.ContentType), Files: len(e.Files) > 0,
		Headers: e.Headers, Traceparent: e.Traceparent,
	}
}

// EndsAtOnce reports whether the event or one of its runs ends with its acceptance.
func EndsAtOnce(e store.Event) bool {
	for _, run := range e.Runs {
		if run.ErrorCode != "" {
			return true
		}
	}
	return len(e.Runs) == 0
}

// endAtOnce ends the parts of accepted events that end at once, in the accepting transaction and
// with the same statements for all events. It also sends the hints for claimable runs.
func (c *Core) endAtOnce(ctx context.Context, tx *sqldb.Tx, events []store.Event, admissions []store.Admission) error {
	var (
		endings []openrun.Ending
		empty   = map[string][]store.Key{} // by reason
	)
	for i, e := range events {
		before := len(endings)
		for n, run := range e.Runs {
			if run.ErrorCode != "" {
				endings = append(endings, openrun.Ending{
					Run: store.Key{ProjectID: e.ProjectID, ID: admissions[i].RunIDs[n]}, Status: store.RunFailed, Code: run.ErrorCode, Error: sqldb.Text(run.Error),
				})
			}
		}
		switch failed := len(endings) - before; {
		case len(e.Runs) == 0:
			empty[e.Skipped] = append(empty[e.Skipped], store.Key{ProjectID: e.ProjectID, ID: admissions[i].ConnectorRunID})
		case failed > 0 && failed < len(e.Runs):
			tx.Hint(store.TopicQueued, store.Key{ProjectID: e.ProjectID, ID: e.EnvironmentID})
		}
	}
	for _, reason := range slices.Sorted(maps.Keys(empty)) {
		if err := c.closeEmpty(ctx, tx, empty[reason], store.Cut(sqldb.Text(reason), store.MaxError)); err != nil {
			return err
		}
	}
	_, err := c.EndRuns(ctx, tx, endings)
	return err
}

// closeEmpty ends connector runs without runs: completed, or skipped with a reason.
func (c *Core) closeEmpty(ctx context.Context, tx *sqldb.Tx, empty []store.Key, reason string) error {
	status := store.ConnectorRunCompleted
	if reason != "" {
		status = store.ConnectorRunSkipped
	}
	for part := range slices.Chunk(empty, sqldb.MaxIDs) {
		var l, ended sqldb.Args
		where := c.KeyCondition(&l, "id", part) + ` AND runs_left = 0`
		insert := `INSERT INTO ended_connector_runs (project_id, id, environment_id, connector_id, status,
				trigger_type, content_type, run_ids, error, replay_of, started_at, ended_at)
			SELECT project_id, id, environment_id, connector_id, ` + ended.Add(string(status)) + `, trigger_type, content_type, run_ids, ` +
			ended.Add(reason) + `, replay_of, started_at, now_us() FROM open_connector_runs WHERE ` + c.KeyCondition(&ended, "id", part) + ` AND runs_left = 0`
		if _, err := tx.Exec(ctx, insert, ended.Values...); err != nil {
			return sqldb.Wrap(err, "ending %d connector runs without runs", len(part))
		}
		for _, statement := range []string{
			`INSERT INTO outbox (project_id, consumer, ended_id, bytes, posted_at)
			SELECT project_id, '` + storedbytes.Consumer + `', id, input_size, now_us() FROM open_connector_runs WHERE ` + where,
			`DELETE FROM open_connector_runs WHERE ` + where,
		} {
			if _, err := tx.Exec(ctx, statement, l.Values...); err != nil {
				return sqldb.Wrap(err, "ending %d connector runs without runs", len(part))
			}
		}
		if err := outbox.PostConnectorRuns(ctx, tx, part); err != nil {
			return sqldb.Wrap(err, "ending %d connector runs without runs", len(part))
		}
		for _, key := range part {
			tx.Hint(store.TopicDone, key)
		}
	}
	return nil
}
