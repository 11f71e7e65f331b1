// SPDX-License-Identifier: Apache-2.0

package sqlcore

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"slices"

	"github.com/google/uuid"

	"github.com/agentplatform/agentplatform/store"
	"github.com/agentplatform/agentplatform/store/outbox"
	"github.com/agentplatform/agentplatform/store/runrow"
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
	// maxWords is the number of indexed words per run. A run with more words is a candidate of
	// every search.
	maxWords = 10_000
	// searchedAtOnce is the number of runs that a search reads at a time.
	searchedAtOnce = 50
)

// Term is an entry of the search index: a hash of a project and of a word or a field value.
type Term int64

// Kinds of terms.
const (
	wordTerm        = 'w'
	environmentTerm = 'e'
	agentTerm       = 'a'
	testTerm        = 't'
	statusTerm      = 's'
	moreTerm        = '+' // marks runs with more words than are indexed
)

func hashTerm(project uuid.UUID, kind byte, text string) Term {
	hash := sha256.New()
	hash.Write(append(project[:], kind))
	hash.Write([]byte(text))
	return Term(binary.BigEndian.Uint64(hash.Sum(nil))) //nolint:gosec // all bits are used
}

// WordTerm returns the term of a word in a project's runs.
func WordTerm(project uuid.UUID, word string) Term { return hashTerm(project, wordTerm, word) }

// Entry is the index entry of runs of an event: their terms, in order and each once. The row of the
// first run has the terms. The rows of the other runs, which are of the same day, name that run.
type Entry struct {
	Project uuid.UUID
	Runs    []uuid.UUID
	Terms   []Term
}

// Stored bytes of an index entry: the row of each run, and each term.
const (
	entryBytes = 128
	termBytes  = 16
)

// Bytes returns the stored bytes of the row of the n-th run.
func (e Entry) Bytes(n int) int64 {
	if n > 0 {
		return entryBytes
	}
	return entryBytes + termBytes*int64(len(e.Terms))
}

const (
	// sharedTerms is the number of terms of an input from which runs of its event share an entry.
	sharedTerms = 256
	// maxEntryTerms is the maximum number of terms of a shared entry.
	maxEntryTerms = 3 * maxWords
)

// indexedRun is a run to index. own are the terms of its fields and its output and error. given are
// the terms of the input, which it shares with other runs of the event.
type indexedRun struct {
	store.Key
	event      uuid.UUID
	own, given []Term
}

// PrimaryKey implements sqldb.KeyedRow.
func (e indexedRun) PrimaryKey() store.Key { return e.Key }

// fieldTerms returns the terms of a run's fields. Entries never change. A search for a new kind of
// term must therefore also search for the old terms, and check matches of both.
func fieldTerms(run store.Searched) []Term {
	project := run.ProjectID
	return []Term{
		hashTerm(project, environmentTerm, run.EnvironmentID.String()), hashTerm(project, agentTerm, run.AgentName),
		hashTerm(project, testTerm, run.TestName), hashTerm(project, statusTerm, string(run.Status)),
	}
}

// wordTerms returns the terms of words, at most maxWords.
func wordTerms(project uuid.UUID, words []string) (terms []Term) {
	if len(words) > maxWords {
		words, terms = words[:maxWords], append(terms, hashTerm(project, moreTerm, ""))
	}
	for _, word := range words {
		terms = append(terms, hashTerm(project, wordTerm, word))
	}
	return terms
}

