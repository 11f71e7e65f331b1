// SPDX-License-Identifier: Apache-2.0

package storetest

import (
	"bytes"
	"fmt"

	"github.com/google/uuid"

	"github.com/agentplatform/agentplatform/store"
)

// failWrites makes each write of a kind to a row fail, like a damaged row, until cure is called. column
// is the column of the row's ID.
func (w *world) failWrites(event, table, column string, id uuid.UUID) (cure func()) {
	exec := func(statement string) {
		w.execStatement(statement)
	}
	row := "OLD"
	if event == "INSERT" {
		row = "NEW"
	}
	trigger := fmt.Sprintf(`CREATE TRIGGER poison BEFORE %s ON %s FOR EACH ROW WHEN (%s.%s = '%s')`, event, table, row, column, id)
	var postgres bool
	if err := w.db.QueryRowContext(w.ctx, `SELECT version() LIKE 'PostgreSQL%'`).Scan(&postgres); err != nil || !postgres {
		exec(trigger + ` BEGIN SELECT RAISE(ABORT, 'poisoned'); END`)
		return func() { exec(`DROP TRIGGER poison`) }
	}
	exec(`CREATE OR REPLACE FUNCTION poison() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'poisoned' USING ERRCODE = 'XX001'; END $$`)
	exec(trigger + ` EXECUTE FUNCTION poison()`)
	return func() { exec(`DROP TRIGGER poison ON ` + table) }
}

// requireSetAside checks that an error only reports that so many rows were set aside.
func (w *world) requireSetAside(err error, rows int) {
	var found *store.SetAsideError
	w.ErrorAs(err, &found)
	w.ErrorContains(err, "poisoned")
	w.Len(found.Rows, rows)
}

// untilMoved sweeps leases until one run has moved.
func (w *world) untilMoved() (swept store.Swept) {
	for range 5 {
		some := w.sweepLeases(10)
		swept = swept.Plus(some)
	}
	return swept
}

