// SPDX-License-Identifier: Apache-2.0

package platformkey

import (
	"context"
	"errors"
	"slices"

	"github.com/google/uuid"

	"github.com/agentplatform/agentplatform/store"
	"github.com/agentplatform/agentplatform/store/object"
	"github.com/agentplatform/agentplatform/store/sqldb"
)

// DerivationKey implements store.KeyLedger.
func (s *Store) DerivationKey(ctx context.Context, connector store.Key, version int64) (id string, err error) {
	err = s.db.Reader().QueryRowContext(ctx, `SELECT d.key_id FROM derivations d JOIN platform_keys k ON k.id = d.key_id
		WHERE d.project_id = $1 AND d.connector_id = $2 AND d.version = $3 AND k.revoked_at IS NULL`,
		connector.ProjectID, connector.ID, version).Scan(&id)
	if !errors.Is(sqldb.MapNoRows(err), store.ErrNotFound) {
		return id, sqldb.Wrap(err, "reading the derivation key of a secret")
	}
	err = s.db.Write(ctx, func(ctx context.Context, tx *sqldb.Tx) (err error) {
		id, err = s.noteDerivation(ctx, tx, connector, version)
		return err
	})
	return id, sqldb.Wrap(err, "recording the derivation key of a secret")
}

// idsAtOnce is the maximum number of IDs per statement, because engines limit the number of
// arguments.
const idsAtOnce = 5000

// DerivationKeys implements store.KeyLedger.
func (s *Store) DerivationKeys(ctx context.Context, projectID uuid.UUID, connectors []uuid.UUID) (map[store.Derivation]string, error) {
	out := make(map[store.Derivation]string, len(connectors))
	for ids := range slices.Chunk(connectors, idsAtOnce) {
		l := sqldb.Args{Values: []any{projectID}}
		err := sqldb.CollectMap(ctx, s.db.Reader(), out, func(row sqldb.Scanner) (d store.Derivation, key string, err error) {
			err = row.Scan(&d.ConnectorID, &d.Version, &key)
			return d, key, err
		}, `SELECT d.connector_id, d.version, d.key_id FROM derivations d JOIN platform_keys k ON k.id = d.key_id
			WHERE d.project_id = $1 AND d.connector_id IN `+l.AddIDs(ids)+` AND k.revoked_at IS NULL`, l.Values...)
		if err != nil {
			return nil, sqldb.Wrap(err, "reading the derivation keys of project %s", projectID)
		}
	}
	return out, nil
}

// noteDerivation records the current key, unless a valid one is recorded. While every key is
// revoked, the recorded one stays.
func (s *Store) noteDerivation(ctx context.Context, tx *sqldb.Tx, connector store.Key, version int64) (string, error) {
	if err := s.db.Lock(ctx, tx, keysTurn); err != nil {
		return "", err
	}
	var current string
	err := sqldb.MapNoRows(tx.QueryRowContext(ctx, `SELECT id FROM platform_keys WHERE ring = 'derivation' AND current AND revoked_at IS NULL`).
		Scan(&current))
	if err != nil && !errors.Is(err, store.ErrNotFound) {
		return "", err
	}
	if current != "" {
		if _, err := tx.Exec(ctx, `INSERT INTO derivations (project_id, connector_id, version, key_id) VALUES ($1, $2, $3, $4)
			ON CONFLICT (project_id, connector_id, version) DO UPDATE SET key_id = excluded.key_id
			WHERE EXISTS (SELECT 1 FROM platform_keys k WHERE k.id = derivations.key_id AND k.revoked_at IS NOT NULL)`,
			connector.ProjectID, connector.ID, version, current); err != nil {
			return "", err
		}
	}
	var id string
	err = sqldb.MapNoRows(tx.QueryRowContext(ctx, `SELECT key_id FROM derivations WHERE project_id = $1 AND connector_id = $2 AND version = $3`,
		connector.ProjectID, connector.ID, version).Scan(&id))
	if errors.Is(err, store.ErrNotFound) {
		err = store.ErrNoCurrentKey
	}
	return id, err
}

// DerivedFrom implements store.KeyLedger.
func (s *Store) DerivedFrom(ctx context.Context, keyID string, after store.Key, limit int) ([]store.ProjectedObject, error) {
	objects, err := sqldb.Collect(ctx, s.db.Reader(), func(row sqldb.Scanner) (o store.ProjectedObject, err error) {
		err = row.Scan(append([]any{&o.Key.ProjectID, &o.Key.ID}, object.RefFields(&o.Ref)...)...)
		return o, err
	}, `SELECT c.project_id, c.id, `+object.RefColumns+`
		FROM connectors c JOIN object_ids k ON k.project_id = c.project_id AND k.id = c.id
		WHERE c.secret_key = $1 AND NOT c.shadowed AND (c.project_id > $2 OR (c.project_id = $2 AND c.id > $3))
		ORDER BY c.project_id, c.id LIMIT $4`, keyID, after.ProjectID, after.ID, limit)
	return objects, sqldb.Wrap(err, "listing the secrets derived from key %s", keyID)
}

// SealedBefore implements store.KeyLedger.
func (s *Store) SealedBefore(ctx context.Context, keyID string, after store.Key, limit int) ([]store.SealedField, error) {
	fields, err := sqldb.Collect(ctx, s.db.Reader(), func(row sqldb.Scanner) (f store.SealedField, err error) {
		err = row.Scan(&f.Connector.ProjectID, &f.Connector.ID, &f.Sealed)
		return f, err
	}, `SELECT project_id, id, sealed FROM connectors WHERE sealed IS NOT NULL AND sealed_key <> $1
			AND (project_id > $2 OR (project_id = $2 AND id > $3))
		ORDER BY project_id, id LIMIT $4`, keyID, after.ProjectID, after.ID, limit)
	return fields, sqldb.Wrap(err, "listing the fields not sealed by key %s", keyID)
}

// Reseal implements store.KeyLedger.
func (s *Store) Reseal(ctx context.Context, field store.SealedField, sealed []byte, keyID string) error {
	_, err := s.db.Exec(ctx, `UPDATE connectors SET sealed = $1, sealed_key = $2 WHERE project_id = $3 AND id = $4 AND sealed = $5`,
		sealed, keyID, field.Connector.ProjectID, field.Connector.ID, field.Sealed)
	return sqldb.Wrap(err, "resealing credentials")
}
