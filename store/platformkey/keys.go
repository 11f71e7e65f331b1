// SPDX-License-Identifier: Apache-2.0

// Package platformkey stores which keys of the platform exist, and which process has them.
package platformkey

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/agentplatform/agentplatform/store"
	"github.com/agentplatform/agentplatform/store/sqldb"
)

// Store has the platform's keys, and the key of each derived secret.
type Store struct{ db *sqldb.DB }

// New returns a Store.
func New(db *sqldb.DB) *Store { return &Store{db: db} }

// Names of key rings.
const (
	ringDerivation = "derivation"
	ringSealing    = "sealing"
)

// keysTurn is the lock of transactions that change the platform's keys.
var keysTurn = uuid.MustParse("6b657973-0000-4000-8000-000000000000")

// reportsKept is how long the reports of ended processes are kept.
const reportsKept = time.Hour

const platformKeyColumns = `id, ring, fingerprint, rank, current, used, revoked_at, ends_at, retired_at`

func scanPlatformKey(row sqldb.Scanner) (k store.PlatformKey, err error) {
	err = row.Scan(&k.ID, &k.Ring, &k.Fingerprint, &k.Rank, &k.Current, &k.Used,
		sqldb.ScanNullTime(&k.RevokedAt), sqldb.ScanNullTime(&k.EndsAt), sqldb.ScanNullTime(&k.RetiredAt))
	return k, err
}

func platformKeys(ctx context.Context, q sqldb.Queryer) ([]store.PlatformKey, error) {
	return sqldb.Collect(ctx, q, scanPlatformKey, `SELECT `+platformKeyColumns+` FROM platform_keys ORDER BY rank`)
}

// ReportKeys implements store.KeyRegister.
func (s *Store) ReportKeys(ctx context.Context, process string, held map[string]string) (current []string, err error) {
	ids, err := sqldb.MarshalText(slices.Sorted(maps.Keys(held)))
	if err != nil {
		return nil, err
	}
	err = s.db.Write(ctx, func(ctx context.Context, tx *sqldb.Tx) error {
		known, err := platformKeys(ctx, tx)
		if err != nil {
			return err
		}
		missing := &store.MissingKeysError{}
		current = nil
		for _, key := range known {
			fingerprint, has := held[key.ID]
			switch {
			case has && fingerprint != key.Fingerprint:
				missing.Changed = append(missing.Changed, key.ID)
			case !has && key.Used && key.RevokedAt == nil:
				missing.Missing = append(missing.Missing, key.ID)
			case has && key.Current:
				current = append(current, key.ID)
			}
		}
		if len(missing.Missing)+len(missing.Changed) > 0 {
			return missing
		}
		_, err = tx.Exec(ctx, `INSERT INTO key_holders (process, keys, seen_at) VALUES ($1, $2, now_us())
			ON CONFLICT (process) DO UPDATE SET keys = excluded.keys, seen_at = excluded.seen_at`, sqldb.Text(process), ids)
		return err
	})
	return current, sqldb.Wrap(err, "recording the keys of process %s", process)
}

// ForgetProcess implements store.KeyRegister.
func (s *Store) ForgetProcess(ctx context.Context, process string) error {
	_, err := s.db.Exec(ctx, `DELETE FROM key_holders WHERE process = $1 OR seen_at < now_us() - $2`,
		sqldb.Text(process), reportsKept.Microseconds())
	return sqldb.Wrap(err, "deleting process %s", process)
}

func keyHolders(ctx context.Context, q sqldb.Queryer, liveFor time.Duration) ([]store.KeyHolder, error) {
	return sqldb.Collect(ctx, q, func(row sqldb.Scanner) (h store.KeyHolder, err error) {
		err = row.Scan(&h.Process, sqldb.ScanJSON(&h.Keys))
		return h, err
	}, `SELECT process, keys FROM key_holders WHERE seen_at > now_us() - $1 ORDER BY process`, liveFor.Microseconds())
}

// AdmitKeys implements store.KeyLedger.
func (s *Store) AdmitKeys(ctx context.Context, keys []store.PlatformKey, revoked map[string]time.Duration) error {
	err := s.db.Write(ctx, func(ctx context.Context, tx *sqldb.Tx) error {
		if err := s.db.Lock(ctx, tx, keysTurn); err != nil {
			return err
		}
		stored, err := platformKeys(ctx, tx)
		if err != nil {
			return err
		}
		if err := admitNew(ctx, tx, stored, keys); err != nil {
			return err
		}
		held := map[string]bool{}
		for _, key := range keys {
			held[key.ID] = true
		}
		for _, key := range stored {
			if !held[key.ID] && !key.Used && key.RevokedAt == nil {
				if _, err := tx.Exec(ctx, `DELETE FROM platform_keys WHERE id = $1`, key.ID); err != nil {
					return fmt.Errorf("deleting key %s: %w", key.ID, err)
				}
			}
		}
		for _, id := range slices.Sorted(maps.Keys(revoked)) {
			if err := revokeKey(ctx, tx, id, revoked[id]); err != nil {
				return fmt.Errorf("revoking key %s: %w", id, err)
			}
		}
		return nil
	})
	return sqldb.Wrap(err, "recording the platform's keys")
}

func admitNew(ctx context.Context, tx *sqldb.Tx, stored, keys []store.PlatformKey) error {
	known := map[string]store.PlatformKey{}
	var rank int64
	for _, key := range stored {
		known[key.ID] = key
		rank = max(rank, key.Rank)
	}
	for _, key := range keys {
		if old, ok := known[key.ID]; ok {
			if old.Fingerprint != key.Fingerprint {
				return &store.MissingKeysError{Changed: []string{key.ID}}
			}
			continue
		}
		rank++
		if _, err := tx.Exec(ctx, `INSERT INTO platform_keys (id, ring, fingerprint, rank) VALUES ($1, $2, $3, $4)`,
			key.ID, key.Ring, key.Fingerprint, rank); err != nil {
			return fmt.Errorf("recording key %s: %w", key.ID, err)
		}
	}
	return nil
}

