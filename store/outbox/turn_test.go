// SPDX-License-Identifier: Apache-2.0

package outbox

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// Gateways that start together serve different projects first.
func TestTurns_BeginByLot(t *testing.T) {
	t.Parallel()
	require.NotEqual(t, NewCursor().Last(), NewCursor().Last())
}
