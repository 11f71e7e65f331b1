// SPDX-License-Identifier: Apache-2.0

package runnerpool

import (
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"

	"github.com/agentplatform/agentplatform/store"
)

// Forgetting an environment keeps a later environment with the same ID.
func TestPools_ForgetKeepsSuccessor(t *testing.T) {
	t.Parallel()
	key, now := store.Key{ProjectID: uuid.New(), ID: uuid.New()}, time.Unix(1, 0)
	before, after := types.NamespacedName{Namespace: "team", Name: "a"}, types.NamespacedName{Namespace: "team", Name: "b"}
	pools := NewPools(0)
	pools.replicas(before, key, bounds{max: 2, concurrency: 1}, 1, now)
	pools.replicas(after, key, bounds{max: 2, concurrency: 1}, 1, now)
	pools.forgetPool(before)
	require.Equal(t, 3, pools.demandLimit(key))
	require.Equal(t, []store.Key{key}, pools.takeDue(now))

	pools.forgetPool(after)
	pools.requestCheck(key) // by a late check
	require.Empty(t, pools.takeDue(now))
	require.False(t, pools.hasDuePool())
}
