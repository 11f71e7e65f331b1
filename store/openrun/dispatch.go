// SPDX-License-Identifier: Apache-2.0

package openrun

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/agentplatform/agentplatform/internal/runerror"
	"github.com/agentplatform/agentplatform/store"
	"github.com/agentplatform/agentplatform/store/sqldb"
)

// Heartbeat implements store.Dispatch. A swept claim is revived while the run is queued under its
// token, because no other claim came since. Runs are locked in ID order, as in completions.
func (s *Store) Heartbeat(ctx context.Context, environment store.Key, held []store.Held, lease time.Duration) ([]store.Lease, error) {
	held, current := slices.Clone(held), map[store.Lease]bool{}
	slices.SortFunc(held, func(a, b store.Held) int { return sqldb.CompareKeys(a.Run, b.Run) })
	for i := range held {
		held[i].TestName = store.Cut(sqldb.Text(held[i].TestName), store.MaxTestName)
	}
	if len(held) > 0 {
		err := s.db.WriteSingle(ctx, func(ctx context.Context, tx *sqldb.Tx) error {
			clear(current)
			renewed, err := s.engine.Renew(ctx, tx, environment, held, lease)
			for _, l := range renewed {
				current[l] = true
			}
			return err
		})
		if err != nil {
			return nil, sqldb.Wrap(err, "renewing leases")
		}
	}
	var lost []store.Lease
	for _, h := range held {
		if !current[h.Lease] {
			lost = append(lost, h.Lease)
		}
	}
	return lost, nil
}

// Append is an append to the journal of a run. Large values are in blobs, which the engine does not mark.
type Append struct {
	store.JournalAppend
	Large Large
}

// AppendJournal implements store.Dispatch.
func (s *Store) AppendJournal(ctx context.Context, l store.Lease, entries []store.JournalEntry) error {
	return s.AppendJournals(ctx, []store.JournalAppend{{Lease: l, Entries: entries}})[0]
}

// AppendJournals implements store.Dispatch.
func (s *Store) AppendJournals(ctx context.Context, appends []store.JournalAppend) []error {
	errs, bounded := make([]error, len(appends)), slices.Clone(appends)
	first := map[store.Key]int{} // of the appends to a journal, which has to be written before the others
	var together []Append
	for i, a := range appends {
		bounded[i].Entries, errs[i] = boundedJournal(a.Entries)
		if _, later := first[a.Lease.Run]; later {
			continue
		}
		first[a.Lease.Run] = i
		if a = bounded[i]; errs[i] == nil && len(a.Entries) > 0 && inOrder(a.Entries) && !isLarge("", a.Entries) {
			together = append(together, Append{JournalAppend: a})
		}
	}
	slices.SortFunc(together, func(a, b Append) int { return sqldb.CompareKeys(a.Lease.Run, b.Lease.Run) })
	results := s.appendSplit(ctx, together)
	for i, a := range bounded {
		var result appendResult
		if first[a.Lease.Run] == i {
			result = results[a.Lease.Run]
		}
		switch {
		case errs[i] != nil:
		case result.err != nil:
			errs[i] = result.err
		case !result.appended:
			errs[i] = s.writeJournal(ctx, a.Lease, a.Entries, nil)
		}
		errs[i] = sqldb.Wrap(errs[i], "appending to the journal of run %s", a.Lease.Run)
	}
	return errs
}

// appendResult is the result of an append. Neither appended nor an error means that it takes a transaction to decide.
type appendResult struct {
	appended bool
	err      error
}

// appendSplit appends to the journals of different runs in one statement. If the data of one is invalid, it halves the batch until
// that one is alone.
func (s *Store) appendSplit(ctx context.Context, appends []Append) map[store.Key]appendResult {
	results := map[store.Key]appendResult{}
	if len(appends) == 0 {
		return results
	}
	var appended []store.Key
	err := s.db.WriteSingle(ctx, func(ctx context.Context, tx *sqldb.Tx) (err error) {
		appended, err = s.engine.Append(ctx, tx, appends)
		for _, run := range appended {
			tx.Hint(store.TopicRun, run)
		}
		return err
	})
	if half := len(appends) / 2; half > 0 && s.db.BadData(err) {
		maps.Copy(results, s.appendSplit(ctx, appends[:half]))
		maps.Copy(results, s.appendSplit(ctx, appends[half:]))
		return results
	}
	for _, a := range appends {
		results[a.Lease.Run] = appendResult{err == nil && slices.Contains(appended, a.Lease.Run), err}
	}
	return results
}

