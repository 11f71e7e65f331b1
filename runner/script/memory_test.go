// SPDX-License-Identifier: Apache-2.0

package script

import (
	"bytes"
	"math"
	"os"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"
)

// The scripts that compute fit into the memory of their container.
func TestLimitsFor_FitContainer(t *testing.T) {
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
			got := limitsFor(row.container, row.memory, defaultMaxChildren)
			require.Equal(t, row.want, got.computing)
			require.Equal(t, row.memory+childMemory, got.each)
			require.LessOrEqual(t, uint64(got.computing)*got.each, got.memory)
			if got.computing > 1 {
				require.LessOrEqual(t, got.memory+parentMemory, row.container)
			}
		})
	}
}

// The memory of a process is measured, and a process that is gone counts with the maximum.
func TestPrivateMemory_MeasuresProcess(t *testing.T) {
	t.Parallel()
	if _, err := os.Stat("/proc/self/statm"); err != nil {
		t.Skip("needs /proc")
	}
	block := bytes.Repeat([]byte{1}, 64<<20)
	require.Greater(t, privateMemory(os.Getpid()), uint64(64<<20))
	runtime.KeepAlive(block)
	require.Equal(t, uint64(math.MaxUint64), privateMemory(math.MaxInt32))
}