// entriesFor returns the entries for runs of a project: one for the runs of an event with a large
// input, unless it gets too large, and otherwise one per run. A search that finds an entry checks
// each of its runs.
func entriesFor(project uuid.UUID, runs []indexedRun) (entries []Entry) {
	type eventDay struct {
		event uuid.UUID
		day   int64
	}
	shared := map[eventDay]int{}
	for _, run := range runs {
		of := eventDay{run.event, sqldb.DayOf(run.ID)}
		if at, is := shared[of]; is && len(entries[at].Terms)+len(run.own) <= maxEntryTerms {
			entries[at].Runs, entries[at].Terms = append(entries[at].Runs, run.ID), append(entries[at].Terms, run.own...)
			continue
		}
		if len(run.given) >= sharedTerms {
			shared[of] = len(entries)
		}
		entries = append(entries, Entry{project, []uuid.UUID{run.ID}, slices.Concat(run.given, run.own)})
	}
	for i := range entries {
		slices.Sort(entries[i].Terms)
		entries[i].Terms = slices.Compact(entries[i].Terms)
	}
	return entries
}

// IndexRuns implements store.Housekeeping.
func (c *Core) IndexRuns(ctx context.Context, limit int, words func(store.Searched) []string) (int, error) {
	n, err := outbox.Words.Consume(ctx, c.DB, c.indexing, c.indexingTurns, limit, maxIndexed, outbox.Consumer[outbox.EndedRow]{
		ConsumeAll: func(ctx context.Context, rows []outbox.EndedRow) error { return c.indexRows(ctx, rows, words) }, TryConsume: c.indexForTrial,
	})
	return n, sqldb.Wrap(err, "indexing runs")
}