// writeJournal appends entries in a transaction, with the writes that belong to them.
func (s *Store) writeJournal(ctx context.Context, l store.Lease, entries []store.JournalEntry, then func(ctx context.Context, tx *sqldb.Tx) error) error {
	large, err := s.putLarge(ctx, l, "", entries)
	if err != nil {
		return err
	}
	return s.blobs.WriteWith(ctx, large.blobsOf(l.Run.ProjectID, false, entries), func(ctx context.Context, tx *sqldb.Tx) error {
		err := s.appendJournal(ctx, tx, l, entries, large)
		if err == nil && then != nil {
			err = then(ctx, tx)
		}
		return err
	})
}

// appendJournal appends the entries that the journal does not have yet.
func (s *Store) appendJournal(ctx context.Context, tx *sqldb.Tx, l store.Lease, entries []store.JournalEntry, large Large) error {
	held, err := LockClaim(ctx, tx, l)
	if errors.Is(err, store.ErrNotFound) {
		return s.ClaimError(ctx, tx, l)
	}
	if err != nil {
		return err
	}
	entries, err = s.newEntries(ctx, tx, l, held.Length, entries)
	switch {
	case err != nil || len(entries) == 0:
		return err
	case held.Size+SizeOf(entries) > store.MaxJournal:
		return store.ErrTooLarge
	case !large.hasBlobs("", entries): // the entries did not continue the journal when the blobs were written
		return store.ErrConflict
	}
	appended, err := s.engine.Append(ctx, tx, []Append{{store.JournalAppend{Lease: l, Entries: entries}, large}})
	if err == nil && len(appended) == 0 {
		err = store.ErrFenced // impossible, because the run is locked
	}
	if err != nil {
		return err
	}
	tx.Hint(store.TopicRun, l.Run)
	return s.blobs.MarkBlobs(ctx, tx, large.blobsOf(l.Run.ProjectID, false, entries))
}

// inOrder reports whether entries are consecutive.
func inOrder(entries []store.JournalEntry) bool {
	for i, e := range entries {
		if e.Sequence != entries[0].Sequence+int64(i) {
			return false
		}
	}
	return true
}

// ClaimedState is the state of a claimed run.
type ClaimedState struct{ Length, Size, Open int64 }

// LockClaim locks the run of a current claim; ErrNotFound if there is none.
func LockClaim(ctx context.Context, tx *sqldb.Tx, l store.Lease) (held ClaimedState, err error) {
	err = sqldb.MapNoRows(tx.QueryRowContext(ctx, `SELECT journal_length, journal_size, open_tools FROM open_runs
		WHERE project_id = $1 AND id = $2 AND token = $3 AND status = 'running' `+tx.Exclusive,
		l.Run.ProjectID, l.Run.ID, l.Token).Scan(&held.Length, &held.Size, &held.Open))
	return held, err
}

// CheckClaim implements store.Dispatch.
func (s *Store) CheckClaim(ctx context.Context, l store.Lease) error {
	var one int
	err := sqldb.MapNoRows(s.db.Reader().QueryRowContext(ctx, `SELECT 1 FROM open_runs
		WHERE project_id = $1 AND id = $2 AND token = $3 AND status = 'running'`, l.Run.ProjectID, l.Run.ID, l.Token).Scan(&one))
	if errors.Is(err, store.ErrNotFound) {
		err = s.ClaimError(ctx, s.db.Reader(), l)
	}
	return sqldb.Wrap(err, "checking the claim of run %s", l.Run)
}