var poisonPromises = []promise{
	{"a lost run that cannot be released blocks no other", withAgent(func(w *world) {
		w.singles(5)
		runs := w.claim(5, expired)
		w.Len(runs, 5)
		cure := w.failWrites("UPDATE", "open_runs", "id", runs[2].Run.ID)
		swept, err := w.s.SweepLeases(w.ctx, 10)
		w.requireSetAside(err, 1)
		w.Equal(store.Swept{GivenBack: 4}, swept)
		w.Zero(w.sweep(10), "it is skipped")
		cure()
		w.Equal(store.Swept{GivenBack: 1}, w.untilMoved())
	})},
	{"a suspended run that cannot be resumed blocks no other", withAgent(func(w *world) {
		w.singles(3)
		runs := w.claim(3, lease)
		for _, c := range runs {
			w.suspend(c, expired)
		}
		cure := w.failWrites("INSERT", "journal", "run_id", runs[0].Run.ID)
		swept, err := w.s.SweepLeases(w.ctx, 10)
		w.requireSetAside(err, 1)
		w.Equal(store.Swept{Resumed: 2}, swept)
		cure()
		w.Equal(store.Swept{Resumed: 1}, w.untilMoved())
	})},
	{"an orphaned run that cannot be cancelled blocks no other", withAgent(func(w *world) {
		events := w.singles(3)
		w.updateRows(`DELETE FROM environments`)
		cure := w.failWrites("INSERT", "ended_runs", "id", events[1].Runs[0].ID)
		swept, err := w.s.SweepLeases(w.ctx, 10)
		w.requireSetAside(err, 1)
		w.Equal(store.Swept{Cancelled: 2}, swept)
		cure()
		w.Equal(store.Swept{Cancelled: 1}, w.untilMoved())
	})},
	{"an expired run that cannot be ended blocks no other", withAgent(func(w *world) {
		events := w.singles(3)
		w.nextMillisecond()
		cure := w.failWrites("INSERT", "ended_runs", "id", events[0].Runs[0].ID)
		n, err := w.s.ExpireRuns(w.ctx, 0, 1)
		w.requireSetAside(err, 1)
		w.Zero(n)
		w.Equal(1, w.expireRuns(0, 1), "it came first")
		n, err = w.s.ExpireRuns(w.ctx, 0, 10)
		w.requireSetAside(err, 1)
		w.Equal(1, n)
		cure()
		for range 3 {
			n = w.expireRuns(0, 10)
		}
		w.Equal(1, n)
	})},
	{"an expired delivery that cannot be ended blocks no other", func(w *world) {
		ids := w.openDeliveries(3)
		w.nextMillisecond()
		cure := w.failWrites("INSERT", "ended_connector_runs", "id", ids[0])
		n, err := w.s.ExpireDeliveries(w.ctx, 0, 10)
		w.requireSetAside(err, 1)
		w.Equal(2, n)
		w.Zero(w.expireDeliveries(0, 10))
		cure()
		w.Equal(1, w.expireDeliveries(0, 10))
	}},
	{"a lost attempt that cannot be recorded blocks no delivery", func(w *world) {
		ids := w.openDeliveries(3)
		w.Len(w.claimDeliveries(store.DeliveryClaim{Limit: 10, PerConnector: 10, Lease: expired}), 3)
		cure := w.failWrites("INSERT", "delivery_attempts", "delivery_id", ids[1])
		claimed, err := w.s.ClaimDeliveries(w.ctx, store.DeliveryClaim{Limit: 10, PerConnector: 10, Lease: expired})
		w.requireSetAside(err, 1)
		w.Len(claimed, 2)
		w.Len(w.takeDue(10, 10), 2, "it is skipped")
		cure()
		w.makeAllDue()
		for range 3 {
			claimed = append(claimed, w.takeDue(10, 10)...)
			w.makeAllDue()
		}
		w.Len(claimed, 3)
	}},
	{"a connector whose deliveries cannot be claimed blocks no other", func(w *world) {
		w.openDeliveries(2)
		connector := w.outboundFrom("first", "more", automatic).ID
		w.singles(2)
		for _, c := range w.claim(2, lease) {
			w.NoError(w.complete(completed(c)))
		}
		w.postDeliveries()
		cure := w.failWrites("UPDATE", "deliveries", "connector_id", connector)
		claimed, err := w.s.ClaimDeliveries(w.ctx, store.DeliveryClaim{Limit: 10, PerConnector: 10, Lease: lease})
		w.requireSetAside(err, 1)
		w.NotEmpty(claimed)
		for _, d := range claimed {
			w.NotEqual(connector, d.Delivery.ConnectorID)
		}
		w.Empty(w.takeDue(10, 10))
		cure()
		w.updateRows(`UPDATE destinations SET due_at = 1`)
		w.Len(append(w.takeDue(10, 10), w.takeDue(10, 10)...), 2, "its own")
	}},
	{"an attempt that cannot be recorded blocks no other", func(w *world) { w.recordBesidePoison(store.DeliveryDone) }},
	{"a failed attempt that cannot be recorded blocks no other", func(w *world) { w.recordBesidePoison(store.DeliveryRetry) }},
	{"a row of a deleted object that cannot be deleted blocks no other", func(w *world) {
		w.departed()
		w.nextMillisecond()
		rows := w.queryCount(`SELECT count(*) FROM departed WHERE project_id = $1`)
		w.Greater(rows, int64(1))
		var first string
		w.NoError(w.db.QueryRowContext(w.ctx, `SELECT CAST(id AS text) FROM departed ORDER BY gone_at LIMIT 1`).Scan(&first))
		cure := w.failWrites("DELETE", "departed", "id", uuid.MustParse(first))
		failed := 0
		for range 10 * rows {
			if _, err := w.s.DropHistory(w.ctx, -10*aDay, 100); err != nil {
				w.requireSetAside(err, 1)
				failed++
			}
		}
		w.Positive(failed)
		w.EqualValues(1, w.queryCount(`SELECT count(*) FROM departed WHERE project_id = $1`))
		cure()
		for range 100 {
			w.NoError(errorOf(w.s.DropHistory(w.ctx, -10*aDay, 100)))
		}
		w.Zero(w.queryCount(`SELECT count(*) FROM departed WHERE project_id = $1`))
	}},
	{"a day that cannot be deleted blocks no other history", func(w *world) {
		w.history()
		w.departed()
		w.updateRows(`UPDATE blobs SET created_at = created_at - $2`, (10 * aDay).Microseconds())
		cure := w.failWrites("DELETE", "stored_days", "project_id", w.project.ID)
		for range 50 {
			_, _ = w.s.DropHistory(w.ctx, -4*aDay, 1000)
		}
		w.Zero(w.queryCount(`SELECT count(*) FROM blobs WHERE project_id = $1 AND mark = 'history'`))
		w.Zero(w.queryCount(`SELECT count(*) FROM departed WHERE project_id = $1`))
		w.NotZero(w.queryCount(`SELECT count(*) FROM stored_days WHERE project_id = $1`))
		cure()
		for range 100 { // some of them skip the project
			w.NoError(errorOf(w.s.DropHistory(w.ctx, -4*aDay, 1000)))
		}
		w.Zero(w.queryCount(`SELECT count(*) FROM stored_days WHERE project_id = $1`))
	}},
	{"blobs of open rows stay", withAgent(func(w *world) {
		e, input := w.singleEvent(), newUUIDv7()
		w.NoError(errorOf(w.s.PutBlob(w.ctx, w.key(input), bytes.NewReader(make([]byte, store.BlobChunk+1)))))
		e.Input, e.InputBlob = nil, &input
		w.accept(&e)
		w.dropHistory(-4 * aDay)
		stored := `SELECT count(*) FROM blobs WHERE project_id = $1 AND id = '` + input.String() + `'`
		w.EqualValues(1, w.queryCount(stored))
		w.NoError(w.complete(completed(w.claim(1, lease)[0])))
		w.countAllStored()
		w.Positive(w.dropHistory(-4 * aDay))
		w.Zero(w.queryCount(stored))
	})},
}

