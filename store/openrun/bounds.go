// SPDX-License-Identifier: Apache-2.0

package openrun

import (
	"github.com/agentplatform/agentplatform/store"
	"github.com/agentplatform/agentplatform/store/sqldb"
)

// bounded returns a completion in its stored form; see store.Completion.Bounded. Text is made
// storable first, which may lengthen it.
func bounded(c store.Completion) store.Completion {
	c.Output, c.Error, c.TestName, c.Journal = sqldb.Text(c.Output), sqldb.Text(c.Error), sqldb.Text(c.TestName), storable(c.Journal)
	c.Context = sqldb.StorableJSON(c.Context)
	return c.Bounded()
}

// boundedJournal returns entries in their stored form, with the errors of store.CheckJournal.
func boundedJournal(entries []store.JournalEntry) ([]store.JournalEntry, error) {
	entries = storable(entries)
	return entries, store.CheckJournal(entries)
}

func storable(entries []store.JournalEntry) []store.JournalEntry {
	out := make([]store.JournalEntry, len(entries))
	for i, e := range entries {
		e.Data = sqldb.StorableJSON(e.Data)
		out[i] = e
	}
	return out
}
