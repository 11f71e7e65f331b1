// SPDX-License-Identifier: Apache-2.0

package sqlcore

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/agentplatform/agentplatform/store"
)

// rejectionRow is a row of rejections.
type rejectionRow struct {
	store.Key
	refused rejectionCounts
}

func scanRejections(row scanner) (r rejectionRow, err error) {
	err = row.Scan(&r.ProjectID, &r.ID, document{&r.refused})
	return r, err
}

// RecordRejections implements store.Rejections. It inserts missing rows and then locks all rows, in
// one order, so that concurrent replicas add to each other's counts.
func (c *Core) RecordRejections(ctx context.Context, rejected []store.Rejected) error {
	if len(rejected) > store.MaxRejected {
		return fmt.Errorf("recording the rejections of %d connectors, more than %d", len(rejected), store.MaxRejected)
	}
	of := map[store.Key]store.Rejected{}
	for _, r := range rejected {
		of[r.Connector] = r
	}
	if len(of) == 0 {
		return nil
	}
	keys := slices.SortedFunc(maps.Keys(of), CompareKeys)
	err := c.Write(ctx, func(ctx context.Context, tx *Tx) error {
		var made, locked argList
		if _, err := tx.exec(ctx, `INSERT INTO rejections (project_id, connector_id, document, last_at)
			SELECT project_id, id, '{}', now_us() FROM connectors WHERE `+c.keyCondition(&made, "id", keys)+`
			ORDER BY project_id, id ON CONFLICT (project_id, connector_id) DO NOTHING`, made.args...); err != nil {
			return err
		}
		rows, err := collect(ctx, tx, scanRejections, `SELECT project_id, connector_id, document FROM rejections WHERE `+
			c.keyCondition(&locked, "connector_id", keys)+` ORDER BY project_id, connector_id `+c.exclusive, locked.args...)
		if err != nil {
			return err
		}
		now, err := readNow(ctx, tx)
		if err != nil {
			return err
		}
		for _, row := range rows {
			row.refused.addRejections(of[row.Key], now)
			if err := row.writeRow(ctx, tx, now); err != nil {
				return err
			}
		}
		return nil
	})
	return wrap(err, "recording the rejections of %d connectors", len(of))
}

// writeRow stores a locked row.
func (r rejectionRow) writeRow(ctx context.Context, tx *Tx, last time.Time) error {
	text, err := marshalText(r.refused)
	if err != nil {
		return err
	}
	_, err = tx.exec(ctx, `UPDATE rejections SET document = $3, last_at = $4, news_at = $5 WHERE project_id = $1 AND connector_id = $2`,
		r.ProjectID, r.ID, text, Instant(last), MaybeInstant(r.refused.reportDue()))
	return err
}

// readNow returns the database's time.
func readNow(ctx context.Context, q Queryer) (now time.Time, err error) {
	if err = q.QueryRowContext(ctx, `SELECT now_us()`).Scan(scanTime(&now)); err != nil {
		return now, fmt.Errorf("reading the database's clock: %w", err)
	}
	return now, nil
}

// Rejections implements store.Rejections.
func (c *Core) Rejections(ctx context.Context, connector store.Key) (report store.RejectionReport, err error) {
	var now time.Time
	rows, err := collect(ctx, c.engine.Reader(), scanRejections,
		`SELECT project_id, connector_id, document FROM rejections WHERE project_id = $1 AND connector_id = $2`, connector.ProjectID, connector.ID)
	if err == nil {
		now, err = readNow(ctx, c.engine.Reader())
	}
	if err != nil {
		return report, wrap(err, "reading the rejections of connector %s", connector)
	}
	known := rejectionCounts{}
	if len(rows) > 0 {
		known = rows[0].refused
	}
	return known.reportAt(now), nil
}

// TakeRejectionNews implements store.RejectionTeller.
func (c *Core) TakeRejectionNews(ctx context.Context, limit int) (news []store.RejectionNews, err error) {
	err = c.Write(ctx, func(ctx context.Context, tx *Tx) error {
		news = nil
		due, err := collect(ctx, tx, scanDueRejections, `SELECT project_id, connector_id, document, last_at FROM rejections
			WHERE news_at <= now_us() ORDER BY news_at LIMIT $1 `+c.skipLocked, limit)
		if err != nil || len(due) == 0 {
			return err
		}
		now, err := readNow(ctx, tx)
		if err != nil {
			return err
		}
		for _, row := range due {
			counts := row.refused.takeUnreported(now)
			if err := row.writeRow(ctx, tx, row.last); err != nil {
				return err
			}
			holder, err := identityOf(ctx, tx, row.Key)
			if err == nil && len(counts) > 0 { // otherwise there is no object for an event
				news = append(news, store.RejectionNews{Connector: row.Key, Ref: holder.ref, Counts: counts})
			}
			if err != nil && !errors.Is(err, store.ErrNotFound) {
				return err
			}
		}
		return nil
	})
	return news, wrap(err, "taking unreported rejections")
}

// dueRejections is a row with unreported rejections.
type dueRejections struct {
	rejectionRow
	last time.Time
}

func scanDueRejections(row scanner) (r dueRejections, err error) {
	err = row.Scan(&r.ProjectID, &r.ID, document{&r.refused}, scanTime(&r.last))
	return r, err
}
