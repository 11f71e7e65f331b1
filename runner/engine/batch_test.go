// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/internal/dispatchapi"
)

// Many small entries are split into several requests.
func TestBatch_LimitsEntries(t *testing.T) {
	t.Parallel()
	pending := make([]dispatchapi.JournalEntry, dispatchapi.MaxEntries+1)
	require.Len(t, firstBatch(pending), dispatchapi.MaxEntries)
	require.Len(t, firstBatch(pending[1:]), dispatchapi.MaxEntries)
}