// ClaimError returns why no running run has this claim.
func (s *Store) ClaimError(ctx context.Context, q sqldb.Queryer, l store.Lease) error {
	var exists int
	err := sqldb.MapNoRows(q.QueryRowContext(ctx, `SELECT 1 FROM open_runs WHERE project_id = $1 AND id = $2`, l.Run.ProjectID, l.Run.ID).Scan(&exists))
	if errors.Is(err, store.ErrNotFound) {
		err = s.db.ReadHistory(ctx, q, l.Run, `SELECT 1 FROM {ended_runs} WHERE project_id = $1 AND id = $2`, &exists)
	}
	if err != nil {
		return err
	}
	return store.ErrFenced
}

// newEntries returns the entries that continue the journal of a locked run. It returns ErrConflict for a
// gap, and for a sequence that another claim has written, or that has an entry of another kind: a runner
// that believes that a save was rejected writes a step in the place of a file that was saved nevertheless.
func (s *Store) newEntries(ctx context.Context, q sqldb.Queryer, l store.Lease, length int64, entries []store.JournalEntry) ([]store.JournalEntry, error) {
	repeated, fresh, err := splitEntries(length, entries)
	if err != nil {
		return nil, err
	}
	for _, e := range repeated {
		var isSame bool
		err := s.db.ReadHistory(ctx, q, l.Run, `SELECT token = $4 AND kind = $5 FROM {journal} WHERE project_id = $1 AND run_id = $2 AND sequence = $3`,
			&isSame, e.Sequence, l.Token, string(e.Kind))
		if err == nil && !isSame {
			err = store.ErrConflict
		}
		if err != nil {
			return nil, err
		}
	}
	return fresh, nil
}

// splitEntries splits entries for a journal of this length into repeated and fresh entries, each once. It
// returns ErrConflict for a gap.
func splitEntries(length int64, entries []store.JournalEntry) (repeated, fresh []store.JournalEntry, err error) {
	for _, e := range entries {
		switch next := length + int64(len(fresh)) + 1; {
		case e.Sequence > next:
			return nil, nil, store.ErrConflict
		case e.Sequence == next:
			fresh = append(fresh, e)
		case e.Sequence <= length:
			repeated = append(repeated, e)
		}
	}
	return repeated, fresh, nil
}

// OpenedTools returns by how much entries change the number of unsafe tools in flight.
func OpenedTools(entries []store.JournalEntry) (n int64) {
	for _, e := range entries {
		switch {
		case !e.Unsafe:
		case e.Kind == store.JournalToolStarted:
			n++
		case e.Kind == store.JournalToolResult:
			n--
		}
	}
	return n
}

// SizeOf returns the bytes that entries count towards the journal limit.
func SizeOf(entries []store.JournalEntry) (n int64) {
	for _, e := range entries {
		n += e.Size()
	}
	return n
}

// Release implements store.Dispatch.
func (s *Store) Release(ctx context.Context, l store.Lease, delay time.Duration) error {
	err := s.db.Write(ctx, func(ctx context.Context, tx *sqldb.Tx) error {
		held, err := LockClaim(ctx, tx, l)
		switch {
		case errors.Is(err, store.ErrNotFound):
			return s.checkReleased(ctx, tx, l)
		case err != nil:
			return err
		case held.Open > 0:
			_, err := s.EndRuns(ctx, tx, []Ending{interruptedEnding(l.Run, &l.Token)})
			return err
		}
		// Without a runner ID, no late heartbeat revives a released run.
		return requeue(ctx, tx, l.Run, `runner_id = '', not_before = now_us() + $3`, delay.Microseconds())
	})
	return sqldb.Wrap(err, "releasing run %s", l.Run)
}

// checkReleased returns nil if the claim was released before.
func (s *Store) checkReleased(ctx context.Context, q sqldb.Queryer, l store.Lease) error {
	var released bool
	err := sqldb.MapNoRows(q.QueryRowContext(ctx, `SELECT status = 'queued' AND token = $3 FROM open_runs WHERE project_id = $1 AND id = $2`,
		l.Run.ProjectID, l.Run.ID, l.Token).Scan(&released))
	if errors.Is(err, store.ErrNotFound) {
		err = s.db.ReadHistory(ctx, q, l.Run, `SELECT token = $3 AND error_code = '`+string(runerror.ToolInterrupted)+`'
			FROM {ended_runs} WHERE project_id = $1 AND id = $2`, &released, l.Token)
	}
	if err == nil && !released {
		err = store.ErrFenced
	}
	return err
}

