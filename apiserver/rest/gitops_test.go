// SPDX-License-Identifier: Apache-2.0

package rest

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// Objects differ by field. Lists differ as a whole.
func TestDifferences_CompareObjectsByField(t *testing.T) {
	t.Parallel()
	was := map[string]any{"a": int64(1), "b": map[string]any{"c": "x", "d": "y"}, "l": []any{"x"}, "gone": map[string]any{"e": "z"}}
	is := map[string]any{"a": int64(1), "b": map[string]any{"c": "X", "d": "y", "new": true}, "l": []any{"x", "y"}}
	require.Equal(t, [][]string{{"s", "b", "c"}, {"s", "b", "new"}, {"s", "gone"}, {"s", "l"}}, differences([]string{"s"}, was, is))
	require.Empty(t, differences(nil, was, was))
	require.True(t, hasPrefix([]string{"s", "gone", "e"}, []string{"s", "gone"}), "a field below it changes with it")
	require.False(t, hasPrefix([]string{"s"}, []string{"s", "gone"}), "a field above it does not")
}