// openDeliveries returns waiting deliveries of results, oldest first.
func (w *world) openDeliveries(n int) (ids []uuid.UUID) {
	w.deploy(uuid.NewString(), "first")
	c := w.outboundTo("results-"+uuid.NewString()[:8], automatic)
	w.singles(n)
	for _, run := range w.claim(n, lease) {
		w.NoError(w.complete(completed(run)))
	}
	w.postDeliveries()
	for _, d := range w.deliveriesOf(c) {
		ids = append([]uuid.UUID{d.ID}, ids...)
	}
	w.Len(ids, n)
	return ids
}

// recordBesidePoison records attempts. One of them cannot be recorded.
func (w *world) recordBesidePoison(outcome store.DeliveryOutcome) {
	w.openDeliveries(4)
	claimed := w.takeDue(10, 10)
	w.Len(claimed, 4)
	var attempts []store.Attempt
	for _, d := range claimed {
		attempts = append(attempts, attempted(d, outcome))
	}
	cure := w.failWrites("INSERT", "delivery_attempts", "delivery_id", claimed[2].Delivery.ID)
	var left *store.UnrecordedError
	err := w.s.RecordAttempts(w.ctx, attempts)
	w.ErrorAs(err, &left)
	w.ErrorContains(err, "poisoned")
	w.Equal(attempts[2:3], left.Left)
	cure()
	w.EqualValues(1, w.queryCount(`SELECT count(*) FROM deliveries WHERE project_id = $1 AND lease_until IS NOT NULL`))
	w.recordAttempts(attempts...)
	w.EqualValues(4, w.queryCount(`SELECT count(*) FROM delivery_attempts WHERE project_id = $1`), "each once")
}
