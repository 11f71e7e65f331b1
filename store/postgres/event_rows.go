// SPDX-License-Identifier: Apache-2.0

package postgres

import (
	"strings"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/agentplatform/agentplatform/store"
	"github.com/agentplatform/agentplatform/store/concurrency"
	"github.com/agentplatform/agentplatform/store/idempotency"
	"github.com/agentplatform/agentplatform/store/runrow"
	"github.com/agentplatform/agentplatform/store/sqlcore"
	"github.com/agentplatform/agentplatform/store/sqldb"
)

// eventRow is an event of an acceptStatement. number orders the events, and firstRun their runs among all of them.
type eventRow struct {
	*store.Event
	number, firstRun int64
	// key is the idempotency key with its settings; nil and zero without one.
	key      *string
	settings store.Idempotency
	// runner gets the run of the event by direct handoff; nil and zero if the runs are queued.
	runner  *string
	handoff sqlcore.Beginning
	files   *string
	// addedSize is the size of the files and the key, in addition to the input.
	addedSize int64
}

// eventRows are the columns of events.
var eventRows = rowset[eventRow]{
	uuidColumn("id", func(e *eventRow) uuid.UUID { return e.ConnectorRunID }),
	uuidColumn("project_id", func(e *eventRow) uuid.UUID { return e.ProjectID }),
	uuidColumn("environment_id", func(e *eventRow) uuid.UUID { return e.EnvironmentID }),
	uuidColumn("connector_id", func(e *eventRow) uuid.UUID { return e.ConnectorID }),
	columnOf("version", func(e *eventRow) int64 { return e.ConnectorVersion }),
	columnOf("trigger_type", func(e *eventRow) string { return string(e.Trigger) }),
	columnOf("input", func(e *eventRow) []byte { return e.Input }),
	columnOf("input_size", func(e *eventRow) int64 { return int64(len(e.Input)) }), // the store knows the size of a blob
	columnOf("input_blob", func(e *eventRow) pgtype.UUID { return nullableUUID(e.InputBlob) }),
	columnOf("content_type", func(e *eventRow) string { return sqldb.Text(e.ContentType) }),
	columnOf("run_ids", func(e *eventRow) string { return e.runIDArray() }),
	columnOf("key", func(e *eventRow) *string { return e.key }),
	columnOf("fingerprint", func(e *eventRow) []byte { return e.settings.Fingerprint }),
	columnOf("ttl", func(e *eventRow) int64 { return e.settings.TTL.Microseconds() }),
	columnOf("secret_until", func(e *eventRow) *int64 { return sqldb.MaybeInstant(e.SecretNotAfter) }),
	columnOf("repeat", func(e *eventRow) bool { return e.Repeat }),
	columnOf("number", func(e *eventRow) int64 { return e.number }),
	columnOf("first_run", func(e *eventRow) int64 { return e.firstRun }),
	columnOf("runner", func(e *eventRow) *string { return e.runner }),
	columnOf("token", func(e *eventRow) int64 { return e.handoff.Token }),
	columnOf("agent", func(e *eventRow) string { return e.handoff.Agent }),
	uuidColumn("link", func(e *eventRow) uuid.UUID { return e.handoff.Link }),
	columnOf("files", func(e *eventRow) *string { return e.files }),
	columnOf("added_size", func(e *eventRow) int64 { return e.addedSize }),
	columnOf("headers", func(e *eventRow) *string { return runrow.HeadersColumn(e.Headers) }),
	columnOf("replay_of", func(e *eventRow) pgtype.UUID { return nullableUUID(e.ReplayOf) }),
	columnOf("hops", func(e *eventRow) int64 { return int64(e.Hops) }),
	columnOf("traceparent", func(e *eventRow) *string { return runrow.TraceparentColumn(e.Traceparent) }),
}

func (e *eventRow) runIDArray() string {
	ids := make([]string, len(e.Runs))
	for i, run := range e.Runs {
		ids[i] = run.ID.String()
	}
	return "{" + strings.Join(ids, ",") + "}"
}

// runRow is a run of an event.
type runRow struct {
	*store.EventRun
	event *eventRow
	// number is the position of the run among the runs of all events, from 1.
	number int64
}

// runRows are the columns of the runs of events.
var runRows = rowset[runRow]{
	uuidColumn("id", func(r *runRow) uuid.UUID { return r.ID }),
	uuidColumn("project_id", func(r *runRow) uuid.UUID { return r.event.ProjectID }),
	uuidColumn("environment_id", func(r *runRow) uuid.UUID { return r.event.EnvironmentID }),
	uuidColumn("connector_id", func(r *runRow) uuid.UUID { return r.event.ConnectorID }),
	uuidColumn("connector_run_id", func(r *runRow) uuid.UUID { return r.event.ConnectorRunID }),
	columnOf("event", func(r *runRow) int64 { return r.event.number }),
	columnOf("number", func(r *runRow) int64 { return r.number }),
	uuidColumn("link_id", func(r *runRow) uuid.UUID { return r.LinkID }),
	columnOf("agent_name", func(r *runRow) string { return sqldb.Text(r.AgentName) }),
	columnOf("class", func(r *runRow) int64 { return int64(r.event.Class) }),
	columnOf("concurrency_key", func(r *runRow) *string { key, _ := concurrency.KeyColumns(*r.EventRun); return key }),
	columnOf("blocked", func(r *runRow) bool { _, blocked := concurrency.KeyColumns(*r.EventRun); return blocked }),
}

// batch is the events of an acceptStatement with their runs.
type batch struct {
	events []eventRow
	runs   []runRow
}

func newBatch(events []store.Event, which []int) batch {
	b := batch{events: make([]eventRow, len(which))}
	for n, i := range which {
		row := &b.events[n]
		*row = eventRow{Event: &events[i], number: int64(n), firstRun: int64(len(b.runs))}
		if row.Idempotency != nil {
			key := sqldb.Text(row.Idempotency.Key)
			row.key, row.settings = &key, *row.Idempotency
		}
		if handoff := sqlcore.BeginningOf(events[i]); handoff != nil {
			row.runner, row.handoff = &handoff.Runner, *handoff
		}
		row.files, row.addedSize = runrow.FilesColumn(row.Files)
		row.addedSize += idempotency.KeySize(events[i])
		for k := range row.Runs {
			b.runs = append(b.runs, runRow{EventRun: &row.Runs[k], event: row, number: int64(len(b.runs) + 1)})
		}
	}
	return b
}

// admissionOf returns the result of the n-th event, whose rows were written.
func (b batch) admissionOf(n int, f eventResult) store.Admission {
	e := b.events[n]
	a := sqlcore.Admitted(*e.Event, f.at, n, int(e.firstRun)+1)
	if f.live != nil {
		a.Begun = sqlcore.Begun(*e.Event, a, e.handoff, *f.live, f.at)
	}
	return a
}

// neededParts returns the optional parts that the events need.
func (b batch) neededParts() (p acceptParts) {
	for _, e := range b.events {
		p.blobs, p.keys, p.begun = p.blobs || e.InputBlob != nil, p.keys || e.Idempotency != nil, p.begun || e.runner != nil
	}
	return p
}

// arguments returns the arguments of an acceptStatement.
func (b batch) arguments() []any {
	return append(eventRows.arguments(b.events), runRows.arguments(b.runs)...)
}
