// SPDX-License-Identifier: Apache-2.0

// Package searchindex indexes ended runs by their words, and searches runs.
package searchindex

import (
	"context"
	"errors"
	"slices"

	"github.com/google/uuid"

	"github.com/agentplatform/agentplatform/store"
	"github.com/agentplatform/agentplatform/store/outbox"
	"github.com/agentplatform/agentplatform/store/sqldb"
	"github.com/agentplatform/agentplatform/store/storedbytes"
	"github.com/agentplatform/agentplatform/store/sweep"
)

const (
	// maxIndexed is the maximum number of outbox rows per indexing transaction, maxIndexedRuns of
	// runs, and maxTerms about that of terms: some megabytes.
	maxIndexed     = 16
	maxIndexedRuns = 200
	maxTerms       = 100_000
)

// Engine has the parts of the search index that differ between databases.
type Engine interface {
	// AddTerms adds entries to the search index and returns the runs whose rows it inserted. It
	// skips existing rows and deleted partitions.
	AddTerms(ctx context.Context, q sqldb.Queryer, entries []Entry) (added []store.Key, err error)
	// WithTerms selects project_id and run_id of the runs in a partition of the index, {run_words},
	// whose entries have all of these terms, or the one. It reads at most so many entries, in no
	// order, and no row beyond them. Its arguments begin at $first.
	WithTerms(all []Term, or Term, most, first int) (statement string, args []any)
	// LookThrough selects run_id of entries w of the project $1 in a partition of the index, and
	// has: whether they have all of these terms, or the one. among selects the entries, with their
	// order and limit.
	LookThrough(among string, all []Term, or Term, first int) (statement string, args []any)
	// ByWords runs fn, which only reads, with plans for the search index, on one snapshot of the
	// database.
	ByWords(ctx context.Context, fn func(ctx context.Context, q sqldb.Queryer) error) error
}

// Store indexes ended runs and searches runs.
type Store struct {
	db     *sqldb.DB
	engine Engine
	// pace is the current batch size of the indexer. turns are the turns of the projects.
	pace  *outbox.Pace
	turns *outbox.Cursor
	// slots has a slot for each search that reads.
	slots chan struct{}
}

// New returns a Store, which reads for at most so many searches at once.
func New(db *sqldb.DB, engine Engine, searchesAtOnce int) *Store {
	return &Store{db: db, engine: engine, pace: &outbox.Pace{}, turns: outbox.NewCursor(), slots: make(chan struct{}, searchesAtOnce)}
}

// IndexRuns implements store.Housekeeping.
func (s *Store) IndexRuns(ctx context.Context, limit int, words func(store.Searched) []string) (int, error) {
	n, err := outbox.Words.Consume(ctx, s.db, s.pace, s.turns, limit, maxIndexed, outbox.Consumer[outbox.EndedRow]{
		ConsumeAll: func(ctx context.Context, rows []outbox.EndedRow) error { return s.indexRows(ctx, rows, words) }, TryConsume: s.indexForTrial,
	})
	return n, sqldb.Wrap(err, "indexing runs")
}

// indexRows indexes the runs of outbox rows, as many as one transaction takes. The rows are in the
// order of their projects. Each project has an equal share, so a busy project delays only itself.
// It reads the runs before the transaction, because others wait for the writer. If two processes
// read the same rows, the one that takes the rows indexes them.
func (s *Store) indexRows(ctx context.Context, rows []outbox.EndedRow, words func(store.Searched) []string) (err error) {
	entries, done := map[store.Key][]indexedRun{}, map[store.Key]bool{}
	room := indexCapacity{s.pace.BatchSize(maxIndexedRuns), maxTerms}
	projects := outbox.RowsByProject(rows)
	var read []outbox.EndedRow
	for i, of := range projects {
		share := room.shareOf(len(projects) - i)
		left := share
		for _, row := range of {
			if entries[row.Key], err = s.entriesOf(ctx, row.Runs, words, &left, done); err != nil {
				return sqldb.Wrap(err, "reading runs of project %s", row.ProjectID)
			}
			if read = append(read, row); left.isExhausted() {
				break
			}
		}
		room = indexCapacity{room.runs - share.runs + left.runs, room.terms - share.terms + left.terms}
	}
	return s.db.Write(ctx, func(ctx context.Context, tx *sqldb.Tx) error {
		mine := false
		for _, row := range read {
			taken, err := s.indexRow(ctx, tx, row, entries[row.Key], done)
			if mine = mine || taken; err != nil {
				return err
			}
		}
		if !mine {
			return sweep.ErrConsumedElsewhere
		}
		return nil
	})
}

