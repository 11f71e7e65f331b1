// SPDX-License-Identifier: Apache-2.0

package searchindex

import (
	"crypto/sha256"
	"encoding/binary"
	"slices"

	"github.com/google/uuid"

	"github.com/agentplatform/agentplatform/store"
	"github.com/agentplatform/agentplatform/store/sqldb"
)

// maxWords is the number of indexed words per run. A run with more words is a candidate of
// every search.
const maxWords = 10_000

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
