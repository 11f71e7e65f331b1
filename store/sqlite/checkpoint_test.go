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

	"github.com/agentplatform/agentplatform/store/sqldb"
)

// written returns a writer and the path of its file. A checkpointer of the test moves its pages.
func written(t *testing.T, after func(d time.Duration) <-chan time.Time) (*writer, *checkpointer, string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "store.db")
	w, err := openWriter(t.Context(), openDatabase(path, "immediate", "rwc"), slog.Default())
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, w.close()) })
	c, err := openCheckpointer(t.Context(), path, w, slog.Default(), after)
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
	return w.runOperation(t.Context(), func(ctx context.Context, q sqldb.Queryer) error {
		_, err := q.ExecContext(ctx, statement, args...)
		return err
	})
}

// neverFires never fires.
func neverFires(time.Duration) <-chan time.Time { return nil }

// Pages are moved a while after a write, together with later writes.
func TestCheckpointer_MovesPages(t *testing.T) {
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
	<-asked // it waits for later writes
	file, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Contains(t, string(file), "the first")
	require.Contains(t, string(file), "the second")
}

// A failure is logged once, and not with each write.
func TestCheckpointer_WarnsOnce(t *testing.T) {
	t.Parallel()
	w, _, path := written(t, neverFires)
	var said bytes.Buffer
	c, err := openCheckpointer(t.Context(), path, w, slog.New(slog.NewTextHandler(&said, nil)), neverFires)
	require.NoError(t, err)
	c.stop()
	require.NoError(t, c.db.Close())
	for range 3 {
		c.checkpointAndLog(t.Context())
	}
	require.Equal(t, 1, strings.Count(said.String(), "moving pages from the log"), said.String())
}

// pages is the number of pages of a large row.
const pages = 256

// lengthen writes until the log is long.
func lengthen(t *testing.T, w *writer) {
	t.Helper()
	for range longLog/pages + 1 {
		write(t, w, `INSERT INTO t VALUES ($1)`, make([]byte, pages*4096))
	}
}

func (c *checkpointer) logLength(t *testing.T) int {
	t.Helper()
	log, err := checkpoint(t.Context(), c.db, "PASSIVE")
	require.NoError(t, err)
	return log.length
}

// A long log restarts, also under a continuous load of writes.
func TestCheckpointer_RestartsLongLog(t *testing.T) {
	t.Parallel()
	w, c, _ := written(t, neverFires)
	lengthen(t, w)
	var group sync.WaitGroup
	stop := make(chan struct{})
	group.Go(func() {
		for range readPages / 4 { // more of them could have to be moved than the writer moves
			select {
			case <-stop:
				return
			default:
				assert.NoError(t, insert(t, w, `INSERT INTO t VALUES ('the next')`))
			}
		}
	})
	require.NoError(t, c.checkpointOnce(t.Context()))
	require.Equal(t, longLog, c.due, "it restarts again at the same length")
	close(stop)
	group.Wait()
	write(t, w, `INSERT INTO t VALUES ('the last')`)
	require.Less(t, c.logLength(t), longLog)
}

// reading returns a transaction with a snapshot of now.
func reading(t *testing.T, path string) *sql.Tx {
	t.Helper()
	reader := openDatabase(path, "deferred", "ro")
	t.Cleanup(func() { require.NoError(t, reader.Close()) })
	tx, err := reader.BeginTx(t.Context(), &sql.TxOptions{ReadOnly: true})
	require.NoError(t, err)
	var rows int
	require.NoError(t, tx.QueryRowContext(t.Context(), `SELECT count(*) FROM t`).Scan(&rows))
	return tx
}

// A log that is being read restarts once its readers have ended, and no write waits for them.
func TestCheckpointer_RestartsAfterReaders(t *testing.T) {
	t.Parallel()
	w, c, path := written(t, neverFires)
	lengthen(t, w)
	reader := reading(t, path)
	require.NoError(t, c.checkpointOnce(t.Context()))
	write(t, w, `INSERT INTO t VALUES ('the next')`)
	long := c.logLength(t)
	require.Greater(t, long, longLog)
	require.Greater(t, c.due, long, "it does not retry all the time")

	require.NoError(t, reader.Rollback())
	lengthen(t, w)
	require.NoError(t, c.checkpointOnce(t.Context()))
	write(t, w, `INSERT INTO t VALUES ('the last')`)
	require.Less(t, c.logLength(t), pages)
	require.NoError(t, c.checkpointOnce(t.Context()))
	require.Equal(t, longLog, c.due)
}

// If a reader keeps most of the log, the checkpointer moves these pages once the reader has ended,
// not the writer.
func TestCheckpointer_LeavesFewPagesToWriter(t *testing.T) {
	t.Parallel()
	w, c, path := written(t, neverFires)
	reader := reading(t, path)
	lengthen(t, w)
	require.NoError(t, c.checkpointOnce(t.Context()))
	require.Equal(t, longLog, c.due, "the writer was asked")
	require.NoError(t, reader.Rollback())
	require.NoError(t, c.checkpointOnce(t.Context()))
	write(t, w, `INSERT INTO t VALUES ('the next')`)
	require.Less(t, c.logLength(t), pages)
}

// A log that is too long is logged, whether its first or its last page is being read.
func TestCheckpointer_ReportsTooLongLog(t *testing.T) {
	t.Parallel()
	for name, before := range map[string]bool{"the earlier contents": true, "all of it": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w, c, path := written(t, neverFires)
			c.longest = longLog
			if before {
				reading(t, path)
			}
			lengthen(t, w)
			if !before {
				reading(t, path)
			}
			require.ErrorContains(t, c.checkpointOnce(t.Context()), "grows until its readers end")
		})
	}
}

// The writer waits only briefly, each time, and only while the log should restart.
func TestCheckpointer_LimitsWriterWait(t *testing.T) {
	t.Parallel()
	w, _, _ := written(t, neverFires)
	patience := func(ctx context.Context, conn *sql.Conn) (ms int) {
		require.NoError(t, conn.QueryRowContext(ctx, `PRAGMA busy_timeout`).Scan(&ms))
		return ms
	}
	for range 3 {
		require.NoError(t, w.between(t.Context(), func(ctx context.Context, conn *sql.Conn) error {
			err := impatiently(ctx, conn, restartPatience, func() error {
				assert.Equal(t, restartPatience, patience(ctx, conn))
				return nil
			})
			assert.Equal(t, busyTimeout, patience(ctx, conn))
			return err
		}))
	}
}

// A closed store leaves no log, also after many writes.
func TestClose_LeavesNoLog(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "store.db")
	s, err := Open(t.Context(), Options{Path: path})
	require.NoError(t, err)
	require.NoError(t, s.Migrate(t.Context()))
	require.NoError(t, s.Ping(t.Context()))
	require.NoError(t, s.Close())
	require.NoFileExists(t, path+"-wal")
}

// A commit moves no pages.
func TestWriter_CommitMovesNoPages(t *testing.T) {
	t.Parallel()
	w, _, path := written(t, neverFires)
	before, err := os.Stat(path)
	require.NoError(t, err)
	for range 8 {
		write(t, w, `INSERT INTO t VALUES ($1)`, make([]byte, 1<<20))
	}
	after, err := os.Stat(path)
	require.NoError(t, err)
	require.Equal(t, before.Size(), after.Size())
}
