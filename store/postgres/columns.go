// SPDX-License-Identifier: Apache-2.0

package postgres

import (
	"slices"
	"strings"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/agentplatform/agentplatform/store"
	"github.com/agentplatform/agentplatform/store/sqlcore"
)

// eventColumns are events as the arrays of an acceptStatement.
type eventColumns struct {
	id, project, environment, connector, blob []pgtype.UUID
	version, inputSize, ttl                   []int64
	trigger, contentType, runIDs              []string
	input, fingerprint                        [][]byte
	key                                       []*string
	secretUntil                               []*int64
	repeat                                    []bool

	// number and firstRun order the events, and their runs among all of them.
	number, firstRun []int64

	// beginning has the direct handoff of each event; nil if its run is queued.
	beginning               []*sqlcore.Beginning
	beginRunner, beginAgent []*string
	beginToken              []int64
	beginLink               []pgtype.UUID

	files     []*string
	addedSize []int64 // of the files and the key, in addition to the input
	headers   []*string
	replayOf  []pgtype.UUID
	hops      []int64
	parent    []*string // traceparent

	run, runProject, runLink                      []pgtype.UUID
	runEnvironment, runConnector, runConnectorRun []pgtype.UUID
	runAgent                                      []string
	runOf, runNumber, runClass                    []int64
	runKey                                        []*string
	runBlocked                                    []bool
}

func (c *eventColumns) addEvent(e store.Event) {
	id, project, environment, connector := validUUID(e.ConnectorRunID), validUUID(e.ProjectID), validUUID(e.EnvironmentID), validUUID(e.ConnectorID)
	number := int64(len(c.id))
	c.number, c.firstRun = append(c.number, number), append(c.firstRun, int64(len(c.run)))
	ids := make([]string, len(e.Runs))
	for i, run := range e.Runs {
		ids[i] = run.ID.String()
		c.runNumber, c.runOf = append(c.runNumber, int64(len(c.run)+1)), append(c.runOf, number)
		c.run, c.runProject, c.runLink = append(c.run, validUUID(run.ID)), append(c.runProject, project), append(c.runLink, validUUID(run.LinkID))
		c.runEnvironment, c.runConnector = append(c.runEnvironment, environment), append(c.runConnector, connector)
		c.runConnectorRun = append(c.runConnectorRun, id)
		key, blocked := sqlcore.KeyColumns(run)
		c.runKey, c.runBlocked = append(c.runKey, key), append(c.runBlocked, blocked)
		c.runAgent, c.runClass = append(c.runAgent, sqlcore.Text(run.AgentName)), append(c.runClass, int64(e.Class))
	}
	c.id, c.project = append(c.id, id), append(c.project, project)
	c.environment, c.connector = append(c.environment, environment), append(c.connector, connector)
	c.version, c.trigger = append(c.version, e.ConnectorVersion), append(c.trigger, string(e.Trigger))
	c.runIDs = append(c.runIDs, "{"+strings.Join(ids, ",")+"}")
	c.input, c.blob = append(c.input, e.Input), append(c.blob, nullableUUID(e.InputBlob))
	c.inputSize = append(c.inputSize, int64(len(e.Input))) // the store knows the size of a blob
	c.contentType = append(c.contentType, sqlcore.Text(e.ContentType))
	files, filesSize := sqlcore.FilesColumn(e.Files)
	c.files, c.addedSize = append(c.files, files), append(c.addedSize, filesSize+sqlcore.KeySize(e))
	c.headers = append(c.headers, sqlcore.HeadersColumn(e.Headers))
	c.replayOf, c.hops = append(c.replayOf, nullableUUID(e.ReplayOf)), append(c.hops, int64(e.Hops))
	c.parent = append(c.parent, sqlcore.TraceparentColumn(e.Traceparent))
	c.secretUntil = append(c.secretUntil, sqlcore.MaybeInstant(e.SecretNotAfter))
	c.repeat = append(c.repeat, e.Repeat)
	c.addBeginning(sqlcore.BeginningOf(e))
	if i := e.Idempotency; i != nil {
		key := sqlcore.Text(i.Key)
		c.key, c.fingerprint, c.ttl = append(c.key, &key), append(c.fingerprint, i.Fingerprint), append(c.ttl, i.TTL.Microseconds())
	} else {
		c.key, c.fingerprint, c.ttl = append(c.key, nil), append(c.fingerprint, nil), append(c.ttl, 0)
	}
}

func (c *eventColumns) addBeginning(b *sqlcore.Beginning) {
	c.beginning = append(c.beginning, b)
	if b == nil {
		c.beginRunner, c.beginAgent = append(c.beginRunner, nil), append(c.beginAgent, nil)
		c.beginToken, c.beginLink = append(c.beginToken, 0), append(c.beginLink, pgtype.UUID{})
		return
	}
	c.beginRunner, c.beginAgent = append(c.beginRunner, &b.Runner), append(c.beginAgent, &b.Agent)
	c.beginToken, c.beginLink = append(c.beginToken, b.Token), append(c.beginLink, validUUID(b.Link))
}

// admissionOf returns the result of the n-th event, whose rows were written.
func (c *eventColumns) admissionOf(e store.Event, n int, f eventResult) store.Admission {
	a := sqlcore.Admitted(e, f.at, n, int(c.firstRun[n])+1)
	if f.live != nil {
		a.Begun = sqlcore.Begun(e, a, *c.beginning[n], *f.live, f.at)
	}
	return a
}

// neededParts returns the optional parts that the events need.
func (c *eventColumns) neededParts() acceptParts {
	return acceptParts{
		blobs: slices.ContainsFunc(c.blob, func(id pgtype.UUID) bool { return id.Valid }),
		keys:  slices.ContainsFunc(c.key, func(key *string) bool { return key != nil }),
		begun: slices.ContainsFunc(c.beginRunner, func(runner *string) bool { return runner != nil }),
	}
}

func (c *eventColumns) columnArgs() []any {
	return []any{
		c.id, c.project, c.environment, c.connector, c.version, c.trigger, c.input, c.inputSize, c.blob, c.contentType,
		c.runIDs, c.key, c.fingerprint, c.ttl, c.secretUntil, c.repeat, c.number, c.firstRun,
		c.run, c.runProject, c.runEnvironment, c.runConnector, c.runConnectorRun, c.runOf, c.runNumber, c.runLink, c.runAgent, c.runClass,
		c.runKey, c.runBlocked, c.beginRunner, c.beginToken, c.beginAgent, c.beginLink,
		c.files, c.addedSize, c.headers, c.replayOf, c.hops, c.parent,
	}
}

func validUUID(id uuid.UUID) pgtype.UUID { return pgtype.UUID{Bytes: id, Valid: true} }

func nullableUUID(id *uuid.UUID) pgtype.UUID {
	if id == nil {
		return pgtype.UUID{}
	}
	return validUUID(*id)
}
