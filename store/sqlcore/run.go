// SPDX-License-Identifier: Apache-2.0

package sqlcore

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/google/uuid"

	"github.com/agentplatform/agentplatform/store"
)

// runColumns are of agent_runs r.
const runColumns = `r.id, r.project_id, r.environment_id, r.agent_name, r.connector_id, r.connector_run_id, r.link_id,
	r.deployment_id, r.status, r.error_code, r.error, r.output, r.fencing_token, r.input_tokens, r.output_tokens,
	r.thinking_tokens, r.cached_input_tokens, r.total_tokens, r.queued_at, r.started_at, r.ended_at`

// listedRunColumns are runColumns without the output, which lists do not carry.
var listedRunColumns = strings.Replace(runColumns, "r.output", "''", 1)

// runFields are the destinations of runColumns. Each claim raises the fencing
// token by one, so it counts the attempts.
func runFields(r *store.Run) []any {
	return []any{
		&r.ID, &r.ProjectID, &r.EnvironmentID, &r.AgentName, &r.ConnectorID, &r.ConnectorRunID, &r.LinkID,
		&r.DeploymentID, &r.Status, &r.ErrorCode, &r.Error, &r.Output, &r.Attempt, &r.Usage.InputTokens,
		&r.Usage.OutputTokens, &r.Usage.ThinkingTokens, &r.Usage.CachedInputTokens, &r.Usage.TotalTokens,
		at(&r.QueuedAt), maybeAt(&r.StartedAt), maybeAt(&r.EndedAt),
	}
}

func scanRun(row scanner) (r store.Run, err error) {
	err = row.Scan(runFields(&r)...)
	return r, err
}

// Run implements store.History.
func (c *Core) Run(ctx context.Context, key store.Key) (store.Run, error) {
	run, err := scanRun(c.engine.Reader().QueryRowContext(ctx,
		`SELECT `+runColumns+` FROM agent_runs r WHERE r.project_id = $1 AND r.id = $2`, key.ProjectID, key.ID))
	return run, wrap(found(err), "reading run %s", key)
}

// Outcome implements store.History. One statement is one snapshot.
func (c *Core) Outcome(ctx context.Context, connectorRun store.Key) (store.Outcome, error) {
	var outcome store.Outcome
	runs, err := collect(ctx, c.engine.Reader(), func(row scanner) (r store.Run, err error) {
		err = row.Scan(append([]any{&outcome.Status}, runFields(&r)...)...)
		return r, err
	}, `SELECT c.status, `+runColumns+` 
		FROM connector_runs c JOIN agent_runs r ON r.project_id = c.project_id AND r.connector_run_id = c.id
		WHERE c.project_id = $1 AND c.id = $2 ORDER BY r.position`, connectorRun.ProjectID, connectorRun.ID)
	if err == nil && len(runs) == 0 { // none, or one without runs
		err = found(c.engine.Reader().QueryRowContext(ctx, `SELECT status FROM connector_runs WHERE project_id = $1 AND id = $2`,
			connectorRun.ProjectID, connectorRun.ID).Scan(&outcome.Status))
	}
	outcome.Runs = runs
	return outcome, wrap(err, "reading the outcome of connector run %s", connectorRun)
}

// RunInput implements store.History.
func (c *Core) RunInput(ctx context.Context, key store.Key) (string, io.ReadCloser, error) {
	var (
		contentType string
		input       []byte
		blob        *uuid.UUID
	)
	err := c.engine.Reader().QueryRowContext(ctx, `SELECT c.content_type, c.input, c.input_blob
		FROM agent_runs r JOIN connector_runs c ON c.project_id = r.project_id AND c.id = r.connector_run_id
		WHERE r.project_id = $1 AND r.id = $2`, key.ProjectID, key.ID).Scan(&contentType, &input, &blob)
	switch {
	case err != nil:
		return "", nil, wrap(found(err), "reading the input of run %s", key)
	case blob == nil:
		return contentType, io.NopCloser(bytes.NewReader(input)), nil
	}
	body, err := c.OpenBlob(ctx, store.Key{ProjectID: key.ProjectID, ID: *blob})
	return contentType, body, wrap(err, "reading the input of run %s", key)
}

