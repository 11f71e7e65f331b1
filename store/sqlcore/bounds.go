// SPDX-License-Identifier: Apache-2.0

package sqlcore

import (
	"encoding/json"

	"github.com/agentplatform/agentplatform/store"
	"github.com/agentplatform/agentplatform/store/sqldb"
)

// Bounded returns a completion in its stored form; see store.Completion.Bounded. Text is made
// storable first, which may lengthen it.
func Bounded(c store.Completion) store.Completion {
	c.Output, c.Error, c.TestName, c.Journal = sqldb.Text(c.Output), sqldb.Text(c.Error), sqldb.Text(c.TestName), storable(c.Journal)
	c.Context = storableJSON(c.Context)
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
		e.Data = storableJSON(e.Data)
		out[i] = e
	}
	return out
}

func storableJSON(raw json.RawMessage) json.RawMessage {
	if len(raw) == 0 {
		return nil
	}
	return json.RawMessage(sqldb.Text(string(raw)))
}

// boundedResult returns a build result in its stored form, with store.ErrTooLarge and
// store.ErrInvalid as in Bounded.
func boundedResult(r store.BuildResult) (store.BuildResult, error) {
	r.Message, r.TestResults = sqldb.Text(r.Message), storableJSON(r.TestResults)
	files := make([]store.ConnectorFile, len(r.Connectors))
	for i, file := range r.Connectors {
		files[i] = store.ConnectorFile{Key: file.Key, Content: sqldb.Text(file.Content)}
	}
	r.Connectors = files
	return r.Bounded()
}
