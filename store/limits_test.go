// SPDX-License-Identifier: Apache-2.0

package store_test

import (
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/store"
)

func TestCutKeepsCharactersAndTheLimit(t *testing.T) {
	t.Parallel()
	for most := 16; most < 40; most++ {
		for _, text := range []string{strings.Repeat("x", 100), strings.Repeat("é", 50), strings.Repeat("🙂", 25)} {
			got := store.Cut(text, most)
			require.LessOrEqual(t, len(got), most)
			require.True(t, utf8.ValidString(got), "%q", got)
			require.True(t, strings.HasSuffix(got, "… (cut)"))
		}
	}
	require.Equal(t, "short", store.Cut("short", 5))
}

// TestLogsAreBoundedWhateverTheirChunks: bytes, rows, and one mark at the end.
func TestLogsAreBoundedWhateverTheirChunks(t *testing.T) {
	t.Parallel()
	for _, size := range []int{0, 1, 63, 64, 1000, 1<<20 - 40, 1 << 20, 16 << 20} {
		var used int64
		var total, rows, marks int
		for range 40_000 {
			var stored string
			if stored, used = store.LogChunk(used, strings.Repeat("é", size/2)+strings.Repeat("x", size%2)); stored != "" {
				total, rows = total+len(stored), rows+1
				marks += strings.Count(stored, "the log is cut off here")
				require.True(t, utf8.ValidString(stored))
			}
			if used >= store.MaxBuildLog {
				break
			}
		}
		require.LessOrEqual(t, total, store.MaxBuildLog, "chunks of %d", size)
		require.LessOrEqual(t, rows, store.MaxBuildLog/64+1)
		if size > 0 {
			require.Equal(t, 1, marks, "chunks of %d", size)
			stored, _ := store.LogChunk(used, "more")
			require.Empty(t, stored)
		}
	}
}

func TestFailedTestsAreCounted(t *testing.T) {
	t.Parallel()
	for results, want := range map[string]int{
		``: 0, `null`: 0, `[]`: 0, `{"passed":false}`: 0, `[{"passed":true}]`: 0, `[{"passed":false},{"passed":true},{}]`: 2,
	} {
		require.Equal(t, want, store.FailedTests(json.RawMessage(results)), results)
	}
}