// requeue queues a running or suspended run again, ahead of the new runs of its class. set changes
// more columns, with arguments from $3.
func requeue(ctx context.Context, tx *sqldb.Tx, run store.Key, set string, args ...any) error {
	var environment uuid.UUID
	err := tx.QueryRowContext(ctx, `UPDATE open_runs SET status = 'queued', fresh = FALSE, lease_until = NULL, wake_at = NULL, `+set+`
		WHERE project_id = $1 AND id = $2 RETURNING environment_id`, append([]any{run.ProjectID, run.ID}, args...)...).Scan(&environment)
	if err == nil {
		tx.Hint(store.TopicQueued, store.Key{ProjectID: run.ProjectID, ID: environment})
		tx.Hint(store.TopicRun, run)
	}
	return sqldb.MapNoRows(err)
}

// interruptedEnding returns the end of a run whose tool may have had an unknown effect.
func interruptedEnding(run store.Key, token *int64) Ending {
	return Ending{
		Run: run, Token: token, Status: store.RunFailed, Code: runerror.ToolInterrupted,
		Error: "a tool was in flight when its runner was lost; it is not declared idempotent, so it is not called again",
	}
}

// Reclaim implements store.Dispatch.
func (s *Store) Reclaim(ctx context.Context, environment store.Key, runnerID string, holding []store.Lease) (n int, err error) {
	leased, err := s.leasesOfRunner(ctx, environment, runnerID)
	if err != nil {
		return 0, sqldb.Wrap(err, "reading the leases of runner %q", runnerID)
	}
	for _, l := range otherLeases(leased, holding) {
		err := s.Release(ctx, l, 0)
		switch {
		case errors.Is(err, store.ErrFenced), errors.Is(err, store.ErrNotFound):
		case err != nil:
			return n, err
		default:
			n++
		}
	}
	err = s.db.WriteSingle(ctx, func(ctx context.Context, tx *sqldb.Tx) error {
		_, err := tx.Exec(ctx, `DELETE FROM runners WHERE project_id = $1 AND environment_id = $2 AND id = $3`,
			environment.ProjectID, environment.ID, sqldb.Text(runnerID))
		return err
	})
	return n, sqldb.Wrap(err, "deleting runner %q", runnerID)
}

// leasesOfRunner returns the claims of a runner.
func (s *Store) leasesOfRunner(ctx context.Context, environment store.Key, runnerID string) ([]store.Lease, error) {
	return sqldb.Collect(ctx, s.db.Reader(), func(row sqldb.Scanner) (l store.Lease, err error) {
		l.Run.ProjectID = environment.ProjectID
		err = row.Scan(&l.Run.ID, &l.Token)
		return l, err
	}, LeasedStatement, environment.ProjectID, environment.ID, sqldb.Text(runnerID))
}

// LeasedStatement selects the claims of a runner.
const LeasedStatement = `SELECT id, token FROM open_runs
	WHERE project_id = $1 AND environment_id = $2 AND status = 'running' AND runner_id = $3`

// otherLeases returns the leases in all without these.
func otherLeases(all, these []store.Lease) (rest []store.Lease) {
	known := make(map[store.Lease]bool, len(these))
	for _, l := range these {
		known[l] = true
	}
	for _, l := range all {
		if !known[l] {
			rest = append(rest, l)
		}
	}
	return rest
}

// Suspend implements store.Dispatch.
func (s *Store) Suspend(ctx context.Context, suspension store.Suspension) error {
	entries, err := boundedJournal(suspension.Journal)
	if err == nil {
		err = s.writeJournal(ctx, suspension.Lease, entries, func(ctx context.Context, tx *sqldb.Tx) error {
			held, err := LockClaim(ctx, tx, suspension.Lease)
			switch {
			case err != nil:
				return err
			case held.Open > 0:
				return store.ErrConflict // the result of the tool would be lost
			}
			environment, err := sqldb.ScanUUID(tx.QueryRowContext(ctx, `UPDATE open_runs SET status = 'awaiting_approval', lease_until = NULL, runner_id = '',
				wake_at = now_us() + $3 WHERE project_id = $1 AND id = $2 RETURNING environment_id`, suspension.Run.ProjectID, suspension.Run.ID, suspension.For.Microseconds()))
			tx.Hint(store.TopicFreed, store.Key{ProjectID: suspension.Run.ProjectID, ID: environment})
			tx.Hint(store.TopicRun, suspension.Run)
			return err
		})
	}
	return sqldb.Wrap(err, "suspending run %s", suspension.Run)
}

