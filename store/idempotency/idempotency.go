// SPDX-License-Identifier: Apache-2.0

// Package idempotency stores the idempotency keys of requests.
package idempotency

import (
	"bytes"
	"context"
	"fmt"

	"github.com/google/uuid"

	"github.com/agentplatform/agentplatform/store"
	"github.com/agentplatform/agentplatform/store/sqldb"
)

// Store has the idempotency keys of connectors.
type Store struct{ db *sqldb.DB }

// New returns a Store.
func New(db *sqldb.DB) *Store { return &Store{db: db} }

// Stored bytes of an idempotency key in addition to its length: its row, and each run ID in it.
const (
	KeyOverhead = 256
	KeyRunBytes = 40
)

// KeySize returns the stored bytes of an event's idempotency key. They count with the input of the
// event, and as long as the input, although the row of the key is deleted earlier.
func KeySize(e store.Event) int64 {
	if e.Idempotency == nil {
		return 0
	}
	return KeyOverhead + int64(len(e.Idempotency.Key)) + KeyRunBytes*int64(len(e.Runs))
}

// connectorKey is an idempotency key of a connector.
type connectorKey struct {
	connector store.Key
	key       string
}

// NextEvents returns the events to accept next: all undecided events, but only the first event of each
// key. Later events with the key get the result of the first.
func NextEvents(events []store.Event, decided []bool, out []store.Admission) (now []int) {
	first, going := map[connectorKey]int{}, map[connectorKey]bool{}
	for i, e := range events {
		if e.Repeat && e.Idempotency == nil {
			out[i], decided[i] = store.Admission{Err: fmt.Errorf("a duplicate request without its key: %w", store.ErrInvalid)}, true
		}
		if e.Idempotency == nil {
			if !decided[i] {
				now = append(now, i)
			}
			continue
		}
		key := connectorKey{store.Key{ProjectID: e.ProjectID, ID: e.ConnectorID}, e.Idempotency.Key}
		if decided[i] {
			if _, known := first[key]; !known && out[i].Err == nil && out[i].Verdict != store.Outdated {
				first[key] = i
			}
			continue
		}
		if at, known := first[key]; known {
			if out[i], decided[i] = resultOfDuplicate(events[at], out[at], e); decided[i] {
				continue
			}
		}
		if !going[key] {
			going[key] = true
			now = append(now, i)
		}
	}
	return now
}

// resultOfDuplicate returns the result of an event with the key of another event. It returns false if the
// result of the other event is not conclusive.
func resultOfDuplicate(first store.Event, a store.Admission, e store.Event) (store.Admission, bool) {
	fingerprints := [2][]byte{first.Idempotency.Fingerprint, e.Idempotency.Fingerprint}
	same := bytes.Equal(fingerprints[0], fingerprints[1])
	stands := store.Admission{Verdict: store.Repeated, ConnectorRunID: a.ConnectorRunID, RunIDs: a.RunIDs}
	switch {
	case a.Verdict == store.Accepted && (same || fingerprints[0] == nil || fingerprints[1] == nil), a.Verdict == store.Repeated && same:
		return stands, true
	case a.Verdict == store.Accepted, a.Verdict == store.KeyReused && same:
		return store.Admission{Verdict: store.KeyReused, ConnectorRunID: a.ConnectorRunID}, true
	}
	return store.Admission{}, false
}

// KnownKey implements store.Ingest.
func (s *Store) KnownKey(ctx context.Context, connector store.Key, key string) (known bool, err error) {
	err = s.db.Reader().QueryRowContext(ctx, `SELECT EXISTS (SELECT 1 FROM idempotency_keys
		WHERE project_id = $1 AND connector_id = $2 AND key = $3 AND expires_at > now_us())`,
		connector.ProjectID, connector.ID, sqldb.Text(key)).Scan(&known)
	return known, sqldb.Wrap(err, "reading an idempotency key of connector %s", connector)
}

// Earlier returns the admission of the first event with an idempotency key. ErrNotFound if the key
// has expired meanwhile.
func Earlier(ctx context.Context, q sqldb.Queryer, e store.Event) (store.Admission, error) {
	var first StoredResult
	err := first.Scan(q.QueryRowContext(ctx, `SELECT connector_run_id, fingerprint, run_ids FROM idempotency_keys
		WHERE project_id = $1 AND connector_id = $2 AND key = $3 AND expires_at > now_us()`,
		e.ProjectID, e.ConnectorID, sqldb.Text(e.Idempotency.Key)))
	return first.Answer(e), sqldb.Wrap(sqldb.MapNoRows(err), "reading an idempotency key")
}

// StoredResult is the stored result of the first event with a key.
type StoredResult struct {
	connectorRun uuid.UUID
	fingerprint  []byte
	runs         []uuid.UUID
}

// Scan reads the columns connector_run_id, fingerprint and run_ids, after the columns in before.
func (f *StoredResult) Scan(row sqldb.Scanner, before ...any) error {
	return row.Scan(append(before, &f.connectorRun, &f.fingerprint, sqldb.ScanIDs(&f.runs))...)
}

// Answer returns the result for another event with the key.
func (f *StoredResult) Answer(e store.Event) store.Admission {
	if e.Idempotency.Fingerprint != nil && f.fingerprint != nil && !bytes.Equal(e.Idempotency.Fingerprint, f.fingerprint) {
		return store.Admission{Verdict: store.KeyReused, ConnectorRunID: f.connectorRun}
	}
	return store.Admission{Verdict: store.Repeated, ConnectorRunID: f.connectorRun, RunIDs: f.runs}
}

// Take claims the idempotency key for a delivery. first is false if another request has it.
func Take(ctx context.Context, tx *sqldb.Tx, d store.Delivery, key *store.Idempotency) (first bool, err error) {
	if key == nil {
		return true, nil
	}
	n, err := tx.Exec(ctx, `INSERT INTO idempotency_keys AS k (project_id, connector_id, key, fingerprint, connector_run_id, run_ids, expires_at)
		VALUES ($1, $2, $3, $4, $5, id_list($6), now_us() + $7)
		ON CONFLICT (project_id, connector_id, key) DO UPDATE SET fingerprint = excluded.fingerprint,
			connector_run_id = excluded.connector_run_id, run_ids = excluded.run_ids, expires_at = excluded.expires_at
		WHERE k.expires_at <= now_us()`,
		d.ProjectID, d.ConnectorID, sqldb.Text(key.Key), key.Fingerprint, d.ID, d.RunID, key.TTL.Microseconds())
	return n == 1, err
}
