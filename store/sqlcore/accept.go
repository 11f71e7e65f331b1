// SPDX-License-Identifier: Apache-2.0

package sqlcore

import (
	"bytes"
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/agentplatform/agentplatform/store"
)

// keyed is an idempotency key of a connector.
type keyed struct {
	connector store.Key
	key       string
}

// FirstOfKeys are the events to accept next: those that are not decided, of several
// under one key the first. Those that follow one that is decided are answered by it.
func FirstOfKeys(events []store.Event, decided []bool, out []store.Admission) (now []int) {
	first, going := map[keyed]int{}, map[keyed]bool{}
	for i, e := range events {
		if e.Repeat && e.Idempotency == nil {
			out[i], decided[i] = store.Admission{Err: fmt.Errorf("a repetition without its key: %w", store.ErrInvalid)}, true
		}
		if e.Idempotency == nil {
			if !decided[i] {
				now = append(now, i)
			}
			continue
		}
		key := keyed{store.Key{ProjectID: e.ProjectID, ID: e.ConnectorID}, e.Idempotency.Key}
		if decided[i] {
			if _, known := first[key]; !known && out[i].Err == nil && out[i].Verdict != store.Outdated {
				first[key] = i
			}
			continue
		}
		if at, known := first[key]; known {
			if out[i], decided[i] = following(events[at], out[at], e); decided[i] {
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

// following is the answer to an event under a key for which another was decided;
// not decided where that one does not tell.
func following(first store.Event, a store.Admission, e store.Event) (store.Admission, bool) {
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

// Admitted is the answer to an event whose rows were written at a moment of the
// database's clock, in microseconds; n and first order it, and its runs, among those
// of that moment.
func Admitted(e store.Event, us int64, n, first int) store.Admission {
	a := store.Admission{ConnectorRunID: store.Stamp(e.ConnectorRunID, us, n), RunIDs: make([]uuid.UUID, len(e.Runs))}
	for i, run := range e.Runs {
		a.RunIDs[i] = store.Stamp(run.ID, us, first+i)
	}
	return a
}

// Beginning is how the run of an event begins with its acceptance; nil where it is to
// be queued.
type Beginning struct {
	Runner, Agent string
	Token         int64
	Link          uuid.UUID
}

// BeginningOf is that of an event.
func BeginningOf(e store.Event) *Beginning {
	if e.RunnerID == "" || !e.MayBegin() {
		return nil
	}
	run := e.Runs[0]
	return &Beginning{Runner: Text(e.RunnerID), Agent: Text(run.AgentName), Token: 1<<TokenBits | salts(1)[0], Link: run.LinkID}
}

// LiveAgent selects columns of the live deployment d of an environment where that has an
// agent without limits, so that whether a run of it may begin depends on no other run.
func LiveAgent(columns, project, environment, agent string) string {
	return `SELECT ` + columns + ` FROM environments v
		JOIN deployment_agents a ON a.project_id = ` + project + ` AND a.deployment_id = v.live_deployment_id AND a.name = ` + agent + `
		JOIN deployments d ON d.project_id = ` + project + ` AND d.id = v.live_deployment_id
		WHERE v.project_id = ` + project + ` AND v.id = ` + environment + ` AND a.max_concurrent_runs = 0 AND a.concurrency_expression = ''`
}

// Begun is the claim on the run of an accepted event that has begun, by a deployment
// with a bundle, at a moment of the database's clock in microseconds.
func Begun(e store.Event, a store.Admission, b Beginning, deployment uuid.UUID, digest string, us int64) *store.Claimed {
	at, run := time.UnixMicro(us).UTC(), e.Runs[0]
	return &store.Claimed{
		Run: store.Run{
			ID: a.RunIDs[0], ProjectID: e.ProjectID, EnvironmentID: e.EnvironmentID, AgentName: b.Agent, ConnectorID: &e.ConnectorID,
			ConnectorRunID: &a.ConnectorRunID, LinkID: &run.LinkID, DeploymentID: &deployment, Status: store.RunRunning, Class: e.Class,
			Attempt: 1, QueuedAt: at, StartedAt: &at,
		},
		Token: b.Token, LeaseUntil: at.Add(store.UnconfirmedLease), Now: at, BundleDigest: digest,
		Input: e.Input, InputBlob: e.InputBlob, ContentType: Text(e.ContentType),
	}
}

// EndsAtOnce says whether something of an event ends with its acceptance.
func EndsAtOnce(e store.Event) bool {
	for _, run := range e.Runs {
		if run.ErrorCode != "" {
			return true
		}
	}
	return len(e.Runs) == 0
}

// EndAtOnce ends what of an accepted event ends at once, in the transaction that
// recorded it, and hints at what is to be claimed.
func (c *Core) EndAtOnce(ctx context.Context, tx *Tx, e store.Event, a store.Admission) error {
	var endings []Ending
	for i, run := range e.Runs {
		if run.ErrorCode != "" {
			endings = append(endings, Ending{
				Run: store.Key{ProjectID: e.ProjectID, ID: a.RunIDs[i]}, Status: store.RunFailed, Code: run.ErrorCode, Error: Text(run.Error),
			})
		}
	}
	if len(endings) < len(e.Runs) {
		tx.Hint(store.TopicQueued, store.Key{ProjectID: e.ProjectID, ID: e.EnvironmentID})
	}
	if len(e.Runs) == 0 {
		return closeEmpty(ctx, tx, store.Key{ProjectID: e.ProjectID, ID: a.ConnectorRunID})
	}
	_, err := c.end(ctx, tx, endings)
	return err
}

// closeEmpty ends a connector run that has no runs.
func closeEmpty(ctx context.Context, tx *Tx, key store.Key) error {
	if _, err := tx.exec(ctx, `INSERT INTO ended_connector_runs (project_id, id, environment_id, connector_id, status,
			trigger_type, content_type, run_ids, error, started_at, ended_at)
		SELECT project_id, id, environment_id, connector_id, 'completed', trigger_type, content_type, run_ids, '', started_at, now_us()
		FROM open_connector_runs WHERE project_id = $1 AND id = $2 AND runs_left = 0`, key.ProjectID, key.ID); err != nil {
		return wrap(err, "ending connector run %s", key)
	}
	tx.Hint(store.TopicDone, key)
	if _, err := tx.exec(ctx, `INSERT INTO outbox (project_id, consumer, ended_id, bytes, posted_at)
		SELECT project_id, '`+storage+`', id, input_size, now_us() FROM open_connector_runs
		WHERE project_id = $1 AND id = $2 AND runs_left = 0`, key.ProjectID, key.ID); err != nil {
		return wrap(err, "ending connector run %s", key)
	}
	_, err := tx.exec(ctx, `DELETE FROM open_connector_runs WHERE project_id = $1 AND id = $2 AND runs_left = 0`, key.ProjectID, key.ID)
	return wrap(err, "ending connector run %s", key)
}

// KnownKey implements store.Ingest.
func (c *Core) KnownKey(ctx context.Context, connector store.Key, key string) (known bool, err error) {
	err = c.engine.Reader().QueryRowContext(ctx, `SELECT EXISTS (SELECT 1 FROM idempotency_keys
		WHERE project_id = $1 AND connector_id = $2 AND key = $3 AND expires_at > now_us())`,
		connector.ProjectID, connector.ID, Text(key)).Scan(&known)
	return known, wrap(err, "looking for an idempotency key of connector %s", connector)
}

// Earlier finds what an idempotency key stands for: the admission of the event
// that had it first. ErrNotFound when the key has expired meanwhile.
func (c *Core) Earlier(ctx context.Context, q Queryer, e store.Event) (store.Admission, error) {
	var (
		first       uuid.UUID
		fingerprint []byte
	)
	err := q.QueryRowContext(ctx, `SELECT connector_run_id, fingerprint FROM idempotency_keys
		WHERE project_id = $1 AND connector_id = $2 AND key = $3 AND expires_at > now_us()`,
		e.ProjectID, e.ConnectorID, Text(e.Idempotency.Key)).Scan(&first, &fingerprint)
	if err != nil {
		return store.Admission{}, wrap(found(err), "reading an idempotency key")
	}
	if e.Idempotency.Fingerprint != nil && fingerprint != nil && !bytes.Equal(e.Idempotency.Fingerprint, fingerprint) {
		return store.Admission{Verdict: store.KeyReused, ConnectorRunID: first}, nil
	}
	run, err := c.connectorRun(ctx, q, store.Key{ProjectID: e.ProjectID, ID: first})
	if err != nil {
		return store.Admission{}, err
	}
	return store.Admission{Verdict: store.Repeated, ConnectorRunID: first, RunIDs: run.RunIDs}, nil
}
