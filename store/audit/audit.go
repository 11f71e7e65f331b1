// SPDX-License-Identifier: Apache-2.0

// Package audit stores the audit log.
package audit

import (
	"context"
	"encoding/binary"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/agentplatform/agentplatform/store"
	"github.com/agentplatform/agentplatform/store/sqldb"
	"github.com/agentplatform/agentplatform/store/timewindow"
)

// Store has the audit log of projects.
type Store struct{ db *sqldb.DB }

// New returns a Store.
func New(db *sqldb.DB) *Store { return &Store{db: db} }

// Maximum sizes in bytes of the texts of an audit entry.
const (
	maxAuditName = 253
	maxAuditPath = 512
)

// RecordAudit implements store.Audit.
func (s *Store) RecordAudit(ctx context.Context, e store.AuditEntry) (id uuid.UUID, err error) {
	err = s.db.Write(ctx, func(ctx context.Context, tx *sqldb.Tx) error {
		id, err = insertAudit(ctx, tx, e)
		return err
	})
	return id, sqldb.Wrap(err, "recording %q in the audit log", e.Operation)
}

// insertAudit records an operation in a transaction, which may be that of the operation.
func insertAudit(ctx context.Context, tx *sqldb.Tx, e store.AuditEntry) (uuid.UUID, error) {
	now, err := sqldb.ReadNow(ctx, tx)
	if err != nil {
		return uuid.Nil, err
	}
	id, err := auditID(now)
	if err != nil {
		return uuid.Nil, err
	}
	if _, err := tx.Exec(ctx, `INSERT INTO audit_days (project_id, day) VALUES ($1, $2) ON CONFLICT (project_id, day) DO NOTHING`,
		e.ProjectID, sqldb.DayOf(id)); err != nil {
		return uuid.Nil, err
	}
	a := e.Actor
	if _, err := tx.Exec(ctx, `INSERT INTO audit_log (project_id, id, at, actor_kind, actor_name, key_id,
		owner_kind, owner_name, operation, method, route, object_kind, object_id, object_name, request_id, remote_addr,
		idempotency_key) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17)`,
		e.ProjectID, id, sqldb.Instant(now), string(a.Kind), truncateName(a.Name), truncateName(a.KeyID), truncateName(a.OwnerKind), truncateName(a.OwnerName),
		truncateName(e.Operation), truncateName(e.Method), sqldb.TruncateText(e.Route, maxAuditPath), truncateName(e.Object.Kind), truncateName(e.Object.ID),
		truncateName(e.Object.Name), truncateName(e.RequestID), truncateName(e.RemoteAddr), sqldb.TruncateText(e.IdempotencyKey, maxAuditPath)); err != nil {
		return uuid.Nil, err
	}
	if e.Outcome == nil {
		return id, nil
	}
	return id, insertOutcome(ctx, tx, e.ProjectID, id, *e.Outcome)
}

// RecordAuditOutcome implements store.Audit.
func (s *Store) RecordAuditOutcome(ctx context.Context, projectID, id uuid.UUID, o store.AuditOutcome) error {
	err := s.db.Write(ctx, func(ctx context.Context, tx *sqldb.Tx) error { return insertOutcome(ctx, tx, projectID, id, o) })
	return sqldb.Wrap(err, "recording the outcome of audit entry %s", id)
}

func insertOutcome(ctx context.Context, tx *sqldb.Tx, projectID, id uuid.UUID, o store.AuditOutcome) error {
	for _, document := range [][]byte{o.Before, o.After} {
		if len(document) > store.MaxAuditDocument {
			return fmt.Errorf("a document of %d bytes is larger than %d", len(document), store.MaxAuditDocument)
		}
	}
	_, err := tx.Exec(ctx, `INSERT INTO audit_outcomes (project_id, id, at, status, code, object_kind, object_id,
		object_name, before, after) VALUES ($1, $2, now_us(), $3, $4, $5, $6, $7, $8, $9)`,
		projectID, id, o.Status, truncateName(o.Code), truncateName(o.Object.Kind), truncateName(o.Object.ID), truncateName(o.Object.Name),
		sqldb.JSON(o.Before), sqldb.JSON(o.After))
	return err
}