// Journal implements store.History.
func (c *Core) Journal(ctx context.Context, run store.Key) ([]store.JournalEntry, error) {
	journals, err := c.Journals(ctx, []store.Key{run})
	return journals[run], err
}

// Journals reads the journals of several runs.
func (c *Core) Journals(ctx context.Context, runs []store.Key) (map[store.Key][]store.JournalEntry, error) {
	out := map[store.Key][]store.JournalEntry{}
	var l list
	_, err := collect(ctx, c.engine.Reader(), func(row scanner) (none struct{}, err error) {
		var (
			run   store.Key
			entry store.JournalEntry
		)
		err = row.Scan(&run.ProjectID, &run.ID, &entry.Sequence, &entry.Kind, document{&entry.Data}, &entry.Unsafe)
		out[run] = append(out[run], entry)
		return none, err
	}, `SELECT project_id, run_id, sequence, kind, data, unsafe FROM journal
		WHERE `+l.keys("run_id", runs)+` ORDER BY project_id, run_id, sequence`, l.args...)
	return out, wrap(err, "reading journals")
}

// ListRuns implements store.History.
func (c *Core) ListRuns(ctx context.Context, q store.RunQuery) ([]store.Run, error) {
	l, narrow := list{args: []any{q.ProjectID}}, ""
	if q.EnvironmentIDs != nil {
		if len(q.EnvironmentIDs) == 0 {
			return nil, nil
		}
		narrow += ` AND r.environment_id IN ` + l.ids(q.EnvironmentIDs)
	}
	if q.AgentName != "" {
		narrow += ` AND r.agent_name = ` + l.add(q.AgentName)
	}
	if q.Status != "" {
		narrow += ` AND r.status = ` + l.add(string(q.Status))
	}
	if q.Before != nil {
		narrow += ` AND r.id < ` + l.add(*q.Before)
	}
	runs, err := collect(ctx, c.engine.Reader(), scanRun, `SELECT `+listedRunColumns+` FROM agent_runs r
		WHERE r.project_id = $1`+narrow+` ORDER BY r.id DESC LIMIT `+l.add(q.Limit), l.args...)
	return runs, wrap(err, "listing runs of project %s", q.ProjectID)
}

// connectorRunColumns are of connector_runs c.
const connectorRunColumns = `c.id, c.project_id, c.environment_id, c.connector_id, c.status, c.trigger_type, c.error,
	c.content_type, c.started_at, c.ended_at`

func scanConnectorRun(row scanner) (r store.ConnectorRun, err error) {
	err = row.Scan(&r.ID, &r.ProjectID, &r.EnvironmentID, &r.ConnectorID, &r.Status, &r.Trigger, &r.Error,
		&r.ContentType, at(&r.StartedAt), maybeAt(&r.EndedAt))
	return r, err
}

// ConnectorRun implements store.History.
func (c *Core) ConnectorRun(ctx context.Context, key store.Key) (store.ConnectorRun, error) {
	run, err := scanConnectorRun(c.engine.Reader().QueryRowContext(ctx,
		`SELECT `+connectorRunColumns+` FROM connector_runs c WHERE c.project_id = $1 AND c.id = $2`, key.ProjectID, key.ID))
	if err != nil {
		return run, wrap(found(err), "reading connector run %s", key)
	}
	runs := []store.ConnectorRun{run}
	err = runIDs(ctx, c.engine.Reader(), key.ProjectID, runs)
	return runs[0], err
}

// runIDs fills in the agent runs of connector runs of a project.
func runIDs(ctx context.Context, q Queryer, project uuid.UUID, runs []store.ConnectorRun) error {
	if len(runs) == 0 {
		return nil
	}
	var (
		l     = list{args: []any{project}}
		ids   = make([]uuid.UUID, len(runs))
		index = map[uuid.UUID]int{}
	)
	for i, run := range runs {
		ids[i], index[run.ID] = run.ID, i
	}
	_, err := collect(ctx, q, func(row scanner) (none struct{}, err error) {
		var of, id uuid.UUID
		err = row.Scan(&of, &id)
		if i, ok := index[of]; ok {
			runs[i].RunIDs = append(runs[i].RunIDs, id)
		}
		return none, err
	}, `SELECT connector_run_id, id FROM agent_runs WHERE project_id = $1 AND connector_run_id IN `+l.ids(ids)+`
		ORDER BY position`, l.args...)
	return wrap(err, "reading the runs of connector runs")
}

