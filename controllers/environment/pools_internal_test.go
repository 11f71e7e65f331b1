// SPDX-License-Identifier: Apache-2.0

package environment

import (
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"

	"github.com/agentplatform/agentplatform/store"
)

// TestAPoolThatIsForgottenLeavesItsSuccessor: of two environments with one id, one after the other.
func TestAPoolThatIsForgottenLeavesItsSuccessor(t *testing.T) {
	t.Parallel()
	key, now := store.Key{ProjectID: uuid.New(), ID: uuid.New()}, time.Unix(1, 0)
	before, after := types.NamespacedName{Namespace: "team", Name: "a"}, types.NamespacedName{Namespace: "team", Name: "b"}
	pools := NewPools(0)
	pools.replicas(before, key, bounds{max: 2, concurrency: 1}, 1, now)
	pools.replicas(after, key, bounds{max: 2, concurrency: 1}, 1, now)
	pools.forget(before)
	require.Equal(t, 3, pools.enough(key))
	require.Equal(t, []store.Key{key}, pools.take(now))

	pools.forget(after)
	pools.look(key) // by whatever is too late
	require.Empty(t, pools.take(now))
	require.False(t, pools.waits())
}
