// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"fmt"
	"sync"

	"github.com/agentplatform/agentplatform/internal/dispatchapi"
	"github.com/agentplatform/agentplatform/internal/exactjson"
)

// MemoryFiles keeps the files of a run in memory, for runs that no other runner resumes.
type MemoryFiles struct {
	// Journal receives the entries of the files.
	Journal Journal

	mu    sync.Mutex
	files map[string][]byte
}

// Save implements SavedFiles.
func (m *MemoryFiles) Save(ctx context.Context, entries []dispatchapi.JournalEntry, data []byte) error {
	var file dispatchapi.SavedFile
	if err := exactjson.Decode(entries[0].Data, &file); err != nil {
		return fmt.Errorf("reading the entry of a file: %w", err)
	}
	m.mu.Lock()
	if m.files == nil {
		m.files = map[string][]byte{}
	}
	m.files[file.ID] = data
	m.mu.Unlock()
	return m.Journal.Append(ctx, entries)
}

// ReadPart implements SavedFiles.
func (m *MemoryFiles) ReadPart(_ context.Context, id string, offset, length int64) ([]byte, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	data, found := m.files[id]
	if !found {
		return nil, fmt.Errorf("there is no file %q", id)
	}
	begin := min(max(offset, 0), int64(len(data)))
	return data[begin:min(begin+length, int64(len(data)))], nil
}
