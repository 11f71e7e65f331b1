// SPDX-License-Identifier: Apache-2.0

package sqlcore

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/agentplatform/agentplatform/store"
)

// pastOf are tables of history, and what deletes at most $4 rows from each, of project $1, whose ids are
// of the time from $2 to before $3, and returns the blobs that they name: one, and those of files. What an
// open run, connector run or delivery still needs stays.
var pastOf = []struct{ table, statement string }{
	{`journal`, `DELETE FROM {journal} WHERE (project_id, run_id, sequence) IN (SELECT t.project_id, t.run_id, t.sequence FROM {journal} t
		WHERE t.project_id = $1 AND t.run_id >= id_at($2) AND t.run_id < id_at($3)
			AND NOT EXISTS (SELECT 1 FROM open_runs o WHERE o.project_id = $1 AND o.id = t.run_id)
		ORDER BY t.run_id LIMIT $4) RETURNING blob_id, NULL`},
	{`inputs`, `DELETE FROM {inputs} WHERE (project_id, id) IN (SELECT t.project_id, t.id FROM {inputs} t
		WHERE t.project_id = $1 AND t.id >= id_at($2) AND t.id < id_at($3)
			AND NOT EXISTS (SELECT 1 FROM open_runs o WHERE o.project_id = $1 AND o.id = t.id)
			AND NOT EXISTS (SELECT 1 FROM open_connector_runs o WHERE o.project_id = $1 AND o.id = t.id)
			AND NOT EXISTS (SELECT 1 FROM deliveries o WHERE o.project_id = $1 AND o.id = t.id)
		ORDER BY t.id LIMIT $4) RETURNING blob_id, files`},
	{`delivery_attempts`, `DELETE FROM {delivery_attempts} WHERE (project_id, delivery_id, number) IN (SELECT t.project_id, t.delivery_id, t.number FROM {delivery_attempts} t
		WHERE t.project_id = $1 AND t.delivery_id >= id_at($2) AND t.delivery_id < id_at($3)
			AND NOT EXISTS (SELECT 1 FROM deliveries o WHERE o.project_id = $1 AND o.id = t.delivery_id)
		ORDER BY t.delivery_id LIMIT $4) RETURNING NULL, NULL`},
	{`ended_runs`, `DELETE FROM {ended_runs} WHERE (project_id, id) IN (SELECT t.project_id, t.id FROM {ended_runs} t
		WHERE t.project_id = $1 AND t.id >= id_at($2) AND t.id < id_at($3) ORDER BY t.id LIMIT $4) RETURNING output_blob_id, NULL`},
	// After the runs, so that these have all their calls for as long as they are counted anew.
	{`model_calls`, `DELETE FROM {model_calls} WHERE (project_id, run_id, sequence) IN (SELECT t.project_id, t.run_id, t.sequence FROM {model_calls} t
		WHERE t.project_id = $1 AND t.run_id >= id_at($2) AND t.run_id < id_at($3)
			AND NOT EXISTS (SELECT 1 FROM open_runs o WHERE o.project_id = $1 AND o.id = t.run_id)
		ORDER BY t.run_id LIMIT $4) RETURNING NULL, NULL`},
	// After the runs: nothing is indexed any more then that is not there.
	{`run_words`, `DELETE FROM {run_words} WHERE (project_id, run_id) IN (SELECT t.project_id, t.run_id FROM {run_words} t
		WHERE t.project_id = $1 AND t.run_id >= id_at($2) AND t.run_id < id_at($3) ORDER BY t.run_id LIMIT $4) RETURNING NULL, NULL`},
	{`ended_connector_runs`, `DELETE FROM {ended_connector_runs} WHERE (project_id, id) IN (SELECT t.project_id, t.id FROM {ended_connector_runs} t
		WHERE t.project_id = $1 AND t.id >= id_at($2) AND t.id < id_at($3) ORDER BY t.id LIMIT $4) RETURNING NULL, NULL`},
}

// runsOfPast is where ended runs are in pastOf.
var runsOfPast = slices.IndexFunc(pastOf, func(of struct{ table, statement string }) bool { return of.table == "ended_runs" })