// revokeKey revokes a key. That changes the valid secrets of all connectors, so their versions
// increase.
func revokeKey(ctx context.Context, tx *sqldb.Tx, id string, within time.Duration) error {
	changed, err := tx.Exec(ctx, `UPDATE platform_keys SET revoked_at = COALESCE(revoked_at, now_us()),
			ends_at = COALESCE(revoked_at, now_us()) + $2
		WHERE id = $1 AND (revoked_at IS NULL OR ends_at <> revoked_at + $2)`, id, within.Microseconds())
	if err != nil || changed == 0 {
		return err
	}
	touched, err := sqldb.Collect(ctx, tx, sqldb.ScanKey, `UPDATE connectors SET version = `+sqldb.NextConnectorVersion+`, updated_at = now_us()
		WHERE secrets LIKE $1 RETURNING project_id, id`, `%"`+id+`"%`)
	for _, key := range touched {
		tx.Hint(store.TopicRoute, key)
	}
	return err
}

// Ends returns the ends of revoked keys.
func Ends(ctx context.Context, q sqldb.Queryer) (store.KeyEnds, error) {
	keys, err := platformKeys(ctx, q)
	ends := store.KeyEnds{}
	for _, key := range keys {
		if key.EndsAt != nil {
			ends[key.ID] = *key.EndsAt
		}
	}
	return ends, sqldb.Wrap(err, "reading the revoked keys")
}

// PromoteKeys implements store.KeyLedger.
func (s *Store) PromoteKeys(ctx context.Context, liveFor time.Duration) (promoted []string, err error) {
	err = s.db.Write(ctx, func(ctx context.Context, tx *sqldb.Tx) error {
		promoted = nil
		if err := s.db.Lock(ctx, tx, keysTurn); err != nil {
			return err
		}
		keys, err := platformKeys(ctx, tx)
		if err != nil {
			return err
		}
		live, err := keyHolders(ctx, tx, liveFor)
		if err != nil {
			return err
		}
		for _, ring := range []string{ringDerivation, ringSealing} {
			of := slices.DeleteFunc(slices.Clone(keys), func(k store.PlatformKey) bool { return k.Ring != ring })
			next, ok := store.NextKey(of, live)
			if !ok {
				continue
			}
			if _, err := tx.Exec(ctx, `UPDATE platform_keys SET current = FALSE WHERE ring = $1 AND current`, ring); err != nil {
				return err
			}
			if _, err := tx.Exec(ctx, `UPDATE platform_keys SET current = TRUE, used = TRUE WHERE id = $1`, next.ID); err != nil {
				return err
			}
			promoted = append(promoted, next.ID)
		}
		return nil
	})
	return promoted, sqldb.Wrap(err, "choosing the current keys")
}

// Keys implements store.KeyLedger.
func (s *Store) Keys(ctx context.Context, liveFor time.Duration) (out []store.KeyStatus, err error) {
	err = s.db.Snapshot(ctx, func(ctx context.Context, q sqldb.Queryer) error {
		out = nil
		keys, err := platformKeys(ctx, q)
		if err != nil {
			return err
		}
		live, err := keyHolders(ctx, q, liveFor)
		if err != nil {
			return err
		}
		for _, key := range keys {
			status := store.KeyStatus{PlatformKey: key}
			for _, holder := range live {
				if !slices.Contains(holder.Keys, key.ID) {
					status.Lacking = append(status.Lacking, holder.Process)
				}
			}
			if err := q.QueryRowContext(ctx, `SELECT (SELECT count(*) FROM connectors WHERE (secret_key = $1 AND NOT shadowed) OR sealed_key = $1)
					+ (SELECT count(*) FROM projects WHERE telemetry_key = $1),
				EXISTS (SELECT 1 FROM platform_keys WHERE id = $1 AND `+dispensable+`)`,
				key.ID).Scan(&status.Needed, &status.Dispensable); err != nil {
				return err
			}
			out = append(out, status)
		}
		return nil
	})
	return out, sqldb.Wrap(err, "reading the platform's keys")
}

// dispensable is a condition on key $1. A connector out of effect derives its secret again when it
// returns, and secrets of a key expire with it.
const dispensable = `revoked_at IS NOT NULL AND NOT current AND NOT EXISTS (SELECT 1 FROM connectors WHERE sealed_key = $1)
	AND NOT EXISTS (SELECT 1 FROM projects WHERE telemetry_key = $1)
	AND (ends_at <= now_us() OR NOT EXISTS (SELECT 1 FROM connectors WHERE secret_key = $1 AND NOT shadowed))`

// RetireKey implements store.KeyLedger.
func (s *Store) RetireKey(ctx context.Context, keyID string) error {
	err := s.db.Write(ctx, func(ctx context.Context, tx *sqldb.Tx) error {
		if err := s.db.Lock(ctx, tx, keysTurn); err != nil {
			return err
		}
		changed, err := tx.Exec(ctx, `UPDATE platform_keys SET retired_at = COALESCE(retired_at, now_us())
			WHERE id = $1 AND `+dispensable, keyID)
		if err == nil && changed == 0 {
			err = store.ErrConflict
		}
		return err
	})
	return sqldb.Wrap(err, "retiring key %s", keyID)
}