// indexForTrial indexes a run that does not exist, and rolls back.
func (s *Store) indexForTrial(ctx context.Context) error {
	id, err := uuid.NewV7()
	if err != nil {
		return err
	}
	key := store.Key{ProjectID: uuid.New(), ID: id}
	if _, err := readSearched(ctx, s.db, s.db.Reader(), key.ProjectID, []uuid.UUID{id}, func(*sqldb.Args, bool) string { return "" }); err != nil {
		return err
	}
	return s.db.Write(ctx, func(ctx context.Context, tx *sqldb.Tx) error {
		if _, err := s.indexRow(ctx, tx, outbox.EndedRow{Key: key}, nil, nil); err != nil {
			return err
		}
		if _, err := s.engine.AddTerms(ctx, tx, []Entry{{key.ProjectID, []uuid.UUID{id}, []Term{1}}}); err != nil {
			return err
		}
		return sqldb.ErrTrial
	})
}

// indexCapacity is the number of runs and terms that a transaction can still take.
type indexCapacity struct{ runs, terms int }

func (r indexCapacity) isExhausted() bool { return r.runs <= 0 || r.terms <= 0 }

// shareOf returns the capacity of one of so many projects: at least one run, so that a project does not wait
// until the others have no backlog.
func (r indexCapacity) shareOf(projects int) indexCapacity {
	return indexCapacity{max(r.runs/projects, 1), max(r.terms/projects, 1)}
}

// entriesOf returns the entries for ended runs of a project, without deleted or erased ones, until
// there is no room. done are the runs that were read. The words of an input are computed once per
// event.
func (s *Store) entriesOf(
	ctx context.Context, runs []store.Key, words func(store.Searched) []string, room *indexCapacity, done map[store.Key]bool,
) (entries []indexedRun, err error) {
	given := map[uuid.UUID][]Term{}
	for some := range slices.Chunk(runs, s.pace.BatchSize(searchedAtOnce)) {
		found, err := readSearched(ctx, s.db, s.db.Reader(), some[0].ProjectID, idsOfKeys(some), func(*sqldb.Args, bool) string { return "" })
		if err != nil {
			return nil, err
		}
		for _, key := range some {
			if room.isExhausted() {
				return entries, nil
			}
			done[key] = true
			run, there := found[key.ID]
			if !there {
				continue
			}
			event := key.ID // for a run without an event
			if run.ConnectorRunID != nil {
				event = *run.ConnectorRunID
			}
			terms, known := given[event]
			if !known {
				input := store.Searched{Run: store.Run{ProjectID: key.ProjectID}, ContentType: run.ContentType, Input: run.Input, Headers: run.Headers}
				terms = wordTerms(key.ProjectID, words(input))
				given[event] = terms
			}
			if !known || len(terms) < sharedTerms {
				room.terms -= len(terms)
			}
			run.Input, run.Headers = nil, nil
			own := append(fieldTerms(run), wordTerms(key.ProjectID, words(run))...)
			entries = append(entries, indexedRun{key, event, own, terms})
			room.runs, room.terms = room.runs-1, room.terms-len(own)
		}
	}
	return entries, nil
}

