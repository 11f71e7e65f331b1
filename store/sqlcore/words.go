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
)

const (
	// maxIndexed is of how many transactions' runs one transaction indexes the words at most,
	// maxIndexedRuns of how many runs, and maxTerms of about how many terms: so of some megabytes.
	maxIndexed     = 16
	maxIndexedRuns = 200
	maxTerms       = 100_000
	// maxWords is how many words of a run are indexed. One that has more is found by each search,
	// and looked at.
	maxWords = 10_000
	// searchedAtOnce is how many runs are read at a time with what of them is searched.
	searchedAtOnce = 50
)

// Term is what the index of runs knows: a hash of a project, and of a word or a field's value.
type Term int64

// Kinds of terms.
const (
	wordTerm        = 'w'
	environmentTerm = 'e'
	agentTerm       = 'a'
	testTerm        = 't'
	statusTerm      = 's'
	moreTerm        = '+' // of what has more words than are indexed
)

func termOf(project uuid.UUID, kind byte, text string) Term {
	hash := sha256.New()
	hash.Write(append(project[:], kind))
	hash.Write([]byte(text))
	return Term(binary.BigEndian.Uint64(hash.Sum(nil))) //nolint:gosec // all of its bits count
}

// WordTerm is the term of a word of a project's runs.
func WordTerm(project uuid.UUID, word string) Term { return termOf(project, wordTerm, word) }

// Entry is what the index has of runs of an event: their terms, in order and each once. The first of the runs
// has the terms in its row, and the rows of the others, which are of the same day, name that run.
type Entry struct {
	Project uuid.UUID
	Runs    []uuid.UUID
	Terms   []Term
}

// What an entry of the index counts as stored: bytes of the row of each run, and of each term.
const (
	entryBytes = 128
	termBytes  = 16
)

// Bytes is how much the row of the n-th run counts as stored.
func (e Entry) Bytes(n int) int64 {
	if n > 0 {
		return entryBytes
	}
	return entryBytes + termBytes*int64(len(e.Terms))
}

const (
	// sharedTerms is from how many terms of an input on runs of its event share an entry.
	sharedTerms = 256
	// maxEntryTerms is how many terms an entry has at most that runs share.
	maxEntryTerms = 3 * maxWords
)

// indexedRun is a run that is indexed. Its own terms are of its fields and of what it has written; given are
// those of the input, which it has in common with other runs of the event.
type indexedRun struct {
	store.Key
	event      uuid.UUID
	own, given []Term
}

// fieldTerms are those of a run's fields. An entry stays as it is for as long as its run: a search by a term
// that entries have not had before is to ask for what it asked for until then as well, and finds what
// matches among both.
func fieldTerms(run store.Searched) []Term {
	project := run.ProjectID
	return []Term{
		termOf(project, environmentTerm, run.EnvironmentID.String()), termOf(project, agentTerm, run.AgentName),
		termOf(project, testTerm, run.TestName), termOf(project, statusTerm, string(run.Status)),
	}
}

// wordTerms are those of words, at most maxWords of them.
func wordTerms(project uuid.UUID, words []string) (terms []Term) {
	if len(words) > maxWords {
		words, terms = words[:maxWords], append(terms, termOf(project, moreTerm, ""))
	}
	for _, word := range words {
		terms = append(terms, termOf(project, wordTerm, word))
	}
	return terms
}

