// SPDX-License-Identifier: Apache-2.0

// Package storedbytes counts the bytes that projects store.
package storedbytes

import (
	"context"
	"errors"
	"maps"
	"slices"

	"github.com/google/uuid"

	"github.com/agentplatform/agentplatform/store"
	"github.com/agentplatform/agentplatform/store/sqldb"
)

// Counted is an expression for the bytes of a project p that count against its limit: all
// except days beyond its retention, which are deleted later.
var Counted = `(COALESCE((SELECT s.bytes FROM stored_bytes s WHERE s.project_id = p.project_id), 0)
	- COALESCE((SELECT CAST(SUM(d.bytes) AS bigint) FROM stored_days d WHERE d.project_id = p.project_id
		AND p.history_us <> 0 AND d.day < (now_us() - p.history_us) / ` + sqldb.DayMicros + `), 0))`

// Consumer is the outbox consumer that counts stored bytes.
const Consumer = string(store.ConsumerStorage)

// AddByDay adds to the stored bytes of projects and days.
func AddByDay(ctx context.Context, tx *sqldb.Tx, more map[sqldb.ProjectDay]int64) error {
	var days sqldb.RowBatch
	of := map[uuid.UUID]int64{}
	for _, on := range slices.SortedFunc(maps.Keys(more), sqldb.CompareDays) {
		of[on.Project] += more[on]
		days.Add(on.Project, on.Day, more[on])
	}
	err := days.Insert(ctx, tx, `INSERT INTO stored_days AS s (project_id, day, bytes) VALUES `, `(%, %, %)`,
		` ON CONFLICT (project_id, day) DO UPDATE SET bytes = s.bytes + excluded.bytes`)
	if err != nil {
		return err
	}
	return Add(ctx, tx, of)
}

// CheckLimit returns a *store.StorageFullError if the project's storage is full.
func CheckLimit(ctx context.Context, db *sqldb.DB, project uuid.UUID) (full, err error) {
	var stored, limit int64
	err = sqldb.MapNoRows(db.Reader().QueryRowContext(ctx, `SELECT p.storage, `+Counted+`
		FROM projects p WHERE p.project_id = $1`, project).Scan(&limit, &stored))
	switch {
	case errors.Is(err, store.ErrNotFound): // the project is deleted
		return nil, nil
	case err != nil:
		return nil, sqldb.Wrap(err, "reading the stored bytes of project %s", project)
	case limit > 0 && stored >= limit:
		return &store.StorageFullError{Stored: stored, Limit: limit}, nil
	}
	return nil, nil
}

// Add adds to the stored bytes of projects. It locks their rows until the transaction ends, so it is the last statement, or
// almost the last.
func Add(ctx context.Context, tx *sqldb.Tx, bytes map[uuid.UUID]int64) error {
	var projects sqldb.RowBatch
	for _, project := range slices.SortedFunc(maps.Keys(bytes), sqldb.CompareIDs) {
		projects.Add(project, bytes[project])
	}
	return projects.Insert(ctx, tx, `INSERT INTO stored_bytes AS s (project_id, bytes) VALUES `, `(%, %)`,
		` ON CONFLICT (project_id) DO UPDATE SET bytes = s.bytes + excluded.bytes`)
}

// Post posts the stored bytes of history rows, each at the time of its ID.
func Post(ctx context.Context, tx *sqldb.Tx, keys []store.Key, more map[store.Key]int64) error {
	bytes, of := map[sqldb.ProjectDay]int64{}, map[sqldb.ProjectDay]uuid.UUID{}
	for _, key := range keys {
		on := sqldb.ProjectDay{Project: key.ProjectID, Day: sqldb.DayOf(key.ID)}
		bytes[on] += more[key]
		of[on] = key.ID
	}
	var r sqldb.RowBatch
	for _, on := range slices.SortedFunc(maps.Keys(bytes), sqldb.CompareDays) {
		r.Add(on.Project, Consumer, of[on], bytes[on])
	}
	return r.Insert(ctx, tx, `INSERT INTO outbox AS o (project_id, consumer, ended_id, bytes, posted_at) VALUES `, `(%, %, %, %, now_us())`,
		` ON CONFLICT (project_id, consumer, ended_id) DO UPDATE SET bytes = o.bytes + excluded.bytes`)
}
