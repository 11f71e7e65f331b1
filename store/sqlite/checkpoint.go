// SPDX-License-Identifier: Apache-2.0

package sqlite

import (
	"context"
	"database/sql"
	"log/slog"
	"sync"
	"time"

	"github.com/agentplatform/agentplatform/store/sqlcore"
)

const (
	// checkpointAfter is how long after something was written its pages are moved from the log to the
	// file, with all that was written meanwhile.
	checkpointAfter = time.Second
	// fewPages, of 4 KiB, are moved in no time. longLog is how many the log has until the writer sees to it that it begins anew,
	// and longestLog until SQLite does as it does where nobody else moves pages: in a commit.
	fewPages   = 100
	longLog    = 16_000
	longestLog = 50_000
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
}

func openCheckpointer(db *sql.DB, w *writer, logger *slog.Logger, after func(d time.Duration) <-chan time.Time) *checkpointer {
	db.SetMaxOpenConns(1)
	ctx, stop := context.WithCancel(context.Background())
	c := &checkpointer{db: db, writer: w, logger: logger, after: after, stopped: stop}
	c.group.Go(func() { c.loop(ctx) })
	return c
}

func (c *checkpointer) close() error {
	c.stopped()
	c.group.Wait()
	return c.db.Close()
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
		if err := c.run(ctx); err != nil && ctx.Err() == nil {
			c.logger.Warn("moving what was written from the log to the database's file", "error", err)
		}
	}
}

// run moves pages. While others write there are always some that were written meanwhile, and the log
// grows: where it has become long, the writer moves those once they are few, and begins it anew.
func (c *checkpointer) run(ctx context.Context) error {
	length, err := checkpoint(ctx, c.db)
	for before := 0; err == nil && length >= longLog && length < longestLog && length-before > fewPages; {
		before = length
		length, err = checkpoint(ctx, c.db)
	}
	if err != nil || length < longLog {
		return err
	}
	return c.writer.between(ctx, func(ctx context.Context, q sqlcore.Queryer) error {
		_, err := checkpoint(ctx, q)
		return err
	})
}

// checkpoint moves what no reader is in the way of, and says how many pages the log has.
func checkpoint(ctx context.Context, q interface {
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}) (length int, err error) {
	var busy, moved int
	err = q.QueryRowContext(ctx, `PRAGMA wal_checkpoint(PASSIVE)`).Scan(&busy, &length, &moved)
	return length, err
}