// ListConnectorRuns implements store.History.
func (c *Core) ListConnectorRuns(ctx context.Context, q store.ConnectorRunQuery) ([]store.ConnectorRun, int64, error) {
	var (
		l      = list{args: []any{q.Connector.ProjectID, q.Connector.ID}}
		narrow string
		runs   []store.ConnectorRun
		total  int64
	)
	if q.Since > 0 {
		narrow += ` AND c.started_at >= now_us() - ` + l.add(q.Since.Microseconds())
	}
	if q.Status != "" {
		narrow += ` AND c.status = ` + l.add(string(q.Status))
	}
	if q.Trigger != "" {
		narrow += ` AND c.trigger_type = ` + l.add(string(q.Trigger))
	}
	err := c.engine.Snapshot(ctx, func(ctx context.Context, tx Queryer) (err error) {
		if err := tx.QueryRowContext(ctx, `SELECT count(*) FROM connector_runs c
			WHERE c.project_id = $1 AND c.connector_id = $2`+narrow, l.args...).Scan(&total); err != nil {
			return err
		}
		page := list{args: append([]any(nil), l.args...)}
		runs, err = collect(ctx, tx, scanConnectorRun, `SELECT `+connectorRunColumns+` FROM connector_runs c
			WHERE c.project_id = $1 AND c.connector_id = $2`+narrow+`
			ORDER BY c.id DESC LIMIT `+page.add(q.Limit)+` OFFSET `+page.add(q.Offset), page.args...)
		if err != nil {
			return err
		}
		return runIDs(ctx, tx, q.Connector.ProjectID, runs)
	})
	return runs, total, wrap(err, "listing runs of connector %s", q.Connector)
}

// Earlier finds what an idempotency key stands for: the admission of the event
// that had it first. ErrNotFound when the key has expired meanwhile.
func Earlier(ctx context.Context, q Queryer, e store.Event) (store.Admission, error) {
	var (
		first       uuid.UUID
		fingerprint []byte
	)
	err := q.QueryRowContext(ctx, `SELECT connector_run_id, fingerprint FROM idempotency_keys
		WHERE project_id = $1 AND connector_id = $2 AND key = $3`,
		e.ProjectID, e.ConnectorID, Text(e.Idempotency.Key)).Scan(&first, &fingerprint)
	if err != nil {
		return store.Admission{}, wrap(found(err), "reading an idempotency key")
	}
	if e.Idempotency.Fingerprint != nil && fingerprint != nil && !bytes.Equal(e.Idempotency.Fingerprint, fingerprint) {
		return store.Admission{Verdict: store.KeyReused, ConnectorRunID: first}, nil
	}
	runs := []store.ConnectorRun{{ID: first}}
	if err := runIDs(ctx, q, e.ProjectID, runs); err != nil {
		return store.Admission{}, err
	}
	return store.Admission{Verdict: store.Repeated, ConnectorRunID: first, RunIDs: runs[0].RunIDs}, nil
}

// Ended judges a completion that changed nothing: nil when the same claim has
// completed the run before.
func Ended(ctx context.Context, q Queryer, l store.Lease) error {
	var completed *int64
	err := found(q.QueryRowContext(ctx, `SELECT completion_token FROM agent_runs WHERE project_id = $1 AND id = $2`,
		l.Run.ProjectID, l.Run.ID).Scan(&completed))
	switch {
	case errors.Is(err, store.ErrNotFound):
		return err
	case err != nil:
		return fmt.Errorf("reading the completion: %w", err)
	case completed != nil && *completed == l.Token:
		return nil
	}
	return store.ErrFenced
}
