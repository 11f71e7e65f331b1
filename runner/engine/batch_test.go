// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/internal/dispatchapi"
)

// TestARequestHasNoMoreEntriesThanDispatchTakes: many small ones go in several.
func TestARequestHasNoMoreEntriesThanDispatchTakes(t *testing.T) {
	t.Parallel()
	pending := make([]dispatchapi.JournalEntry, dispatchapi.MaxEntries+1)
	require.Len(t, batch(pending), dispatchapi.MaxEntries)
	require.Len(t, batch(pending[1:]), dispatchapi.MaxEntries)
}