// ListAudit implements store.Audit.
func (s *Store) ListAudit(ctx context.Context, q store.AuditQuery) (entries []store.AuditEntry, err error) {
	windows, err := timewindow.List(ctx, s.db, s.db.Lists(), "audit_log", q.ProjectID, timewindow.Period{From: timewindow.Always, To: timewindow.Never}, q.Before)
	for _, window := range windows {
		if err != nil || len(entries) == q.Limit {
			break
		}
		var some []store.AuditEntry
		some, err = s.auditEntries(ctx, q, window, q.Limit-len(entries))
		entries = append(entries, some...)
	}
	return entries, sqldb.Wrap(err, "listing the audit log of project %s", q.ProjectID)
}

// auditEntries returns the newest entries of a window, at most so many. The outcomes are limited to
// the same days, so that only their partitions are read.
func (s *Store) auditEntries(ctx context.Context, q store.AuditQuery, window timewindow.Window, most int) ([]store.AuditEntry, error) {
	if len(window.History) == 0 {
		return nil, nil
	}
	l, before := sqldb.Args{Values: []any{q.ProjectID}}, ""
	if q.Before != nil {
		before = ` AND a.id < ` + l.Add(*q.Before)
	}
	return sqldb.Collect(ctx, s.db.Lists(), scanAudit, `SELECT a.project_id, a.id, a.at, a.actor_kind, a.actor_name,
		a.key_id, a.owner_kind, a.owner_name, a.operation, a.method, a.route, a.object_kind, a.object_id, a.object_name,
		a.request_id, a.remote_addr, a.idempotency_key, o.at, COALESCE(o.status, 0), COALESCE(o.code, ''), COALESCE(o.object_kind, ''),
		COALESCE(o.object_id, ''), COALESCE(o.object_name, ''), o.before, o.after
		FROM audit_log a LEFT JOIN audit_outcomes o ON o.project_id = a.project_id AND o.id = a.id`+timewindow.DaysCondition("o.id", window, &l)+`
		WHERE a.project_id = $1`+before+timewindow.DaysCondition("a.id", window, &l)+` ORDER BY a.id DESC LIMIT `+l.Add(most), l.Values...)
}

func scanAudit(row sqldb.Scanner) (e store.AuditEntry, err error) {
	var (
		o     store.AuditOutcome
		ended *time.Time
	)
	err = row.Scan(&e.ProjectID, &e.ID, sqldb.ScanTime(&e.At), &e.Actor.Kind, &e.Actor.Name, &e.Actor.KeyID, &e.Actor.OwnerKind,
		&e.Actor.OwnerName, &e.Operation, &e.Method, &e.Route, &e.Object.Kind, &e.Object.ID, &e.Object.Name, &e.RequestID,
		&e.RemoteAddr, &e.IdempotencyKey, sqldb.ScanNullTime(&ended), &o.Status, &o.Code, &o.Object.Kind, &o.Object.ID, &o.Object.Name,
		sqldb.ScanJSON(&o.Before), sqldb.ScanJSON(&o.After))
	if ended != nil {
		o.At, e.Outcome = *ended, &o
	}
	return e, err
}

// auditID returns a UUIDv7 of a time. The bits after the milliseconds hold the microseconds, so IDs
// sort by time.
func auditID(t time.Time) (uuid.UUID, error) {
	id, err := uuid.NewRandom()
	if err != nil {
		return id, fmt.Errorf("generating an ID: %w", err)
	}
	ms, us := uint64(t.UnixMilli()), uint64(t.UnixMicro()%1000)
	binary.BigEndian.PutUint64(id[:8], ms<<16|0x7000|us*4096/1000)
	return id, nil
}

// truncateName cuts a name or an ID.
func truncateName(s string) string { return sqldb.TruncateText(s, maxAuditName) }