// deleteDays deletes days before one, row by row, where no parts go: one day of a project at a
// time, then what the audit log has of the time. Days from keep on stay, each as a whole, while a
// result is on its way.
func (c *Core) deleteDays(ctx context.Context, before, keep int64, limit int) (n int, err error) {
	var on projectDay
	err = found(c.engine.Reader().QueryRowContext(ctx, `SELECT s.project_id, s.day FROM stored_days s WHERE s.day < $1
		AND (s.day < $2 OR NOT `+onItsWay+`) ORDER BY s.day, s.project_id LIMIT 1`, before, keep).Scan(&on.project, &on.day))
	switch {
	case errors.Is(err, store.ErrNotFound):
		return c.deleteAudit(ctx, begin(before), limit)
	case err != nil:
		return 0, err
	}
	return c.deleteDay(ctx, on, limit, 1)
}

// How many projects a call of TrimHistory tries, the most overdue first, and how many transactions it has for a
// day: one, and one more for each day that the project is overdue.
const (
	trimProjects        = 16
	maxTrimTransactions = 10
)

// overdueDay is the oldest day of a project that it keeps no longer, and since when, in microseconds.
type overdueDay struct {
	projectDay
	us int64
}

// overdueDays are those of the most overdue projects.
func (c *Core) overdueDays(ctx context.Context, limit int) ([]overdueDay, error) {
	return collect(ctx, c.engine.Reader(), func(row scanner) (d overdueDay, err error) {
		err = row.Scan(&d.project, &d.day, &d.us)
		return d, err
	}, `SELECT s.project_id, MIN(s.day), now_us() - p.history_us - (MIN(s.day) + 1) * `+dayUS+` FROM projects p
		JOIN stored_days s ON s.project_id = p.project_id AND s.day < (now_us() - p.history_us) / `+dayUS+`
		WHERE p.history_us <> 0 GROUP BY s.project_id, p.history_us ORDER BY 3 DESC, 1 LIMIT $1`, limit)
}

// TrimHistory implements store.Housekeeping. The most overdue project is first, so a project whose retention
// was lowered by much and one that stores much both catch up. A project that another gateway trims at the
// moment is passed over. The days of a project go from the oldest on, so its history has no holes.
func (c *Core) TrimHistory(ctx context.Context, limit int) (n int, err error) {
	days, err := c.overdueDays(ctx, trimProjects)
	if err != nil {
		return 0, wrap(err, "looking for what projects keep no longer")
	}
	for _, of := range days {
		transactions := 1 + min(of.us/day.Microseconds(), maxTrimTransactions-1)
		n, err = c.deleteDay(ctx, of.projectDay, limit, int(transactions))
		if n > 0 || !errors.Is(err, ErrBusy) {
			break
		}
	}
	if errors.Is(err, ErrBusy) {
		err = nil
	}
	return n, err
}

// ProjectHistoryOverdue implements store.Housekeeping.
func (c *Core) ProjectHistoryOverdue(ctx context.Context) (time.Duration, error) {
	days, err := c.overdueDays(ctx, 1)
	if err != nil || len(days) == 0 {
		return 0, wrap(err, "looking for what projects keep no longer")
	}
	return time.Duration(days[0].us) * time.Microsecond, nil
}

// countedBytes is an expression for what a project p has stored that counts against its limit: all but days
// that it keeps no longer, and which are deleted later.
var countedBytes = `(COALESCE((SELECT s.bytes FROM stored_bytes s WHERE s.project_id = p.project_id), 0)
	- COALESCE((SELECT CAST(SUM(d.bytes) AS bigint) FROM stored_days d WHERE d.project_id = p.project_id
		AND p.history_us <> 0 AND d.day < (now_us() - p.history_us) / ` + dayUS + `), 0))`

// pastTurn is the lock of those who delete history of a project, so that who finds no more of a
// day has seen what all others have done; and of those who index its runs, so that no word is left
// of a run that goes meanwhile.
var pastTurn = uuid.MustParse("0b6b2b5e-5b0e-4f4e-9a39-2a2f7f6f3c52")

