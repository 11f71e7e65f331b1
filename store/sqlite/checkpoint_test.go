// SPDX-License-Identifier: Apache-2.0

package sqlite

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/store/sqlcore"
)

// written is a writer, and the path of its file, to which a checkpointer of the test's moves what it
// writes.
func written(t *testing.T, after func(d time.Duration) <-chan time.Time) (*writer, *checkpointer, string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "store.db")
	w, err := openWriter(t.Context(), open(path, "immediate", "rwc"), slog.Default())
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, w.close()) })
	c := openCheckpointer(open(path, "deferred", "rw"), w, slog.Default(), after)
	t.Cleanup(func() { require.NoError(t, c.close()) })
	write(t, w, `CREATE TABLE t (x BLOB)`)
	return w, c, path
}

func write(t *testing.T, w *writer, statement string, args ...any) {
	t.Helper()
	require.NoError(t, insert(t, w, statement, args...))
}

func insert(t *testing.T, w *writer, statement string, args ...any) error {
	t.Helper()
	return w.do(t.Context(), func(ctx context.Context, q sqlcore.Queryer) error {
		_, err := q.ExecContext(ctx, statement, args...)
		return err
	})
}

// noTime is a time that does not come.
func noTime(time.Duration) <-chan time.Time { return nil }

// TestWhatWasWrittenIsMovedToTheFile: a while after it was, with what was written meanwhile.
func TestWhatWasWrittenIsMovedToTheFile(t *testing.T) {
	t.Parallel()
	asked, passed := make(chan time.Duration), make(chan time.Time)
	w, _, path := written(t, func(d time.Duration) <-chan time.Time {
		asked <- d
		return passed
	})
	require.Equal(t, checkpointAfter, <-asked)
	write(t, w, `INSERT INTO t VALUES ('the first')`)
	write(t, w, `INSERT INTO t VALUES ('the second')`)
	passed <- time.Time{}
	<-asked // what was written meanwhile is waited for
	file, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Contains(t, string(file), "the first")
	require.Contains(t, string(file), "the second")
}

// TestALongLogBeginsAnew: also while there is always somebody who writes.
func TestALongLogBeginsAnew(t *testing.T) {
	t.Parallel()
	w, c, _ := written(t, noTime)
	length := func() int {
		n, err := checkpoint(t.Context(), c.db)
		require.NoError(t, err)
		return n
	}
	const pages = 256
	large := make([]byte, pages*4096)
	for range longLog/pages + 1 {
		write(t, w, `INSERT INTO t VALUES ($1)`, large)
	}
	var group sync.WaitGroup
	stop := make(chan struct{})
	group.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
				assert.NoError(t, insert(t, w, `INSERT INTO t VALUES ('the next')`))
			}
		}
	})
	runs := 0
	for ; length() >= longLog && runs < 20; runs++ {
		require.NoError(t, c.run(t.Context()))
	}
	close(stop)
	group.Wait()
	require.Less(t, runs, 20)
}

// TestACommitMovesNothing: pages that lie all over the file are not for a caller to wait for.
func TestACommitMovesNothing(t *testing.T) {
	t.Parallel()
	w, _, path := written(t, noTime)
	before, err := os.Stat(path)
	require.NoError(t, err)
	for range 8 {
		write(t, w, `INSERT INTO t VALUES ($1)`, make([]byte, 1<<20))
	}
	after, err := os.Stat(path)
	require.NoError(t, err)
	require.Equal(t, before.Size(), after.Size())
}