// indexRows indexes the runs of outbox rows, as many as one transaction takes. The rows are in the
// order of their projects. Each project has an equal share, so a busy project delays only itself.
// It reads the runs before the transaction, because others wait for the writer. If two processes
// read the same rows, the one that takes the rows indexes them.
func (c *Core) indexRows(ctx context.Context, rows []outbox.EndedRow, words func(store.Searched) []string) (err error) {
	entries, done := map[store.Key][]indexedRun{}, map[store.Key]bool{}
	room := indexCapacity{c.indexing.BatchSize(maxIndexedRuns), maxTerms}
	projects := outbox.RowsByProject(rows)
	var read []outbox.EndedRow
	for i, of := range projects {
		share := room.shareOf(len(projects) - i)
		left := share
		for _, row := range of {
			if entries[row.Key], err = c.entriesOf(ctx, row.Runs, words, &left, done); err != nil {
				return sqldb.Wrap(err, "reading runs of project %s", row.ProjectID)
			}
			if read = append(read, row); left.isExhausted() {
				break
			}
		}
		room = indexCapacity{room.runs - share.runs + left.runs, room.terms - share.terms + left.terms}
	}
	return c.Write(ctx, func(ctx context.Context, tx *sqldb.Tx) error {
		mine := false
		for _, row := range read {
			taken, err := c.indexRow(ctx, tx, row, entries[row.Key], done)
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
func (c *Core) indexForTrial(ctx context.Context) error {
	id, err := uuid.NewV7()
	if err != nil {
		return err
	}
	key := store.Key{ProjectID: uuid.New(), ID: id}
	if _, err := c.searchedRuns(ctx, c.engine.Reader(), key.ProjectID, []uuid.UUID{id}, func(*sqldb.Args, bool) string { return "" }); err != nil {
		return err
	}
	return c.Write(ctx, func(ctx context.Context, tx *sqldb.Tx) error {
		if _, err := c.indexRow(ctx, tx, outbox.EndedRow{Key: key}, nil, nil); err != nil {
			return err
		}
		if _, err := c.engine.AddTerms(ctx, tx, []Entry{{key.ProjectID, []uuid.UUID{id}, []Term{1}}}); err != nil {
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
func (c *Core) entriesOf(
	ctx context.Context, runs []store.Key, words func(store.Searched) []string, room *indexCapacity, done map[store.Key]bool,
) (entries []indexedRun, err error) {
	given := map[uuid.UUID][]Term{}
	for some := range slices.Chunk(runs, c.indexing.BatchSize(searchedAtOnce)) {
		found, err := c.searchedRuns(ctx, c.engine.Reader(), some[0].ProjectID, idsOfKeys(some), func(*sqldb.Args, bool) string { return "" })
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
func (c *Core) indexRow(ctx context.Context, tx *sqldb.Tx, row outbox.EndedRow, entries []indexedRun, done map[store.Key]bool) (is bool, err error) {
	if err := c.LockPast(ctx, tx, row.ProjectID); err != nil {
		return false, err
	}
	taken, err := outbox.Words.Take(ctx, c.DB, tx, []outbox.EndedRow{row})
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
	if err := c.CheckMissingRows(ctx, tx, "ended_runs", sqldb.KeysWithoutRow(mine, entries), sqldb.ReadableCondition("r.project_id")); err != nil {
		return false, err
	}
	var runs []uuid.UUID
	for _, entry := range entries {
		runs = append(runs, entry.ID)
	}
	there := map[uuid.UUID]bool{}
	for _, same := range c.IDsByPart("ended_runs", runs) {
		var l sqldb.Args
		ids, err := sqldb.Collect(ctx, tx, sqldb.ScanUUID, c.InPart(`SELECT r.id FROM {ended_runs} r WHERE `+c.KeyCondition(&l, "r.id", sqldb.KeysFromIDs(row.ProjectID, same))+sqldb.UnerasedCondition("r"), same[0]), l.Values...)
		if err != nil {
			return false, err
		}
		for _, id := range ids {
			there[id] = true
		}
	}
	return true, c.addEntries(ctx, tx, entriesFor(row.ProjectID, slices.DeleteFunc(entries, func(e indexedRun) bool { return !there[e.ID] })))
}

// addEntries adds entries of a project to the index and counts the bytes of the inserted rows.
func (c *Core) addEntries(ctx context.Context, tx *sqldb.Tx, entries []Entry) error {
	added, err := c.engine.AddTerms(ctx, tx, entries)
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

// forgetWords deletes the index entry of a run, and returns the bytes to subtract from its day.
// Runs that share its entry are indexed again, without the words of this run.
func (c *Core) forgetWords(ctx context.Context, tx *sqldb.Tx, run store.Key) (bytes int64, err error) {
	there, err := c.engine.HasPart(ctx, tx, "run_words", run.ID)
	if err != nil || !there {
		return 0, err
	}
	var first uuid.UUID
	entry := c.InPart(`SELECT COALESCE(w.shared, w.run_id) FROM {run_words} w WHERE w.project_id = $1 AND w.run_id = $2`, run.ID)
	err = sqldb.MapNoRows(tx.QueryRowContext(ctx, entry, run.ProjectID, run.ID).Scan(&first))
	if errors.Is(err, store.ErrNotFound) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	var again outbox.EndedRow
	for _, which := range []string{"run_id", "shared"} {
		statement := c.InPart(`DELETE FROM {run_words} WHERE project_id = $1 AND `+which+` = $2 RETURNING run_id, bytes`, run.ID)
		if _, err := sqldb.Collect(ctx, tx, func(row sqldb.Scanner) (none struct{}, err error) {
			var (
				id   uuid.UUID
				less int64
			)
			err = row.Scan(&id, &less)
			if bytes += less; id != run.ID {
				again.Runs = append(again.Runs, store.Key{ProjectID: run.ProjectID, ID: id})
			}
			return none, err
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

func idsOfKeys(keys []store.Key) (ids []uuid.UUID) {
	for _, key := range keys {
		ids = append(ids, key.ID)
	}
	return ids
}

// searchedRun is a run that is read for a search.
type searchedRun struct {
	store.Searched
	input        uuid.UUID
	output, body *uuid.UUID // blobs
}

func scanSearched(row sqldb.Scanner) (r searchedRun, err error) {
	err = row.Scan(append(runrow.Fields(&r.Run), &r.input, &r.output)...)
	return r, err
}

// searchedRuns reads runs of a project by ID that exist and match a condition on open or ended runs
// r. They are found by key, whatever index the condition would have, because a planner without
// statistics might use that index.
func (c *Core) searchedRuns(ctx context.Context, q sqldb.Queryer, project uuid.UUID, ids []uuid.UUID, narrow func(l *sqldb.Args, ended bool) string) (map[uuid.UUID]store.Searched, error) {
	var l sqldb.Args
	runs, err := sqldb.Collect(ctx, q, scanSearched, `WITH r AS MATERIALIZED (SELECT h.* FROM open_runs h WHERE `+c.KeyCondition(&l, "h.id", sqldb.KeysFromIDs(project, ids))+`)
		SELECT `+runrow.OpenColumns+`, r.input_id, NULL FROM r WHERE TRUE`+narrow(&l, false), l.Values...)
	if err != nil {
		return nil, err
	}
	open := make(map[uuid.UUID]bool, len(runs))
	for _, run := range runs {
		open[run.ID] = true
	}
	past := slices.DeleteFunc(slices.Clone(ids), func(id uuid.UUID) bool { return open[id] })
	for _, same := range c.IDsByPart("ended_runs", past) {
		var l sqldb.Args
		ended, err := sqldb.PastRows(ctx, c.DB, q, same[0], scanSearched, `WITH r AS MATERIALIZED (SELECT h.* FROM {ended_runs} h WHERE `+c.KeyCondition(&l, "h.id", sqldb.KeysFromIDs(project, same))+`)
			SELECT `+runrow.EndedColumns+`, r.input_id, r.output_blob_id FROM r WHERE TRUE`+sqldb.ReadableCondition("r.project_id")+narrow(&l, true), l.Values...)
		if err != nil {
			return nil, err
		}
		runs = append(runs, ended...)
	}
	return c.withTexts(ctx, q, project, runs)
}

// withTexts adds the inputs of runs, and the beginnings of large values.
func (c *Core) withTexts(ctx context.Context, q sqldb.Queryer, project uuid.UUID, runs []searchedRun) (map[uuid.UUID]store.Searched, error) {
	var (
		inputs []uuid.UUID
		large  []store.Key
	)
	for _, run := range runs {
		inputs = append(inputs, run.input)
	}
	slices.SortFunc(inputs, sqldb.CompareIDs)
	given, err := runrow.Inputs(ctx, c.DB, q, project, slices.Compact(inputs)) // some share an input
	if err != nil {
		return nil, err
	}
	for i := range runs {
		run := &runs[i]
		input := given[run.input]
		run.ContentType, run.Input, run.Headers, run.body = input.ContentType, input.Data, input.Headers, input.Blob
		for _, blob := range []*uuid.UUID{run.output, run.body} {
			if blob != nil {
				large = append(large, store.Key{ProjectID: project, ID: *blob})
			}
		}
	}
	heads, err := c.readHeads(ctx, q, large)
	if err != nil {
		return nil, err
	}
	out := make(map[uuid.UUID]store.Searched, len(runs))
	for _, run := range runs {
		if run.output != nil {
			run.Output = sqldb.Text(string(heads[*run.output])) // a character may be cut
		}
		if run.body != nil {
			run.Input = heads[*run.body]
		}
		out[run.ID] = run.Searched
	}
	return out, nil
}

// readHeads returns the beginnings of blobs.
func (c *Core) readHeads(ctx context.Context, q sqldb.Queryer, blobs []store.Key) (map[uuid.UUID][]byte, error) {
	out := map[uuid.UUID][]byte{}
	if len(blobs) == 0 {
		return out, nil
	}
	l := sqldb.Args{Values: []any{store.MaxInlineText}}
	_, err := sqldb.Collect(ctx, q, func(row sqldb.Scanner) (none struct{}, err error) {
		var (
			id   uuid.UUID
			data []byte
		)
		err = row.Scan(&id, &data)
		out[id] = data
		return none, err
	}, `SELECT b.blob_id, substr(b.data, 1, $1) FROM blob_chunks b WHERE `+c.KeyCondition(&l, "b.blob_id", blobs)+` AND b.number = 0`, l.Values...)
	return out, err
}
