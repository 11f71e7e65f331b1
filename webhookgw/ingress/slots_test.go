// SPDX-License-Identifier: Apache-2.0

package ingress

import (
	"reflect"
	"testing"
	"time"
	"unsafe"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/internal/metrics"
	"github.com/agentplatform/agentplatform/internal/quota"
	"github.com/agentplatform/agentplatform/store"
)

// slotsOf returns all quota.SlotSet of a value, by field name.
func slotsOf(of any) map[string]*quota.SlotSet {
	found := map[string]*quota.SlotSet{}
	v := reflect.ValueOf(of).Elem()
	for i := range v.NumField() {
		if field := v.Field(i); field.Type() == reflect.TypeFor[*quota.SlotSet]() {
			found[v.Type().Field(i).Name] = (*quota.SlotSet)(unsafe.Pointer(field.Pointer()))
		}
	}
	return found
}

// fill makes other projects take all free slots, each at most n at once.
func fill(slots *quota.SlotSet, n int64) {
	for ; n > 0; n /= 2 {
		for slots.Take(uuid.New(), n) == nil {
		}
	}
}

// TestSlots_NextProjectFindsFreeSlots: for each resource of a gateway, however much eleven
// projects use.
func TestSlots_NextProjectFindsFreeSlots(t *testing.T) {
	t.Parallel()
	inBytes := map[string]int64{"incoming": store.MaxInlineInput, "bytes": store.MaxInlineInput}
	tried := 0
	for _, of := range []any{serving(t, &keeper{}), newCommitter(&keeper{}, nil, metrics.NewGateway(nil, nil), time.Now)} {
		for name, slots := range slotsOf(of) {
			size := max(inBytes[name], 1)
			for i := range 11 {
				greedy := uuid.New()
				require.NoError(t, slots.Take(greedy, size), "%s, project %d", name, i)
				for slots.Take(greedy, size) == nil {
				}
			}
			require.NoError(t, slots.Take(uuid.New(), size), "%s: the next one", name)
			tried++
		}
	}
	require.Equal(t, 6, tried)
}
