// SPDX-License-Identifier: Apache-2.0

package script

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"
)

// The children of a pool fit into the memory of their container.
func TestChildrenFor_FitsContainer(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		container, memory uint64
		want              int
	}{
		"no limit":     {math.MaxUint64, DefaultMemory, 32},
		"512 MiB":      {512 << 20, DefaultMemory, 2},
		"1 GiB":        {1 << 30, DefaultMemory, 5},
		"small memory": {512 << 20, MinMemory, 3},
		"too small":    {128 << 20, DefaultMemory, 1},
		"large memory": {512 << 20, MaxMemory, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := childrenFor(row.container, row.memory)
			require.Equal(t, row.want, got)
			if got > 1 {
				require.LessOrEqual(t, uint64(got)*(row.memory+childMemory)+parentMemory, row.container)
			}
		})
	}
}
