// SPDX-License-Identifier: Apache-2.0

package sqlite

import (
	"bytes"
	"context"
	"database/sql"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
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
	c, err := openCheckpointer(t.Context(), open(path, "deferred", "rw"), w, slog.Default(), after)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, c.db.Close()) })
	t.Cleanup(c.stop)
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

// TestWhatKeepsPagesInTheLogIsSaidOnce: and not with each write.
func TestWhatKeepsPagesInTheLogIsSaidOnce(t *testing.T) {
	t.Parallel()
	w, _, path := written(t, noTime)
	var said bytes.Buffer
	c, err := openCheckpointer(t.Context(), open(path, "deferred", "rw"), w, slog.New(slog.NewTextHandler(&said, nil)), noTime)
	require.NoError(t, err)
	c.stop()
	require.NoError(t, c.db.Close())
	for range 3 {
		c.turn(t.Context())
	}
	require.Equal(t, 1, strings.Count(said.String(), "moving what was written"), said.String())
}

// pages are how many a large row has.
const pages = 256

// lengthen writes until the log is long.
func lengthen(t *testing.T, w *writer) {
	t.Helper()
	for range longLog/pages + 1 {
		write(t, w, `INSERT INTO t VALUES ($1)`, make([]byte, pages*4096))
	}
}

func (c *checkpointer) length(t *testing.T) int {
	t.Helper()
	log, err := checkpoint(t.Context(), c.db, "PASSIVE")
	require.NoError(t, err)
	return log.length
}

// TestALongLogBeginsAnew: also while there is always somebody who writes.
func TestALongLogBeginsAnew(t *testing.T) {
	t.Parallel()
	w, c, _ := written(t, noTime)
	lengthen(t, w)
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
	require.NoError(t, c.run(t.Context()))
	close(stop)
	group.Wait()
	write(t, w, `INSERT INTO t VALUES ('the last')`)
	require.Less(t, c.length(t), longLog)
}

// reading is a transaction that reads what is there when it begins.
func reading(t *testing.T, path string) *sql.Tx {
	t.Helper()
	reader := open(path, "deferred", "ro")
	t.Cleanup(func() { require.NoError(t, reader.Close()) })
	tx, err := reader.BeginTx(t.Context(), &sql.TxOptions{ReadOnly: true})
	require.NoError(t, err)
	var rows int
	require.NoError(t, tx.QueryRowContext(t.Context(), `SELECT count(*) FROM t`).Scan(&rows))
	return tx
}

// TestALogThatIsReadBeginsAnewLater: once those are done who read it, and nobody has to wait for them.
func TestALogThatIsReadBeginsAnewLater(t *testing.T) {
	t.Parallel()
	w, c, path := written(t, noTime)
	lengthen(t, w)
	reader := reading(t, path)
	require.NoError(t, c.run(t.Context()))
	write(t, w, `INSERT INTO t VALUES ('the next')`)
	long := c.length(t)
	require.Greater(t, long, longLog)
	require.Greater(t, c.due, long, "it is not tried all the time")

	require.NoError(t, reader.Rollback())
	lengthen(t, w)
	require.NoError(t, c.run(t.Context()))
	write(t, w, `INSERT INTO t VALUES ('the last')`)
	require.Less(t, c.length(t), pages)
	require.NoError(t, c.run(t.Context()))
	require.Equal(t, longLog, c.due)
}

// TestTheWriterMovesFewPages: where somebody reads what was there before most of a log, this is not to
// be moved in one go by the writer once that one is done, but beside it.
func TestTheWriterMovesFewPages(t *testing.T) {
	t.Parallel()
	w, c, path := written(t, noTime)
	reader := reading(t, path)
	lengthen(t, w)
	require.NoError(t, c.run(t.Context()))
	require.Equal(t, longLog, c.due, "the writer was asked")
	require.NoError(t, reader.Rollback())
	require.NoError(t, c.run(t.Context()))
	write(t, w, `INSERT INTO t VALUES ('the next')`)
	require.Less(t, c.length(t), pages)
}

// TestALogThatIsTooLongIsSaid: whether it is read from the first page on, or the last.
func TestALogThatIsTooLongIsSaid(t *testing.T) {
	t.Parallel()
	for name, before := range map[string]bool{"what was there before it": true, "all of it": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w, c, path := written(t, noTime)
			c.longest = longLog
			if before {
				reading(t, path)
			}
			lengthen(t, w)
			if !before {
				reading(t, path)
			}
			require.ErrorContains(t, c.run(t.Context()), "grows until nobody reads")
		})
	}
}

// TestTheWriterIsImpatientEachTime: and only for as long as the log is to begin anew.
func TestTheWriterIsImpatientEachTime(t *testing.T) {
	t.Parallel()
	w, _, _ := written(t, noTime)
	patience := func(ctx context.Context, conn *sql.Conn) (ms int) {
		require.NoError(t, conn.QueryRowContext(ctx, `PRAGMA busy_timeout`).Scan(&ms))
		return ms
	}
	for range 3 {
		require.NoError(t, w.between(t.Context(), func(ctx context.Context, conn *sql.Conn) error {
			err := impatiently(ctx, conn, func() error {
				assert.Equal(t, restartPatience, patience(ctx, conn))
				return nil
			})
			assert.Equal(t, busyTimeout, patience(ctx, conn))
			return err
		}))
	}
}

// TestClosingLeavesNoLog: a store that has had much to write leaves its file alone.
func TestClosingLeavesNoLog(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "store.db")
	s, err := Open(t.Context(), Options{Path: path})
	require.NoError(t, err)
	require.NoError(t, s.Migrate(t.Context()))
	require.NoError(t, s.Ping(t.Context()))
	require.NoError(t, s.Close())
	require.NoFileExists(t, path+"-wal")
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
