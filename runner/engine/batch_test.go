// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/internal/dispatch"
)

// TestARequestHasNoMoreEntriesThanDispatchTakes: many small ones go in several.
func TestARequestHasNoMoreEntriesThanDispatchTakes(t *testing.T) {
	t.Parallel()
	pending := make([]dispatch.JournalEntry, dispatch.MaxEntries+1)
	require.Len(t, batch(pending), dispatch.MaxEntries)
	require.Len(t, batch(pending[1:]), dispatch.MaxEntries)
}