// indexRow takes an outbox row and adds entries of its runs to the index. It skips runs that another
// process has removed from the row meanwhile, and deleted or erased runs. Runs of the row that are
// not done stay in it. It reports whether the row contained a run that is done.
func (s *Store) indexRow(ctx context.Context, tx *sqldb.Tx, row outbox.EndedRow, entries []indexedRun, done map[store.Key]bool) (is bool, err error) {
	if err := s.db.LockPast(ctx, tx, row.ProjectID); err != nil {
		return false, err
	}
	taken, err := outbox.Words.Take(ctx, s.db, tx, []outbox.EndedRow{row})
	if err != nil || len(taken) == 0 {
		return false, err
	}
	if err := outbox.Words.Insert(ctx, tx, taken[0].Without(done)); err != nil {
		return false, err
	}
	mine := sqldb.KeysInSet(taken[0].Runs, done)
	if len(mine) == 0 {
		return false, nil
	}
	own := sqldb.NewKeySet(mine)
	entries = slices.DeleteFunc(slices.Clone(entries), func(e indexedRun) bool { return !own[e.Key] })
	if err := s.db.CheckMissingRows(ctx, tx, "ended_runs", sqldb.KeysWithoutRow(mine, entries), sqldb.ReadableCondition("r.project_id")); err != nil {
		return false, err
	}
	var runs []uuid.UUID
	for _, entry := range entries {
		runs = append(runs, entry.ID)
	}
	there := map[uuid.UUID]bool{}
	for _, same := range s.db.IDsByPart("ended_runs", runs) {
		var l sqldb.Args
		ids, err := sqldb.Collect(ctx, tx, sqldb.ScanUUID, s.db.InPart(`SELECT r.id FROM {ended_runs} r WHERE `+s.db.KeyCondition(&l, "r.id", sqldb.KeysFromIDs(row.ProjectID, same))+sqldb.UnerasedCondition("r"), same[0]), l.Values...)
		if err != nil {
			return false, err
		}
		for _, id := range ids {
			there[id] = true
		}
	}
	return true, s.addEntries(ctx, tx, entriesFor(row.ProjectID, slices.DeleteFunc(entries, func(e indexedRun) bool { return !there[e.ID] })))
}

// addEntries adds entries of a project to the index and counts the bytes of the inserted rows.
func (s *Store) addEntries(ctx context.Context, tx *sqldb.Tx, entries []Entry) error {
	added, err := s.engine.AddTerms(ctx, tx, entries)
	if err != nil {
		return err
	}
	bytes := map[store.Key]int64{}
	for _, entry := range entries {
		for n, run := range entry.Runs {
			bytes[store.Key{ProjectID: entry.Project, ID: run}] = entry.Bytes(n)
		}
	}
	return storedbytes.Post(ctx, tx, added, bytes)
}

// DropEntry deletes the index entry of a run, and returns the bytes to subtract from its day.
// Runs that share its entry are indexed again, without the words of this run.
func DropEntry(ctx context.Context, db *sqldb.DB, tx *sqldb.Tx, run store.Key) (bytes int64, err error) {
	there, err := db.HasPart(ctx, tx, "run_words", run.ID)
	if err != nil || !there {
		return 0, err
	}
	var first uuid.UUID
	entry := db.InPart(`SELECT COALESCE(w.shared, w.run_id) FROM {run_words} w WHERE w.project_id = $1 AND w.run_id = $2`, run.ID)
	err = sqldb.MapNoRows(tx.QueryRowContext(ctx, entry, run.ProjectID, run.ID).Scan(&first))
	if errors.Is(err, store.ErrNotFound) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	var again outbox.EndedRow
	for _, which := range []string{"run_id", "shared"} {
		statement := db.InPart(`DELETE FROM {run_words} WHERE project_id = $1 AND `+which+` = $2 RETURNING run_id, bytes`, run.ID)
		if err := sqldb.EachRow(ctx, tx, func(row sqldb.Scanner) (err error) {
			var (
				id   uuid.UUID
				less int64
			)
			err = row.Scan(&id, &less)
			if bytes += less; id != run.ID {
				again.Runs = append(again.Runs, store.Key{ProjectID: run.ProjectID, ID: id})
			}
			return err
		}, statement, run.ProjectID, first); err != nil {
			return 0, err
		}
	}
	if len(again.Runs) == 0 {
		return bytes, nil
	}
	// A new name, because the rest of another row may still have the name of one of these runs.
	id, err := uuid.NewV7()
	if err != nil {
		return 0, sqldb.Wrap(err, "generating an ID")
	}
	again.Key = store.Key{ProjectID: run.ProjectID, ID: id}
	if err := tx.QueryRowContext(ctx, `SELECT now_us()`).Scan(&again.PostedAt); err != nil {
		return 0, err
	}
	return bytes, outbox.Words.Insert(ctx, tx, again)
}
