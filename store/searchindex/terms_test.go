// SPDX-License-Identifier: Apache-2.0

package searchindex

import (
	"fmt"
	"slices"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/store"
	"github.com/agentplatform/agentplatform/store/sqldb"
)

// entryTerms returns the terms of the entry of a run with these words.
func entryTerms(run store.Searched, words []string) []Term {
	return entriesFor(run.ProjectID, []indexedRun{{run.Key(), run.ID, append(fieldTerms(run), wordTerms(run.ProjectID, words)...), nil}})[0].Terms
}

// Runs of an event with a large input share an entry, up to a size.
func TestEntriesFor_SharesInputs(t *testing.T) {
	t.Parallel()
	given := func(n int) (terms []Term) {
		for i := range n {
			terms = append(terms, Term(i))
		}
		return terms
	}
	event, day := uuid.New(), sqldb.FirstID(20_000)
	run := func(of uuid.UUID, number byte, own, inherits int) indexedRun {
		id := day
		id[15] = number
		terms := given(own)
		for i := range terms {
			terms[i] += Term(1_000_000 * int(number))
		}
		return indexedRun{store.Key{ID: id}, of, terms, given(inherits)}
	}
	next := run(event, 5, 1, sharedTerms)
	next.ID = sqldb.FirstID(20_001)
	for name, row := range map[string]struct {
		runs          []indexedRun
		runsOf, terms []int
	}{
		"many words": {[]indexedRun{run(event, 1, 3, sharedTerms), run(event, 2, 4, sharedTerms)}, []int{2}, []int{sharedTerms + 7}},
		"few words":  {[]indexedRun{run(event, 1, 3, sharedTerms-1), run(event, 2, 4, sharedTerms-1)}, []int{1, 1}, []int{sharedTerms + 2, sharedTerms + 3}},
		"two events": {[]indexedRun{run(event, 1, 3, sharedTerms), run(uuid.New(), 2, 4, sharedTerms)}, []int{1, 1}, []int{sharedTerms + 3, sharedTerms + 4}},
		"two days":   {[]indexedRun{run(event, 1, 3, sharedTerms), next}, []int{1, 1}, []int{sharedTerms + 3, sharedTerms + 1}},
		"more terms than an entry": {[]indexedRun{run(event, 1, maxEntryTerms-sharedTerms, sharedTerms), run(event, 2, 1, sharedTerms), run(event, 3, 1, sharedTerms)},
			[]int{1, 2}, []int{maxEntryTerms, sharedTerms + 2}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var runs, terms []int
			for _, entry := range entriesFor(uuid.Nil, row.runs) {
				require.True(t, slices.IsSorted(entry.Terms))
				runs, terms = append(runs, len(entry.Runs)), append(terms, len(entry.Terms))
			}
			require.Equal(t, row.runsOf, runs)
			require.Equal(t, row.terms, terms)
		})
	}
}

// Two projects have no term in common, so their words do not affect each other's searches. A word
// is never equal to a field value.
func TestWordTerm_DiffersByProject(t *testing.T) {
	t.Parallel()
	run := store.Searched{Run: store.Run{ProjectID: uuid.New(), AgentName: "plum", Status: store.RunCompleted}}
	other := run
	other.ProjectID = uuid.New()
	words := []string{"completed", "plum"}
	one, two := entryTerms(run, words), entryTerms(other, words)
	require.Len(t, one, 4+len(words))
	require.True(t, slices.IsSorted(one))
	for _, term := range one {
		require.NotContains(t, two, term)
	}
}

// A run with too many words has the marker term.
func TestEntriesFor_LimitsWords(t *testing.T) {
	t.Parallel()
	run := store.Searched{Run: store.Run{ProjectID: uuid.New()}}
	var words []string
	for i := range maxWords {
		words = append(words, fmt.Sprint(i))
	}
	more := hashTerm(run.ProjectID, moreTerm, "")
	require.NotContains(t, entryTerms(run, words), more)
	terms := entryTerms(run, append(words, "one", "two"))
	require.Contains(t, terms, more)
	require.Len(t, terms, 4+maxWords+1)
}
