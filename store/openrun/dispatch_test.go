// SPDX-License-Identifier: Apache-2.0

package openrun

import (
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/store"
)

func TestContinuing_SplitsEntries(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		length          int64
		entries         []int64
		repeated, fresh []int64
		conflict        bool
	}{
		{0, nil, nil, nil, false},
		{0, []int64{1, 2}, nil, []int64{1, 2}, false},
		{2, []int64{1, 2, 3}, []int64{1, 2}, []int64{3}, false},
		{2, []int64{2, 3, 3, 4}, []int64{2}, []int64{3, 4}, false},
		{2, []int64{4}, nil, nil, true},
		{2, []int64{3, 5}, nil, nil, true},
	} {
		t.Run(fmt.Sprint(c.length, " and ", c.entries), func(t *testing.T) {
			entries := make([]store.JournalEntry, len(c.entries))
			for i, n := range c.entries {
				entries[i].Sequence = n
			}
			of := func(entries []store.JournalEntry) (numbers []int64) {
				for _, e := range entries {
					numbers = append(numbers, e.Sequence)
				}
				return numbers
			}
			repeated, fresh, err := splitEntries(c.length, entries)
			require.Equal(t, c.conflict, errors.Is(err, store.ErrConflict), c)
			require.Equal(t, c.repeated, of(repeated), c)
			require.Equal(t, c.fresh, of(fresh), c)
		})
	}
}
