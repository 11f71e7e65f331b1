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

	"github.com/agentplatform/agentplatform/store/sqlcore"
)

const (
	// checkpointAfter is how long after something was written its pages are moved from the log to the
	// file, with all that was written meanwhile.
	checkpointAfter = time.Second
	// fewPages, of 4 KiB, are moved in no time, and so few are left after somePasses if ever, but for those that
	// somebody reads at the moment, of which the writer moves readPages at most. longLog is how many the log has
	// until the writer sees to it that it begins anew, longestLog when it is said that it cannot.
	fewPages   = 100
	somePasses = 5
	readPages  = 2_000
	longLog    = 16_000
	longestLog = 50_000
	// restartPatience is for how long the writer waits for those who read what is in the log, in milliseconds:
	// all others wait with it.
	restartPatience = 100
)

// checkpointer moves pages that were written from the log to their places in the file. SQLite does
// so in the midst of a commit, and pages that lie all over the file may take a disk half a second: what
// is done beside those who write is in nobody's way.
type checkpointer struct {
	db      *sql.DB
	writer  *writer
	logger  *slog.Logger
	after   func(d time.Duration) <-chan time.Time
	stopped context.CancelFunc
	group   sync.WaitGroup
	// due is how long the log is when it is to begin anew, longest from when on it is said that it cannot.
	due, longest int
	// warnings are given once a minute: a disk that is full is so with each write.
	warnings rate.Sometimes
}

// openCheckpointer connects, for to be connected is not to depend on what is written.
func openCheckpointer(ctx context.Context, db *sql.DB, w *writer, logger *slog.Logger, after func(d time.Duration) <-chan time.Time) (*checkpointer, error) {
	db.SetMaxOpenConns(1)
	if err := db.PingContext(ctx); err != nil {
		return nil, errors.Join(err, db.Close())
	}
	ctx, stop := context.WithCancel(context.WithoutCancel(ctx))
	c := &checkpointer{db: db, writer: w, logger: logger, after: after, stopped: stop, due: longLog, longest: longestLog, warnings: rate.Sometimes{First: 1, Interval: time.Minute}}
	c.group.Go(func() { c.loop(ctx) })
	return c, nil
}

// stop ends its work. Its connection stays: of all it is closed last, for the last one that may
// write moves what is left, and deletes the log.
func (c *checkpointer) stop() {
	c.stopped()
	c.group.Wait()
}

// loop waits for writes, lets some more come, and moves their pages.
func (c *checkpointer) loop(ctx context.Context) {
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
		c.turn(ctx)
	}
}

// turn moves pages once, and says now and then where it cannot.
func (c *checkpointer) turn(ctx context.Context) {
	if err := c.run(ctx); err != nil && ctx.Err() == nil {
		c.warnings.Do(func() {
			c.logger.Warn("moving what was written from the log to the database's file", "error", err)
		})
	}
}

// run moves pages. While others write there are always some that were written meanwhile, and the log
// grows: where it has become long, the writer moves those once they are few, and begins it anew. That
// has to wait for those who read what is in it. While one of them keeps pages in it that are many, the writer
// is not asked, for it would have to move them once that one is done; where they take long,
// it is tried again when the log is as much longer.
func (c *checkpointer) run(ctx context.Context) error {
	log, err := checkpoint(ctx, c.db, "PASSIVE")
	if err == nil && log.busy { // somebody else moves pages, and knows how many there are
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
		return impatiently(ctx, conn, func() error {
			log, err := checkpoint(ctx, conn, "RESTART")
			if err == nil && log.busy {
				err = c.tooLong(log)
			}
			return err
		})
	})
}

// impatiently lets a connection wait no longer than restartPatience for others meanwhile.
func impatiently(ctx context.Context, conn *sql.Conn, do func() error) error {
	impatient := setPatience(ctx, conn, restartPatience)
	return errors.Join(impatient, do(), setPatience(ctx, conn, busyTimeout))
}

func setPatience(ctx context.Context, conn *sql.Conn, ms int) error {
	var set int
	return conn.QueryRowContext(ctx, fmt.Sprintf(`PRAGMA busy_timeout = %d`, ms)).Scan(&set)
}

// walLog is the log as it is after pages were moved: how many it has, how many of these are in their
// places, and whether somebody was in the way.
type walLog struct {
	length, moved int
	busy          bool
}

// tooLong says so of a log that somebody reads.
func (c *checkpointer) tooLong(log walLog) error {
	if log.length < c.longest {
		return nil
	}
	return fmt.Errorf("the log has %d pages of 4 KiB, and grows until nobody reads what is in it: %d are to be moved yet", log.length, log.length-log.moved)
}

// checkpoint moves pages.
func checkpoint(ctx context.Context, q sqlcore.Queryer, mode string) (log walLog, err error) {
	err = q.QueryRowContext(ctx, `PRAGMA wal_checkpoint(`+mode+`)`).Scan(&log.busy, &log.length, &log.moved)
	return log, err
}