// lockPast waits for the turn of the transaction among those.
func (c *Core) lockPast(ctx context.Context, tx *Tx, project uuid.UUID) error {
	return c.engine.Lock(ctx, tx, uuid.NewSHA1(pastTurn, project[:]))
}

// tryPast takes the turn of the transaction among those, or fails with ErrBusy if another transaction has it.
func (c *Core) tryPast(ctx context.Context, tx *Tx, project uuid.UUID) error {
	free, err := c.engine.TryLock(ctx, tx, uuid.NewSHA1(pastTurn, project[:]))
	if err == nil && !free {
		err = ErrBusy
	}
	return err
}

// deleting is how far days are that are being deleted, so that tables of which nothing is left are not
// looked at again for each of the next ones' rows.
type deleting struct {
	mutex sync.Mutex
	done  map[projectDay]int // of pastOf
}

// maxDeleting is of how many days it is known: of those that go on and on there are few.
const maxDeleting = 1000

// of is with how many tables a day is done. Runs that have ended since are looked for in any case:
// their calls go after them.
func (d *deleting) of(on projectDay) int {
	d.mutex.Lock()
	defer d.mutex.Unlock()
	return min(d.done[on], runsOfPast)
}

// reached says with how many it is.
func (d *deleting) reached(on projectDay, done int) {
	d.mutex.Lock()
	defer d.mutex.Unlock()
	if done == 0 {
		delete(d.done, on)
		return
	}
	if d.done == nil || len(d.done) >= maxDeleting {
		d.done = map[projectDay]int{}
	}
	d.done[on] = done
}

// deleteDay deletes what a project has of a day, the day last, in so many transactions at most that delete as
// many rows as one may. It returns how many rows went, at most limit or one more. ErrBusy says that another
// transaction deletes of the project at the moment.
func (c *Core) deleteDay(ctx context.Context, on projectDay, limit, transactions int) (n int, err error) {
	for done := c.deleting.of(on); done < len(pastOf); {
		most := min(limit-n, c.atOnce)
		deleted, err := c.deletePast(ctx, on, pastOf[done].statement, most)
		n += deleted
		if err != nil {
			return n, wrap(err, "deleting a day of project %s", on.project)
		}
		if deleted < most {
			done++
			c.deleting.reached(on, done)
			continue
		}
		if transactions--; transactions == 0 || n == limit {
			return n, nil
		}
	}
	c.deleting.reached(on, 0)
	return n + 1, wrap(c.forgetDay(ctx, on), "forgetting a day of project %s", on.project)
}

// errMore says that a day has more than one transaction deletes.
var errMore = errors.New("there is more of the day")

// forgetDay deletes a day, with what came to it since its tables were done with. What was counted of
// that is in the row that goes; who has not counted it yet waits for that, and has another one then. A
// day that has got many rows meanwhile stays.
func (c *Core) forgetDay(ctx context.Context, on projectDay) error {
	err := c.Write(ctx, func(ctx context.Context, tx *Tx) error {
		if err := c.tryPast(ctx, tx, on.project); err != nil {
			return err
		}
		if _, err := c.subtract(ctx, tx, `DELETE FROM stored_days WHERE project_id = $1 AND day = $2 RETURNING project_id, day, bytes`, on.project, on.day); err != nil {
			return err
		}
		for _, of := range pastOf {
			n := 0
			there, err := c.engine.HasPart(ctx, tx, of.table, firstID(on.day))
			if err == nil && there {
				n, err = c.deleteRows(ctx, tx, on, of.statement, c.atOnce)
			}
			switch {
			case err != nil:
				return err
			case n == c.atOnce:
				return errMore
			}
		}
		return nil
	})
	if errors.Is(err, errMore) || err != nil && c.noTable(err) { // a part went meanwhile: the next time all is as it is then
		return nil
	}
	return err
}