// Resume implements store.Dispatch.
func (s *Store) Resume(ctx context.Context, run store.Key, data json.RawMessage) error {
	entries, err := boundedJournal([]store.JournalEntry{{Sequence: 1, Kind: store.JournalResumed, Data: data}})
	var large Large
	if err == nil {
		large, err = s.putResumption(ctx, run, entries)
	}
	if err == nil {
		err = s.blobs.WriteWith(ctx, large.blobsOf(run.ProjectID, false, entries), func(ctx context.Context, tx *sqldb.Tx) error {
			return s.resumeWith(ctx, tx, run, entries[0], large)
		})
	}
	return sqldb.Wrap(err, "resuming run %s", run)
}

// resumeInline is resumeWith an entry that fits into its row.
func (s *Store) resumeInline(ctx context.Context, tx *sqldb.Tx, run store.Key, e store.JournalEntry) error {
	return s.resumeWith(ctx, tx, run, e, nil)
}

// resumeWith appends an entry to the journal of a suspended run and queues it. The blob of the
// entry is stored under the sequence that the entry has before its final sequence is known.
func (s *Store) resumeWith(ctx context.Context, tx *sqldb.Tx, run store.Key, e store.JournalEntry, large Large) error {
	var length int64
	err := sqldb.MapNoRows(tx.QueryRowContext(ctx, `SELECT journal_length FROM open_runs
		WHERE project_id = $1 AND id = $2 AND status = 'awaiting_approval' `+tx.Exclusive, run.ProjectID, run.ID).Scan(&length))
	if errors.Is(err, store.ErrNotFound) {
		if err = s.ClaimError(ctx, tx, store.Lease{Run: run}); errors.Is(err, store.ErrFenced) {
			err = store.ErrConflict
		}
	}
	if err == nil && !large.hasBlobs("", []store.JournalEntry{e}) { // the run was not suspended when the blobs were written
		err = store.ErrConflict
	}
	if err != nil {
		return err
	}
	data, blob := large.Row(e)
	if _, err := tx.Exec(ctx, `INSERT INTO journal (project_id, run_id, sequence, token, kind, data, blob_id, unsafe, at)
		VALUES ($1, $2, $3, 0, $4, $5, $6, FALSE, now_us())`, run.ProjectID, run.ID, length+1, string(e.Kind), data, blob); err != nil {
		return err
	}
	if err := s.blobs.MarkBlobs(ctx, tx, large.blobsOf(run.ProjectID, false, []store.JournalEntry{e})); err != nil {
		return err
	}
	return requeue(ctx, tx, run, `journal_length = journal_length + 1, journal_size = journal_size + $3, not_before = 0`,
		SizeOf([]store.JournalEntry{e}))
}

// Cancel implements store.Dispatch. The runner of the run learns of it with its next claim or call.
func (s *Store) Cancel(ctx context.Context, run store.Key, code runerror.Code, reason string) error {
	err := s.db.Write(ctx, func(ctx context.Context, tx *sqldb.Tx) error {
		ended, err := s.EndRuns(ctx, tx, []Ending{{
			Run: run, Status: store.RunCancelled, Code: code, Error: store.Cut(sqldb.Text(reason), store.MaxError),
		}})
		if err == nil && len(ended) == 0 {
			if err = s.ClaimError(ctx, tx, store.Lease{Run: run}); errors.Is(err, store.ErrFenced) {
				err = store.ErrConflict
			}
		}
		for _, e := range ended {
			tx.Hint(store.TopicQueued, e.Environment)
		}
		return err
	})
	return sqldb.Wrap(err, "cancelling run %s", run)
}
