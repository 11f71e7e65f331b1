// SPDX-License-Identifier: Apache-2.0

package sqlcore

import (
	"encoding/json"

	"github.com/agentplatform/agentplatform/store"
)

// Bounded is a completion as it is stored; see store.Completion.Bounded. Text
// is made storable first, which may make it longer.
func Bounded(c store.Completion) store.Completion {
	c.Output, c.Error, c.TestName, c.Journal = Text(c.Output), Text(c.Error), Text(c.TestName), storable(c.Journal)
	return c.Bounded()
}

// boundedJournal are entries as they are stored; errors as store.CheckJournal says.
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
	return json.RawMessage(Text(string(raw)))
}

// boundedResult is a build's result as it is stored; store.ErrTooLarge and
// store.ErrInvalid as Bounded says.
func boundedResult(r store.BuildResult) (store.BuildResult, error) {
	r.Message, r.TestResults = Text(r.Message), storableJSON(r.TestResults)
	files := make([]store.ConnectorFile, len(r.Connectors))
	for i, file := range r.Connectors {
		files[i] = store.ConnectorFile{Key: file.Key, Content: Text(file.Content)}
	}
	r.Connectors = files
	return r.Bounded()
}
