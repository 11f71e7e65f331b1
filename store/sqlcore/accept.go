// SPDX-License-Identifier: Apache-2.0

package sqlcore

import (
	"bytes"
	"context"
	"fmt"
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

// idempotencyKey is an idempotency key of a connector.
type idempotencyKey struct {
	connector store.Key
	key       string
}

// FirstOfKeys returns the events to accept next: all undecided events, but only the first event of each
// key. Later events with the key get the result of the first.
func FirstOfKeys(events []store.Event, decided []bool, out []store.Admission) (now []int) {
	first, going := map[idempotencyKey]int{}, map[idempotencyKey]bool{}
	for i, e := range events {
		if e.Repeat && e.Idempotency == nil {
			out[i], decided[i] = store.Admission{Err: fmt.Errorf("a duplicate request without its key: %w", store.ErrInvalid)}, true
		}
		if e.Idempotency == nil {
			if !decided[i] {
				now = append(now, i)
			}
			continue
		}
		key := idempotencyKey{store.Key{ProjectID: e.ProjectID, ID: e.ConnectorID}, e.Idempotency.Key}
		if decided[i] {
			if _, known := first[key]; !known && out[i].Err == nil && out[i].Verdict != store.Outdated {
				first[key] = i
			}
			continue
		}
		if at, known := first[key]; known {
			if out[i], decided[i] = resultOfDuplicate(events[at], out[at], e); decided[i] {
				continue
			}
		}
		if !going[key] {
			going[key] = true
			now = append(now, i)
		}
	}
	return now
}

// resultOfDuplicate returns the result of an event with the key of another event. It returns false if the
// result of the other event is not conclusive.
func resultOfDuplicate(first store.Event, a store.Admission, e store.Event) (store.Admission, bool) {
	fingerprints := [2][]byte{first.Idempotency.Fingerprint, e.Idempotency.Fingerprint}
	same := bytes.Equal(fingerprints[0], fingerprints[1])
	stands := store.Admission{Verdict: store.Repeated, ConnectorRunID: a.ConnectorRunID, RunIDs: a.RunIDs}
	switch {
	case a.Verdict == store.Accepted && (same || fingerprints[0] == nil || fingerprints[1] == nil), a.Verdict == store.Repeated && same:
		return stands, true
	case a.Verdict == store.Accepted, a.Verdict == store.KeyReused && same:
		return store.Admission{Verdict: store.KeyReused, ConnectorRunID: a.ConnectorRunID}, true
	}
	return store.Admission{}, false
}

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

// KnownKey implements store.Ingest.
func (c *Core) KnownKey(ctx context.Context, connector store.Key, key string) (known bool, err error) {
	err = c.engine.Reader().QueryRowContext(ctx, `SELECT EXISTS (SELECT 1 FROM idempotency_keys
		WHERE project_id = $1 AND connector_id = $2 AND key = $3 AND expires_at > now_us())`,
		connector.ProjectID, connector.ID, sqldb.Text(key)).Scan(&known)
	return known, sqldb.Wrap(err, "reading an idempotency key of connector %s", connector)
}

// Earlier returns the admission of the first event with an idempotency key. ErrNotFound if the key
// has expired meanwhile.
func (c *Core) Earlier(ctx context.Context, q sqldb.Queryer, e store.Event) (store.Admission, error) {
	var first First
	err := first.Scan(q.QueryRowContext(ctx, `SELECT connector_run_id, fingerprint, run_ids FROM idempotency_keys
		WHERE project_id = $1 AND connector_id = $2 AND key = $3 AND expires_at > now_us()`,
		e.ProjectID, e.ConnectorID, sqldb.Text(e.Idempotency.Key)))
	return first.Answer(e), sqldb.Wrap(sqldb.MapNoRows(err), "reading an idempotency key")
}

// First is the stored result of the first event with a key.
type First struct {
	connectorRun uuid.UUID
	fingerprint  []byte
	runs         []uuid.UUID
}

// Scan reads the columns connector_run_id, fingerprint and run_ids, after the columns in before.
func (f *First) Scan(row sqldb.Scanner, before ...any) error {
	return row.Scan(append(before, &f.connectorRun, &f.fingerprint, sqldb.ScanIDs(&f.runs))...)
}

// Answer returns the result for another event with the key.
func (f *First) Answer(e store.Event) store.Admission {
	if e.Idempotency.Fingerprint != nil && f.fingerprint != nil && !bytes.Equal(e.Idempotency.Fingerprint, f.fingerprint) {
		return store.Admission{Verdict: store.KeyReused, ConnectorRunID: f.connectorRun}
	}
	return store.Admission{Verdict: store.Repeated, ConnectorRunID: f.connectorRun, RunIDs: f.runs}
}
