// SPDX-License-Identifier: Apache-2.0

package dispatch

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestRecentForgets(t *testing.T) {
	t.Parallel()
	now := time.Unix(1, 0)
	r := newRecent[int, string](func() time.Time { return now })
	_, known := r.get(1)
	require.False(t, known)
	r.put(1, "one")
	now = now.Add(recentFor - 1)
	value, known := r.get(1)
	require.True(t, known)
	require.Equal(t, "one", value)
	now = now.Add(1)
	_, known = r.get(1)
	require.False(t, known, "it is too old")

	for i := range maxRecent + 1 {
		r.put(i, "many")
	}
	require.LessOrEqual(t, len(r.held), maxRecent)
}