// entriesFor makes entries of runs of a project: one for the runs of an event that were given many words, unless
// it gets too large, and else one for each run. A search that finds an entry looks at each of its runs.
func entriesFor(project uuid.UUID, runs []indexedRun) (entries []Entry) {
	type eventDay struct {
		event uuid.UUID
		day   int64
	}
	shared := map[eventDay]int{}
	for _, run := range runs {
		of := eventDay{run.event, DayOf(run.ID)}
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
	n, err := c.consumeEnded(ctx, wordsBox, c.indexing, c.indexingTurns, limit, maxIndexed, consumer[ended]{
		all: func(ctx context.Context, rows []ended) error { return c.indexRows(ctx, rows, words) }, trial: c.indexForTrial,
	})
	return n, wrap(err, "indexing runs")
}

// indexRows indexes what rows of the outbox are about, as many runs as are indexed at once. What
// these are about is read before the transaction: others wait for who writes. Of two who index the
// same, the one who takes the rows does it.
func (c *Core) indexRows(ctx context.Context, rows []ended, words func(store.Searched) []string) (err error) {
	entries, done, room := map[store.Key][]indexedRun{}, map[store.Key]bool{}, indexingRoom{c.indexing.most(maxIndexedRuns), maxTerms}
	for i, row := range rows {
		if entries[row.Key], err = c.entriesOf(ctx, row.runs, words, &room, done); err != nil {
			return wrap(err, "reading runs of project %s", row.ProjectID)
		}
		if room.full() {
			rows = rows[:i+1]
			break
		}
	}
	return c.Write(ctx, func(ctx context.Context, tx *Tx) error {
		mine := false
		for _, row := range rows {
			taken, err := c.index(ctx, tx, row, entries[row.Key], done)
			if mine = mine || taken; err != nil {
				return err
			}
		}
		if !mine {
			return errOthers
		}
		return nil
	})
}

// indexForTrial indexes a run that nobody has, and keeps nothing of it.
func (c *Core) indexForTrial(ctx context.Context) error {
	id, err := uuid.NewV7()
	if err != nil {
		return err
	}
	key := store.Key{ProjectID: uuid.New(), ID: id}
	if _, err := c.searchedRuns(ctx, c.engine.Reader(), key.ProjectID, []uuid.UUID{id}, func(*list, bool) string { return "" }); err != nil {
		return err
	}
	return c.Write(ctx, func(ctx context.Context, tx *Tx) error {
		if _, err := c.index(ctx, tx, ended{Key: key}, nil, nil); err != nil {
			return err
		}
		if err := c.engine.AddTerms(ctx, tx, []Entry{{key.ProjectID, []uuid.UUID{id}, []Term{1}}}); err != nil {
			return err
		}
		return errTrial
	})
}

// indexingRoom is how many runs and terms one transaction has room for yet.
type indexingRoom struct{ runs, terms int }

func (r indexingRoom) full() bool { return r.runs <= 0 || r.terms <= 0 }

// entriesOf are what is to be indexed of ended runs of a project, but for those that are gone or erased, until
// there is no room for more. Runs that have been looked at are done. The words of an input are told once, not
// for each run of its event.
func (c *Core) entriesOf(
	ctx context.Context, runs []store.Key, words func(store.Searched) []string, room *indexingRoom, done map[store.Key]bool,
) (entries []indexedRun, err error) {
	given := map[uuid.UUID][]Term{}
	for some := range slices.Chunk(runs, c.indexing.most(searchedAtOnce)) {
		found, err := c.searchedRuns(ctx, c.engine.Reader(), some[0].ProjectID, idsOf(some), func(*list, bool) string { return "" })
		if err != nil {
			return nil, err
		}
		for _, key := range some {
			if room.full() {
				return entries, nil
			}
			done[key] = true
			run, there := found[key.ID]
			if !there {
				continue
			}
			event := key.ID // of a run without one
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

// index takes a row of the outbox and adds entries to the index, but for those of runs that went
// or were erased meanwhile. Runs of the row that are not done stay in it. It says whether the row was
// there to be taken.
func (c *Core) index(ctx context.Context, tx *Tx, row ended, entries []indexedRun, done map[store.Key]bool) (is bool, err error) {
	if err := c.lockPast(ctx, tx, row.ProjectID); err != nil {
		return false, err
	}
	taken, err := wordsBox.takeRows(ctx, c, tx, []ended{row})
	if err != nil || len(taken) == 0 {
		return false, err
	}
	if err := wordsBox.put(ctx, tx, taken[0].without(done)); err != nil {
		return false, err
	}
	if err := c.checkGone(ctx, tx, "ended_runs", notAmong(among(taken[0].runs, done), entries), readable("r.project_id")); err != nil {
		return false, err
	}
	var runs []uuid.UUID
	for _, entry := range entries {
		runs = append(runs, entry.ID)
	}
	there := map[uuid.UUID]bool{}
	for _, same := range c.ByPart("ended_runs", runs) {
		var l list
		ids, err := collect(ctx, tx, scanID, c.InPart(`SELECT r.id FROM {ended_runs} r WHERE `+c.keys(&l, "r.id", keysOf(row.ProjectID, same))+unerased("r"), same[0]), l.args...)
		if err != nil {
			return false, err
		}
		for _, id := range ids {
			there[id] = true
		}
	}
	return true, c.addEntries(ctx, tx, entriesFor(row.ProjectID, slices.DeleteFunc(entries, func(e indexedRun) bool { return !there[e.ID] })))
}

// addEntries adds entries of a project to the index, which count as stored.
func (c *Core) addEntries(ctx context.Context, tx *Tx, entries []Entry) error {
	if err := c.engine.AddTerms(ctx, tx, entries); err != nil {
		return err
	}
	var keys []store.Key
	bytes := map[store.Key]int64{}
	for _, entry := range entries {
		for n, run := range entry.Runs {
			key := store.Key{ProjectID: entry.Project, ID: run}
			keys = append(keys, key)
			bytes[key] = entry.Bytes(n)
		}
	}
	return countMore(ctx, tx, keys, bytes)
}

// forgetWords deletes what the index has of a run, and returns how many bytes less are stored of its day. Runs that
// share its entry are indexed anew, without the words of this one.
func (c *Core) forgetWords(ctx context.Context, tx *Tx, run store.Key) (bytes int64, err error) {
	there, err := c.engine.HasPart(ctx, tx, "run_words", run.ID)
	if err != nil || !there {
		return 0, err
	}
	var first uuid.UUID
	entry := c.InPart(`SELECT COALESCE(w.shared, w.run_id) FROM {run_words} w WHERE w.project_id = $1 AND w.run_id = $2`, run.ID)
	err = found(tx.QueryRowContext(ctx, entry, run.ProjectID, run.ID).Scan(&first))
	if errors.Is(err, store.ErrNotFound) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	var again ended
	for _, which := range []string{"run_id", "shared"} {
		statement := c.InPart(`DELETE FROM {run_words} WHERE project_id = $1 AND `+which+` = $2 RETURNING run_id, bytes`, run.ID)
		if _, err := collect(ctx, tx, func(row scanner) (none struct{}, err error) {
			var (
				id   uuid.UUID
				less int64
			)
			err = row.Scan(&id, &less)
			if bytes += less; id != run.ID {
				again.runs = append(again.runs, store.Key{ProjectID: run.ProjectID, ID: id})
			}
			return none, err
		}, statement, run.ProjectID, first); err != nil {
			return 0, err
		}
	}
	if len(again.runs) == 0 {
		return bytes, nil
	}
	again.Key = again.runs[0]
	if err := tx.QueryRowContext(ctx, `SELECT now_us()`).Scan(&again.postedAt); err != nil {
		return 0, err
	}
	return bytes, wordsBox.put(ctx, tx, again)
}

func idsOf(keys []store.Key) (ids []uuid.UUID) {
	for _, key := range keys {
		ids = append(ids, key.ID)
	}
	return ids
}

// searchedRun is a run that is read to be searched.
type searchedRun struct {
	store.Searched
	input        uuid.UUID
	output, body *uuid.UUID // blobs
}

func scanSearched(row scanner) (r searchedRun, err error) {
	err = row.Scan(append(runFields(&r.Run), &r.input, &r.output)...)
	return r, err
}

// searchedRuns reads runs of a project by their ids, those that are there and a condition on open
// or ended runs r holds of. They are found by their keys, whatever index the condition would
// have: without statistics a planner might take that.
func (c *Core) searchedRuns(ctx context.Context, q Queryer, project uuid.UUID, ids []uuid.UUID, narrow func(l *list, ended bool) string) (map[uuid.UUID]store.Searched, error) {
	var l list
	runs, err := collect(ctx, q, scanSearched, `WITH r AS MATERIALIZED (SELECT h.* FROM open_runs h WHERE `+c.keys(&l, "h.id", keysOf(project, ids))+`)
		SELECT `+openRunColumns+`, r.input_id, NULL FROM r WHERE TRUE`+narrow(&l, false), l.args...)
	if err != nil {
		return nil, err
	}
	open := make(map[uuid.UUID]bool, len(runs))
	for _, run := range runs {
		open[run.ID] = true
	}
	past := slices.DeleteFunc(slices.Clone(ids), func(id uuid.UUID) bool { return open[id] })
	for _, same := range c.ByPart("ended_runs", past) {
		var l list
		ended, err := pastRows(ctx, c, q, same[0], scanSearched, `WITH r AS MATERIALIZED (SELECT h.* FROM {ended_runs} h WHERE `+c.keys(&l, "h.id", keysOf(project, same))+`)
			SELECT `+endedRunColumns+`, r.input_id, r.output_blob_id FROM r WHERE TRUE`+readable("r.project_id")+narrow(&l, true), l.args...)
		if err != nil {
			return nil, err
		}
		runs = append(runs, ended...)
	}
	return c.withTexts(ctx, q, project, runs)
}

// withTexts adds what runs were given, and the beginnings of what is large.
func (c *Core) withTexts(ctx context.Context, q Queryer, project uuid.UUID, runs []searchedRun) (map[uuid.UUID]store.Searched, error) {
	var (
		inputs []uuid.UUID
		large  []store.Key
	)
	for _, run := range runs {
		inputs = append(inputs, run.input)
	}
	slices.SortFunc(inputs, compareIDs)
	given, err := c.Inputs(ctx, q, project, slices.Compact(inputs)) // some have one in common
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
	heads, err := c.heads(ctx, q, large)
	if err != nil {
		return nil, err
	}
	out := make(map[uuid.UUID]store.Searched, len(runs))
	for _, run := range runs {
		if run.output != nil {
			run.Output = Text(string(heads[*run.output])) // a character may be cut
		}
		if run.body != nil {
			run.Input = heads[*run.body]
		}
		out[run.ID] = run.Searched
	}
	return out, nil
}

// heads are the beginnings of blobs.
func (c *Core) heads(ctx context.Context, q Queryer, blobs []store.Key) (map[uuid.UUID][]byte, error) {
	out := map[uuid.UUID][]byte{}
	if len(blobs) == 0 {
		return out, nil
	}
	l := list{args: []any{store.MaxInlineText}}
	_, err := collect(ctx, q, func(row scanner) (none struct{}, err error) {
		var (
			id   uuid.UUID
			data []byte
		)
		err = row.Scan(&id, &data)
		out[id] = data
		return none, err
	}, `SELECT b.blob_id, substr(b.data, 1, $1) FROM blob_chunks b WHERE `+c.keys(&l, "b.blob_id", blobs)+` AND b.number = 0`, l.args...)
	return out, err
}
