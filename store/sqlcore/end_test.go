// SPDX-License-Identifier: Apache-2.0

package sqlcore

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"math/bits"
	"slices"
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/store"
	"github.com/agentplatform/agentplatform/store/openrun"
	"github.com/agentplatform/agentplatform/store/runrow"
	"github.com/agentplatform/agentplatform/store/sqldb"
)

var errBadData = errors.New("the data is invalid")

// counting is an engine that ends runs, counts transactions and has no rows. It fails runs with
// invalid data and panics on reads.
type counting struct {
	Engine
	faulty          uuid.UUID
	singles, writes int
}

func (*counting) CheckUsable() error { return nil }

func (e *counting) Single(ctx context.Context, fn func(ctx context.Context, q sqldb.Queryer) error) error {
	e.singles++
	return fn(ctx, nil)
}

// Write processes endings that failed in a batch: here the ones with invalid data.
func (e *counting) Write(context.Context, func(ctx context.Context, q sqldb.Queryer) error) error {
	e.writes++
	return errBadData
}

func (e *counting) End(_ context.Context, _ sqldb.Queryer, endings []openrun.Ending, _ bool) (ended []openrun.EndedRun, err error) {
	for _, ending := range endings {
		if ending.Run.ID == e.faulty {
			return nil, errBadData
		}
		ended = append(ended, openrun.EndedRun{Run: ending.Run, Status: ending.Status})
	}
	return ended, nil
}

func (e *counting) Append(_ context.Context, _ sqldb.Queryer, appends []openrun.Append) (appended []store.Key, err error) {
	for _, a := range appends {
		if a.Lease.Run.ID == e.faulty {
			return nil, errBadData
		}
		appended = append(appended, a.Lease.Run)
	}
	return appended, nil
}

func coreOn(e Engine) *Core {
	return New(Options{Engine: e, Publish: func([]store.Hint) {}, Dialect: sqldb.Dialect{BadData: func(err error) bool { return errors.Is(err, errBadData) }}})
}

// completionsOf returns n completions of different runs.
func completionsOf(n int) []store.Completion {
	out := make([]store.Completion, n)
	for i := range out {
		out[i] = store.Completion{Lease: store.Lease{Run: store.Key{ProjectID: uuid.New(), ID: uuid.New()}, Token: 1}, Status: store.RunCompleted}
	}
	return out
}

// An invalid completion does not cost a transaction for each of the others.
func TestComplete_HalvesBatchToFindBadData(t *testing.T) {
	t.Parallel()
	for _, n := range []int{1, 2, 3, 64, 128} {
		for _, at := range []int{0, n / 2, n - 1} {
			t.Run(fmt.Sprint(n, " ", at), func(t *testing.T) {
				t.Parallel()
				completions := completionsOf(n)
				e := &counting{faulty: completions[at].Run.ID}
				answers, err := coreOn(e).Complete(t.Context(), completions)
				require.NoError(t, err)
				for i, answer := range answers {
					require.Equal(t, i == at, errors.Is(answer, errBadData), i)
					require.True(t, i == at || answer == nil, i)
				}
				require.LessOrEqual(t, e.singles, 1+2*bits.Len(uint(n-1)))
				require.Equal(t, 1, e.writes, "alone it returns the error")
			})
		}
	}
}

func TestAppendJournals_HalvesBatchToFindBadData(t *testing.T) {
	t.Parallel()
	var appends []store.JournalAppend
	for _, c := range completionsOf(64) {
		appends = append(appends, store.JournalAppend{Lease: c.Lease, Entries: []store.JournalEntry{{Sequence: 1, Kind: store.JournalToolResult}}})
	}
	e := &counting{faulty: appends[17].Lease.Run.ID}
	for i, err := range coreOn(e).AppendJournals(t.Context(), appends) {
		require.Equal(t, i == 17, errors.Is(err, errBadData), i)
		require.True(t, i == 17 || err == nil, i)
	}
	require.LessOrEqual(t, e.singles, 1+2*bits.Len(63))
	require.Zero(t, e.writes)
}

// Small values need no query that checks their size.
func TestComplete_UsesOneStatementForSmallValues(t *testing.T) {
	t.Parallel()
	data := []byte(`"` + strings.Repeat("x", store.MaxInlineText-2) + `"`)
	entries := []store.JournalEntry{{Sequence: 1, Kind: store.JournalModelAnswer, Data: data}, {Sequence: 2, Kind: store.JournalToolResult}}
	e, completions := &counting{}, completionsOf(64)
	for i := range completions {
		completions[i].Output, completions[i].Journal = strings.Repeat("x", store.MaxInlineText), slices.Clone(entries)
	}
	answers, err := coreOn(e).Complete(t.Context(), completions)
	require.NoError(t, err)
	require.Equal(t, make([]error, len(completions)), answers)
	require.NoError(t, coreOn(e).AppendJournal(t.Context(), completions[0].Lease, entries))
	require.Equal(t, 2, e.singles)
	require.Zero(t, e.writes)
	require.ErrorIs(t, coreOn(e).AppendJournal(t.Context(), completions[0].Lease, nil), errBadData)
	require.Equal(t, 1, e.writes, "a transaction checks the claim first")

	runs, err := runrow.WithOutputs(t.Context(), coreOn(e).DB, nil, uuid.New(), []runrow.PastRun{{Run: store.Run{Output: "short"}}})
	require.NoError(t, err)
	require.Equal(t, []store.Run{{Output: "short"}}, runs, "unchanged as found")
	read, err := runrow.WholeEntries(t.Context(), coreOn(e).DB, nil, uuid.New(), []runrow.PastEntry{{JournalEntry: entries[0]}, {JournalEntry: entries[1]}})
	require.NoError(t, err)
	require.Equal(t, entries, read)
}

// changing is a transaction whose statements change a fixed number of rows.
type changing struct {
	sqldb.Queryer
	rows int64
}

func (c changing) ExecContext(context.Context, string, ...any) (sql.Result, error) {
	return driver.RowsAffected(c.rows), nil
}

func (e *counting) Keys([]store.Key, int) (source string, args []any) { return "(SELECT $1, $2)", nil }

// A transaction fails if its rows would name a deleted blob.
func TestKeep_FailsForDeletedBlob(t *testing.T) {
	t.Parallel()
	blobs := []store.Key{{ID: uuid.New()}, {ID: uuid.New()}}
	for rows, kept := range map[int64]bool{2: true, 1: false, 0: false} {
		t.Run(fmt.Sprint(rows), func(t *testing.T) {
			tx := &sqldb.Tx{Queryer: changing{rows: rows}}
			err := coreOn(&counting{}).MarkBlobs(t.Context(), tx, blobs)
			require.Equal(t, kept, err == nil, err)
		})
	}
}