// deletePast runs one of pastOf. Where the part of a day is gone, so are its rows.
func (c *Core) deletePast(ctx context.Context, on projectDay, statement string, limit int) (n int, err error) {
	err = c.Write(ctx, func(ctx context.Context, tx *Tx) error {
		if err := c.tryPast(ctx, tx, on.project); err != nil {
			return err
		}
		if _, err := tx.exec(ctx, `UPDATE stored_days SET going = TRUE WHERE project_id = $1 AND day = $2 AND NOT going`, on.project, on.day); err != nil {
			return err
		}
		n, err = c.deleteRows(ctx, tx, on, statement, limit)
		return err
	})
	if err != nil && c.noTable(err) {
		return 0, nil
	}
	return n, err
}

// deleteRows runs a statement of pastOf. The blobs that its rows named are loose then.
func (c *Core) deleteRows(ctx context.Context, tx *Tx, on projectDay, statement string, limit int) (n int, err error) {
	var loose []store.Key
	_, err = collect(ctx, tx, func(row scanner) (none struct{}, err error) {
		var (
			blob  *uuid.UUID
			files *string
		)
		err = row.Scan(&blob, &files)
		n++
		if blob != nil {
			loose = append(loose, store.Key{ProjectID: on.project, ID: *blob})
		}
		if err == nil && files != nil {
			loose, err = addFiles(loose, on.project, *files)
		}
		return none, err
	}, c.InPart(statement, firstID(on.day)), on.project, begin(on.day), begin(on.day+1), limit)
	if err != nil {
		return n, err
	}
	return n, c.loosen(ctx, tx, loose)
}

// addFiles adds the blobs of the files of an input.
func addFiles(blobs []store.Key, project uuid.UUID, column string) ([]store.Key, error) {
	files, err := filesIn(column)
	for _, file := range files {
		if file.Blob != nil {
			blobs = append(blobs, store.Key{ProjectID: project, ID: *file.Blob})
		}
	}
	return blobs, err
}

// loosen lets blobs go with the next sweep of those that nothing keeps.
func (c *Core) loosen(ctx context.Context, tx *Tx, blobs []store.Key) error {
	if len(blobs) == 0 {
		return nil
	}
	var l list
	_, err := tx.exec(ctx, `UPDATE blobs SET mark = '' WHERE `+c.keys(&l, "id", blobs), l.args...)
	return wrap(err, "letting go of blobs")
}

// deleteAudit deletes what the audit log of a project has from before a moment.
func (c *Core) deleteAudit(ctx context.Context, before int64, limit int) (n int, err error) {
	project, err := scanID(c.engine.Reader().QueryRowContext(ctx, `WITH RECURSIVE p (project_id) AS (
			SELECT (SELECT a.project_id FROM audit_log a WHERE a.project_id >= '`+uuid.Nil.String()+`' ORDER BY a.project_id LIMIT 1)
			UNION ALL
			SELECT (SELECT a.project_id FROM audit_log a WHERE a.project_id > p.project_id ORDER BY a.project_id LIMIT 1)
			FROM p WHERE p.project_id IS NOT NULL
		)
		SELECT p.project_id FROM p WHERE p.project_id IS NOT NULL
			AND EXISTS (SELECT 1 FROM audit_log a WHERE a.project_id = p.project_id AND a.id < id_at($1)) LIMIT 1`, before))
	if err = found(err); errors.Is(err, store.ErrNotFound) {
		return 0, nil
	}
	for _, statement := range []string{
		`DELETE FROM audit_outcomes WHERE (project_id, id) IN (SELECT project_id, id FROM audit_outcomes
			WHERE project_id = $1 AND id < id_at($2) ORDER BY id LIMIT $3)`,
		`DELETE FROM audit_log WHERE (project_id, id) IN (SELECT project_id, id FROM audit_log
			WHERE project_id = $1 AND id < id_at($2) ORDER BY id LIMIT $3)`,
	} {
		if err != nil || n >= limit {
			break
		}
		var deleted int64
		err = c.Write(ctx, func(ctx context.Context, tx *Tx) (err error) {
			deleted, err = tx.exec(ctx, statement, project, before, min(limit-n, chunk))
			return err
		})
		n += int(deleted)
	}
	return n, wrap(err, "deleting from the audit log of project %s", project)
}
