// SPDX-License-Identifier: Apache-2.0

package sqlcore

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// Gateways that start together serve different projects first.
func TestTurns_BeginByLot(t *testing.T) {
	t.Parallel()
	require.NotEqual(t, newProjectCursor().lastProject(), newProjectCursor().lastProject())
}
