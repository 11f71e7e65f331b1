// SPDX-License-Identifier: Apache-2.0

package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/agentplatform/agentplatform/store/sqldb"
)

const (
	// checkpointAfter is the delay after a write until its pages are moved from the log to the
	// file, together with later writes.
	checkpointAfter = time.Second
	// fewPages, of 4 KiB, are moved in no time. After somePasses so few are left, if ever, except
	// pages that are being read. The writer moves at most readPages of these. longLog is the length
	// at which the writer restarts the log. longestLog is the length at which a failure to restart
	// is logged.
	fewPages   = 100
	somePasses = 5
	readPages  = 2_000
	longLog    = 16_000
	longestLog = 50_000
	// restartPatience is how long the writer waits for readers of the log, in milliseconds. All
	// other writes wait with it.
	restartPatience = 100
)

// checkpointer moves written pages from the log to the file. SQLite does so inside a commit by
// default. Pages that are spread over the file can then delay a commit by half a second. The
// checkpointer runs beside the writer and delays no commit.
type checkpointer struct {
	db      *sql.DB
	writer  *writer
	logger  *slog.Logger
	after   func(d time.Duration) <-chan time.Time
	stopped context.CancelFunc
	group   sync.WaitGroup
	// due is the length at which the log should restart, longest the length at which a failure is
	// logged.
	due, longest int
	// warnings limits warnings to one per minute, because a full disk fails with each write.
	warnings rate.Sometimes
	space    space
}

// openCheckpointer connects in advance, because connecting must not depend on a write.
func openCheckpointer(
	ctx context.Context, path string, w *writer, logger *slog.Logger, after func(d time.Duration) <-chan time.Time,
) (*checkpointer, error) {
	db := openDatabase(path, "deferred", "rw")
	db.SetMaxOpenConns(1)
	if err := db.PingContext(ctx); err != nil {
		return nil, errors.Join(err, db.Close())
	}
	ctx, stop := context.WithCancel(context.WithoutCancel(ctx))
	c := &checkpointer{
		db: db, writer: w, logger: logger, after: after, stopped: stop, due: longLog, longest: longestLog,
		warnings: rate.Sometimes{First: 1, Interval: time.Minute}, space: newSpace(path),
	}
	w.prepare = c.keepReserve
	c.group.Go(func() { c.runLoop(ctx) })
	return c, nil
}

// stop ends the work. Its connection is closed last, because the last connection that may write
// moves the remaining pages and deletes the log.
func (c *checkpointer) stop() {
	c.stopped()
	c.group.Wait()
}

// runLoop waits for writes, waits for some more, and moves their pages.
func (c *checkpointer) runLoop(ctx context.Context) {
	for {
		select {
		case <-c.writer.written:
		case <-ctx.Done():
			return
		}
		select {
		case <-c.after(checkpointAfter):
		case <-ctx.Done():
			return
		}
		c.checkpointAndLog(ctx)
	}
}

// checkpointAndLog moves pages once, and logs errors at most once a minute.
func (c *checkpointer) checkpointAndLog(ctx context.Context) {
	if err := c.checkpointOnce(ctx); err != nil && ctx.Err() == nil {
		c.warnings.Do(func() {
			c.logger.Warn("moving pages from the log to the database file", "error", err)
		})
	}
}

// checkpointOnce moves pages. During writes there are always new pages, and the log grows. If the log is
// long, the writer moves the last few pages, waits for readers of the log, and restarts it. If a reader
// keeps many pages in the log, the writer does nothing, because it would have to move these pages after the
// read. If readers take long, checkpointOnce tries again when the log has grown by the same amount.
func (c *checkpointer) checkpointOnce(ctx context.Context) error {
	log, err := checkpoint(ctx, c.db, "PASSIVE")
	if err == nil && log.busy { // another process moves pages, and knows their number
		return nil
	}
	for pass, before := 1, 0; err == nil && log.length >= c.due && log.length-before > fewPages && pass < somePasses; pass++ {
		before = log.length
		log, err = checkpoint(ctx, c.db, "PASSIVE")
	}
	if log.length < longLog {
		c.due = longLog
	}
	if err != nil || log.length < c.due {
		return err
	}
	if log.length-log.moved > readPages {
		return c.tooLong(log)
	}
	c.due = log.length + longLog
	return c.writer.between(ctx, func(ctx context.Context, conn *sql.Conn) error {
		return impatiently(ctx, conn, restartPatience, func() error {
			log, err := checkpoint(ctx, conn, "RESTART")
			switch {
			case err != nil:
				return err
			case log.busy:
				return c.tooLong(log)
			}
			c.due = longLog
			return nil
		})
	})
}

// impatiently limits how long a connection waits for others, in milliseconds.
func impatiently(ctx context.Context, conn *sql.Conn, patience int, do func() error) error {
	impatient := setPatience(ctx, conn, patience)
	return errors.Join(impatient, do(), setPatience(ctx, conn, busyTimeout))
}

func setPatience(ctx context.Context, conn *sql.Conn, ms int) error {
	var set int
	return conn.QueryRowContext(ctx, fmt.Sprintf(`PRAGMA busy_timeout = %d`, ms)).Scan(&set)
}

// walLog is the state of the log after a checkpoint: its pages, the moved pages, and whether a
// reader or writer was in the way.
type walLog struct {
	length, moved int
	busy          bool
}

// tooLong returns an error for a log that is being read.
func (c *checkpointer) tooLong(log walLog) error {
	if log.length < c.longest {
		return nil
	}
	return fmt.Errorf("the log has %d pages of 4 KiB and grows until its readers end; %d pages are left to move", log.length, log.length-log.moved)
}

// checkpoint moves pages.
func checkpoint(ctx context.Context, q sqldb.Queryer, mode string) (log walLog, err error) {
	err = q.QueryRowContext(ctx, `PRAGMA wal_checkpoint(`+mode+`)`).Scan(&log.busy, &log.length, &log.moved)
	return log, err
}
