// SPDX-License-Identifier: Apache-2.0

package sqlcore

import (
	"fmt"
	"slices"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/store"
)

// TestTermsAreOfOneProject: the same words of two have none in common, so that what one writes
// costs the searches of the other nothing; and a word is no field's value.
func TestTermsAreOfOneProject(t *testing.T) {
	t.Parallel()
	run := store.Searched{Run: store.Run{ProjectID: uuid.New(), AgentName: "plum", Status: store.RunCompleted}}
	other := run
	other.ProjectID = uuid.New()
	words := []string{"completed", "plum"}
	one, two := entryOf(run, words).Terms, entryOf(other, words).Terms
	require.Len(t, one, 4+len(words))
	require.True(t, slices.IsSorted(one))
	for _, term := range one {
		require.NotContains(t, two, term)
	}
}

// TestAnEntryIsBounded: what has more words has the term that says so.
func TestAnEntryIsBounded(t *testing.T) {
	t.Parallel()
	run := store.Searched{Run: store.Run{ProjectID: uuid.New()}}
	var words []string
	for i := range maxWords {
		words = append(words, fmt.Sprint(i))
	}
	more := termOf(run.ProjectID, moreTerm, "")
	require.NotContains(t, entryOf(run, words).Terms, more)
	terms := entryOf(run, append(words, "one", "two")).Terms
	require.Contains(t, terms, more)
	require.Len(t, terms, 4+maxWords+1)
}
