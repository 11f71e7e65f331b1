// SPDX-License-Identifier: Apache-2.0

// Package rejection stores the rejected requests of connectors: counts and samples.
package rejection

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/agentplatform/agentplatform/store"
	"github.com/agentplatform/agentplatform/store/object"
	"github.com/agentplatform/agentplatform/store/sqldb"
)

// Store has the rejected requests of connectors.
type Store struct{ db *sqldb.DB }

// New returns a Store.
func New(db *sqldb.DB) *Store { return &Store{db: db} }

// rejectionRow is a row of rejections.
type rejectionRow struct {
	store.Key
	refused rejectionCounts
}

func scanRejections(row sqldb.Scanner) (r rejectionRow, err error) {
	err = row.Scan(&r.ProjectID, &r.ID, sqldb.ScanJSON(&r.refused))
	return r, err
}

// RecordRejections implements store.Rejections. It inserts missing rows and then locks all rows, in
// one order, so that concurrent replicas add to each other's counts.
func (s *Store) RecordRejections(ctx context.Context, rejected []store.Rejected) error {
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
	keys := slices.SortedFunc(maps.Keys(of), sqldb.CompareKeys)
	err := s.db.Write(ctx, func(ctx context.Context, tx *sqldb.Tx) error {
		var made, locked sqldb.Args
		if _, err := tx.Exec(ctx, `INSERT INTO rejections (project_id, connector_id, document, last_at)
			SELECT project_id, id, '{}', now_us() FROM connectors WHERE `+s.db.KeyCondition(&made, "id", keys)+`
			ORDER BY project_id, id ON CONFLICT (project_id, connector_id) DO NOTHING`, made.Values...); err != nil {
			return err
		}
		rows, err := sqldb.Collect(ctx, tx, scanRejections, `SELECT project_id, connector_id, document FROM rejections WHERE `+
			s.db.KeyCondition(&locked, "connector_id", keys)+` ORDER BY project_id, connector_id `+s.db.Exclusive, locked.Values...)
		if err != nil {
			return err
		}
		now, err := sqldb.ReadNow(ctx, tx)
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
	return sqldb.Wrap(err, "recording the rejections of %d connectors", len(of))
}

// writeRow stores a locked row.
func (r rejectionRow) writeRow(ctx context.Context, tx *sqldb.Tx, last time.Time) error {
	text, err := sqldb.MarshalText(r.refused)
	if err != nil {
		return err
	}
	_, err = tx.Exec(ctx, `UPDATE rejections SET document = $3, last_at = $4, news_at = $5 WHERE project_id = $1 AND connector_id = $2`,
		r.ProjectID, r.ID, text, sqldb.Instant(last), sqldb.MaybeInstant(r.refused.reportDue()))
	return err
}

// Rejections implements store.Rejections.
func (s *Store) Rejections(ctx context.Context, connector store.Key) (report store.RejectionReport, err error) {
	var now time.Time
	rows, err := sqldb.Collect(ctx, s.db.Reader(), scanRejections,
		`SELECT project_id, connector_id, document FROM rejections WHERE project_id = $1 AND connector_id = $2`, connector.ProjectID, connector.ID)
	if err == nil {
		now, err = sqldb.ReadNow(ctx, s.db.Reader())
	}
	if err != nil {
		return report, sqldb.Wrap(err, "reading the rejections of connector %s", connector)
	}
	known := rejectionCounts{}
	if len(rows) > 0 {
		known = rows[0].refused
	}
	return known.reportAt(now), nil
}

// TakeRejectionNews implements store.RejectionTeller.
func (s *Store) TakeRejectionNews(ctx context.Context, limit int) (news []store.RejectionNews, err error) {
	err = s.db.Write(ctx, func(ctx context.Context, tx *sqldb.Tx) error {
		news = nil
		due, err := sqldb.Collect(ctx, tx, scanDueRejections, `SELECT project_id, connector_id, document, last_at FROM rejections
			WHERE news_at <= now_us() ORDER BY news_at LIMIT $1 `+s.db.SkipLocked, limit)
		if err != nil || len(due) == 0 {
			return err
		}
		now, err := sqldb.ReadNow(ctx, tx)
		if err != nil {
			return err
		}
		for _, row := range due {
			counts := row.refused.takeUnreported(now)
			if err := row.writeRow(ctx, tx, row.last); err != nil {
				return err
			}
			holder, err := object.Read(ctx, tx, row.Key)
			if err == nil && len(counts) > 0 { // otherwise there is no object for an event
				news = append(news, store.RejectionNews{Connector: row.Key, Ref: holder.Ref, Counts: counts})
			}
			if err != nil && !errors.Is(err, store.ErrNotFound) {
				return err
			}
		}
		return nil
	})
	return news, sqldb.Wrap(err, "taking unreported rejections")
}

// dueRejections is a row with unreported rejections.
type dueRejections struct {
	rejectionRow
	last time.Time
}

func scanDueRejections(row sqldb.Scanner) (r dueRejections, err error) {
	err = row.Scan(&r.ProjectID, &r.ID, sqldb.ScanJSON(&r.refused), sqldb.ScanTime(&r.last))
	return r, err
}
