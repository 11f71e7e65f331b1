// SPDX-License-Identifier: Apache-2.0

package store_test

import (
	"encoding/json"
	"fmt"
	"math"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/internal/runerror"
	"github.com/agentplatform/agentplatform/store"
)

func TestCut_KeepsCharactersAndLimit(t *testing.T) {
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

// A log is limited in bytes and rows, and has one mark at its end, whatever its chunks.
func TestLogChunk_LimitsBytesAndRows(t *testing.T) {
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

func TestFailedTests_CountsFailures(t *testing.T) {
	t.Parallel()
	for results, want := range map[string]int{
		``: 0, `null`: 0, `[]`: 0, `{"passed":false}`: 0, `[{"passed":true}]`: 0, `[{"passed":false},{"passed":true},{}]`: 2,
	} {
		t.Run(results, func(t *testing.T) {
			require.Equal(t, want, store.FailedTests(json.RawMessage(results)))
		})
	}
	total, failed := store.CountTests(json.RawMessage(`[{"passed":true},{"passed":false},{"passed":true}]`))
	require.Equal(t, 3, total)
	require.Equal(t, 1, failed)
}

// Invalid codes and kinds are rejected, and not stored if they are reported nevertheless.
func TestCompletion_RejectsInvalidCodesAndKinds(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", store.MaxCode)
	for text, valid := range map[string]bool{
		"x": true, "tool_result": true, "model_error_2": true, long: true,
		long + "x": false, strings.Repeat("x", 15<<20): false, "Code": false, "a code": false, "_x": false, "2x": false,
		"a\x00": false, "a\n": false, "\xff": false, "é": false, "a-b": false,
	} {
		t.Run(fmt.Sprintf("%.60s", text), func(t *testing.T) {
			name := store.Cut(text, 80)
			entry := store.JournalEntry{Sequence: 1, Kind: store.JournalKind(text)}
			for field, c := range map[string]store.Completion{
				"error_code": {Status: store.RunFailed, ErrorCode: runerror.Code(text)},
				"the kind":   {Status: store.RunCompleted, Journal: []store.JournalEntry{entry}},
			} {
				t.Run(field, func(t *testing.T) {
					err, stored := c.Check(), c.Bounded()
					if valid {
						require.NoError(t, err, name)
						require.Equal(t, c, stored)
						return
					}
					require.ErrorIs(t, err, store.ErrInvalid, name)
					require.ErrorContains(t, err, field)
					require.Less(t, len(err.Error()), 1000)
					require.Equal(t, store.Completion{Status: store.RunFailed, ErrorCode: runerror.ReportInvalid, Error: err.Error()}, stored)
				})
			}
			if valid {
				require.NoError(t, store.CheckJournal([]store.JournalEntry{entry}))
			} else {
				require.ErrorIs(t, store.CheckJournal([]store.JournalEntry{entry}), store.ErrInvalid, name)
			}
		})
	}
	require.NoError(t, store.Completion{}.Check(), "a run that did not fail has no code")
	require.ErrorIs(t, store.CheckJournal([]store.JournalEntry{{Sequence: 1}}), store.ErrInvalid, "an entry without a kind")
}

func TestCheckJournal_RejectsSequenceBelowOne(t *testing.T) {
	t.Parallel()
	for _, sequence := range []int64{0, -1, -1 << 63} {
		entries := []store.JournalEntry{{Sequence: sequence, Kind: store.JournalToolResult}}
		require.ErrorIs(t, store.CheckJournal(entries), store.ErrInvalid)
		require.ErrorIs(t, store.Completion{Journal: entries}.Check(), store.ErrInvalid)
	}
}

// A page is the last one if it has room for another entry of any size.
func TestLastJournalPage_HasRoomForAnyEntry(t *testing.T) {
	t.Parallel()
	page := func(sizes ...int) (out []store.JournalEntry) {
		for _, size := range sizes {
			out = append(out, store.JournalEntry{Data: make([]byte, size)})
		}
		return out
	}
	const most = store.MaxJournalPage - store.MaxModelAnswer
	for name, c := range map[string]struct {
		page []store.JournalEntry
		last bool
	}{
		"empty":                         {nil, true},
		"one entry below the maximum":   {page(1, 1), true},
		"the maximum number of entries": {page(1, 1, 1), false},
		"room for one more answer":      {page(most), true},
		"no room for one more answer":   {page(most, 1), false},
	} {
		t.Run(name, func(t *testing.T) {
			require.Equal(t, c.last, store.LastJournalPage(c.page, 3))
		})
	}
}

func TestCompletion_LimitsTokens(t *testing.T) {
	t.Parallel()
	said := store.TokenUsage{InputTokens: -1, OutputTokens: math.MaxInt64, ThinkingTokens: math.MinInt64, CachedInputTokens: 7}
	want := store.TokenUsage{OutputTokens: store.MaxTokens, CachedInputTokens: 7}
	require.Equal(t, want, store.Completion{Status: store.RunCompleted, Usage: said}.Bounded().Usage)
	require.Equal(t, want, store.Completion{Status: "no status", Usage: said}.Bounded().Usage)
}
