// SPDX-License-Identifier: Apache-2.0

package storetest

import (
	"time"

	"github.com/google/uuid"

	"github.com/agentplatform/agentplatform/store"
)

// Helpers for calls of the store that must succeed.

// errorOf returns the error of a call.
func errorOf[T any](_ T, err error) error { return err }

// requireNone checks that a read finds nothing.
func (w *world) requireNone(found any, err error) {
	w.NoError(err)
	w.Empty(found)
}

// execStatement changes the database directly.
func (w *world) execStatement(statement string, args ...any) {
	w.NoError(errorOf(w.db.ExecContext(w.ctx, statement, args...)))
}

func (w *world) readClock() time.Time {
	now, err := w.s.Now(w.ctx)
	w.NoError(err)
	return now
}

func (w *world) listProjected() []store.ProjectedObject {
	objects, err := w.s.ListProjected(w.ctx)
	w.NoError(err)
	return objects
}

func (w *world) readEnvironment(key store.Key) store.Environment {
	e, err := w.s.Environment(w.ctx, key)
	w.NoError(err)
	return e
}

func (w *world) defaultEnvironment(project uuid.UUID) uuid.UUID {
	id, err := w.s.DefaultEnvironment(w.ctx, project)
	w.NoError(err)
	return id
}

func (w *world) readConnector(key store.Key) store.Connector {
	c, err := w.s.Connector(w.ctx, key)
	w.NoError(err)
	return c
}

func (w *world) readRoute(connector store.Key) store.Route {
	route, err := w.s.Route(w.ctx, connector)
	w.NoError(err)
	return route
}

func (w *world) listDeployments(environment store.Key) []store.Deployment {
	deployments, err := w.s.ListDeployments(w.ctx, environment)
	w.NoError(err)
	return deployments
}

func (w *world) buildLog(deployment store.Key) string {
	log, err := w.s.BuildLog(w.ctx, deployment)
	w.NoError(err)
	return log
}

func (w *world) listRunners(environment store.Key, within time.Duration) []store.Runner {
	runners, err := w.s.Runners(w.ctx, environment, within)
	w.NoError(err)
	return runners
}

func (w *world) renewLeases(environment store.Key, held []store.Held, hold time.Duration) []store.Lease {
	lost, err := w.s.Heartbeat(w.ctx, environment, held, hold)
	w.NoError(err)
	return lost
}

func (w *world) sweepLeases(limit int) store.Swept {
	swept, err := w.s.SweepLeases(w.ctx, limit)
	w.NoError(err)
	return swept
}

func (w *world) sweepExpired(limit int) int {
	n, err := w.s.SweepExpired(w.ctx, limit)
	w.NoError(err)
	return n
}

func (w *world) expireDeliveries(age time.Duration, limit int) int {
	n, err := w.s.ExpireDeliveries(w.ctx, age, limit)
	w.NoError(err)
	return n
}

func (w *world) readFigures() store.QueueFigures {
	figures, err := w.s.QueueFigures(w.ctx)
	w.NoError(err)
	return figures
}

func (w *world) readJournal(run store.Key) []store.JournalEntry {
	entries, err := w.s.Journal(w.ctx, run)
	w.NoError(err)
	return entries
}

func (w *world) eventFiles(connectorRun store.Key) []store.File {
	files, err := w.s.EventFiles(w.ctx, connectorRun)
	w.NoError(err)
	return files
}

func (w *world) runFiles(run store.Key) []store.File {
	files, err := w.s.RunFiles(w.ctx, run)
	w.NoError(err)
	return files
}

func (w *world) runCalls(run store.Key) []store.Calls {
	calls, err := w.s.RunCalls(w.ctx, run)
	w.NoError(err)
	return calls
}

// listRuns returns the first page of a list.
func (w *world) listRuns(q store.RunQuery) []store.Run {
	runs, _, err := w.s.ListRuns(w.ctx, q)
	w.NoError(err)
	return runs
}

// listConnectorRuns returns a page of a list, and the total.
func (w *world) listConnectorRuns(q store.ConnectorRunQuery) ([]store.ConnectorRun, int64) {
	runs, total, err := w.s.ListConnectorRuns(w.ctx, q)
	w.NoError(err)
	return runs, total
}

func (w *world) listReplays(connector store.Key) []store.Replay {
	replays, err := w.s.ListReplays(w.ctx, connector)
	w.NoError(err)
	return replays
}

func (w *world) runStatistics(q store.StatisticsQuery) store.RunStatistics {
	statistics, err := w.s.RunStatistics(w.ctx, q)
	w.NoError(err)
	return statistics
}

func (w *world) connectorStatistics(q store.ConnectorStatisticsQuery) store.ConnectorStatistics {
	statistics, err := w.s.ConnectorStatistics(w.ctx, q)
	w.NoError(err)
	return statistics
}

func (w *world) claimDeliveries(claim store.DeliveryClaim) []store.ClaimedDelivery {
	claimed, err := w.s.ClaimDeliveries(w.ctx, claim)
	w.NoError(err)
	return claimed
}

func (w *world) nextDelivery(claim store.DeliveryClaim) (in time.Duration, waits bool) {
	in, waits, err := w.s.NextDelivery(w.ctx, claim)
	w.NoError(err)
	return in, waits
}

func (w *world) listAttempts(delivery store.Key) (past []store.PastAttempt, next *time.Time) {
	past, next, err := w.s.Attempts(w.ctx, delivery)
	w.NoError(err)
	return past, next
}

// tryAccept stores events and returns the result of each.
func (w *world) tryAccept(events ...store.Event) []store.Admission {
	admissions, err := w.s.Accept(w.ctx, events)
	w.NoError(err)
	return admissions
}

// countAllStored counts the stored bytes of all ends.
func (w *world) countAllStored() {
	for w.countStored(100) > 0 {
	}
}

// rollUpAll rolls up all outbox rows, at most limit of them at a time.
func (w *world) rollUpAll(limit int) {
	for w.rollUpRows(limit) > 0 {
	}
}
