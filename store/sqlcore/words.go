// SPDX-License-Identifier: Apache-2.0

package sqlcore

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
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

// Entry is what the index has of a run: its terms, in order and each once.
type Entry struct {
	Run   store.Key
	Terms []Term
}

// entryOf is the entry of a run with these words. An entry stays as it is for as long as its run: a
// search by a term that entries have not had before is to ask for what it asked for until then as
// well, and finds what matches among both.
func entryOf(run store.Searched, words []string) Entry {
	project := run.ProjectID
	terms := []Term{
		termOf(project, environmentTerm, run.EnvironmentID.String()), termOf(project, agentTerm, run.AgentName),
		termOf(project, testTerm, run.TestName), termOf(project, statusTerm, string(run.Status)),
	}
	if len(words) > maxWords {
		words, terms = words[:maxWords], append(terms, termOf(project, moreTerm, ""))
	}
	for _, word := range words {
		terms = append(terms, termOf(project, wordTerm, word))
	}
	slices.Sort(terms)
	return Entry{Run: run.Key(), Terms: slices.Compact(terms)}
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
	entries, done, room := map[store.Key][]Entry{}, map[store.Key]bool{}, indexingRoom{c.indexing.most(maxIndexedRuns), maxTerms}
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
		if err := c.engine.AddTerms(ctx, tx, []Entry{{key, []Term{1}}}); err != nil {
			return err
		}
		return errTrial
	})
}

// indexingRoom is how many runs and terms one transaction has room for yet.
type indexingRoom struct{ runs, terms int }

func (r indexingRoom) full() bool { return r.runs <= 0 || r.terms <= 0 }

// entriesOf are those of ended runs of a project, but for those that are gone or erased, until
// there is no room for more. Runs that have been looked at are done.
func (c *Core) entriesOf(ctx context.Context, runs []store.Key, words func(store.Searched) []string, room *indexingRoom, done map[store.Key]bool) (entries []Entry, err error) {
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
			if run, there := found[key.ID]; there {
				entry := entryOf(run, words(run))
				entries = append(entries, entry)
				room.runs, room.terms = room.runs-1, room.terms-len(entry.Terms)
			}
		}
	}
	return entries, nil
}

// index takes a row of the outbox and adds entries to the index, but for those of runs that went
// or were erased meanwhile. Runs of the row that are not done stay in it. It says whether the row was
// there to be taken.
func (c *Core) index(ctx context.Context, tx *Tx, row ended, entries []Entry, done map[store.Key]bool) (is bool, err error) {
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
		runs = append(runs, entry.Run.ID)
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
	return true, c.engine.AddTerms(ctx, tx, slices.DeleteFunc(entries, func(e Entry) bool { return !there[e.Run.ID] }))
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
