// SPDX-License-Identifier: Apache-2.0

package cache_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/internal/cache"
)

func TestCache_ExpiresValues(t *testing.T) {
	t.Parallel()
	now := time.Unix(0, 0)
	c := cache.New[string, int](2, time.Minute, func() time.Time { return now })
	_, ok := c.Get("a")
	require.False(t, ok)
	c.Put("a", 1)
	now = now.Add(time.Minute - 1)
	got, ok := c.Get("a")
	require.True(t, ok)
	require.Equal(t, 1, got)
	now = now.Add(1)
	_, ok = c.Get("a")
	require.False(t, ok, "an entry expires after its TTL")
	c.Put("a", 2)
	got, ok = c.Get("a")
	require.True(t, ok)
	require.Equal(t, 2, got)
}

func TestCache_DropsLeastRecentlyUsed(t *testing.T) {
	t.Parallel()
	c := cache.New[string, int](2, 0, nil)
	c.Put("a", 1)
	c.Put("b", 2)
	_, _ = c.Get("a")
	c.Put("c", 3)
	_, ok := c.Get("b")
	require.False(t, ok)
	for key, want := range map[string]int{"a": 1, "c": 3} {
		t.Run(key, func(t *testing.T) {
			got, ok := c.Get(key)
			require.True(t, ok)
			require.Equal(t, want, got)
		})
	}
}
