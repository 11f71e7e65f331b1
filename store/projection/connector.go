// SPDX-License-Identifier: Apache-2.0

package projection

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/agentplatform/agentplatform/store"
	"github.com/agentplatform/agentplatform/store/connectorrow"
	"github.com/agentplatform/agentplatform/store/crontick"
	"github.com/agentplatform/agentplatform/store/object"
	"github.com/agentplatform/agentplatform/store/platformkey"
	"github.com/agentplatform/agentplatform/store/sqldb"
)

// Connector implements store.Catalog.
func (s *Store) Connector(ctx context.Context, key store.Key) (store.Connector, error) {
	connector, err := connectorrow.Scan(s.db.Reader().QueryRowContext(ctx, connectorrow.SelectOne, key.ProjectID, key.ID))
	return connector, sqldb.Wrap(err, "reading connector %s", key)
}

// ConnectorsOf implements store.Catalog.
func (s *Store) ConnectorsOf(ctx context.Context, environment store.Key) ([]uuid.UUID, error) {
	ids, err := sqldb.Collect(ctx, s.db.Reader(), sqldb.ScanUUID, `SELECT c.id FROM connectors c WHERE c.project_id = $1 AND c.environment_id = $2`, environment.ProjectID, environment.ID)
	return ids, sqldb.Wrap(err, "listing the connectors of environment %s", environment)
}

// CodeConnectors implements store.Activations.
func (s *Store) CodeConnectors(ctx context.Context, environment store.Key) ([]store.Connector, error) {
	connectors, err := sqldb.Collect(ctx, s.db.Reader(), func(row sqldb.Scanner) (store.Connector, error) {
		return connectorrow.Scan(row, new(bool))
	}, connectorrow.SelectAllWritten+` AND c.environment_id = $2 AND c.defined_in_code ORDER BY k.name`, environment.ProjectID, environment.ID)
	return connectors, sqldb.Wrap(err, "listing the code-defined connectors of environment %s", environment)
}

// PutConnector implements store.Projector.
func (s *Store) PutConnector(ctx context.Context, connector store.Connector) error {
	var partly error // the rest is stored nevertheless
	err := s.db.Write(ctx, func(ctx context.Context, tx *sqldb.Tx) (err error) {
		partly, err = s.putConnector(ctx, tx, connector)
		return err
	})
	if err == nil {
		err = partly
	}
	return err
}

// DisableConnector implements store.Projector.
func (s *Store) DisableConnector(ctx context.Context, key store.Key, ref store.ObjectRef) error {
	var enabled bool
	err := sqldb.MapNoRows(s.db.Reader().QueryRowContext(ctx, `SELECT enabled FROM connectors WHERE project_id = $1 AND id = $2`,
		key.ProjectID, key.ID).Scan(&enabled))
	if errors.Is(err, store.ErrNotFound) || err == nil && !enabled {
		return nil
	}
	if err != nil {
		return fmt.Errorf("reading the state of %s: %w", ref, err)
	}
	return s.db.Write(ctx, func(ctx context.Context, tx *sqldb.Tx) error {
		if err := s.ClaimIDInTx(ctx, tx, key, ref); err != nil {
			return err
		}
		n, err := tx.Exec(ctx, `UPDATE connectors SET enabled = FALSE WHERE project_id = $1 AND id = $2 AND enabled`, key.ProjectID, key.ID)
		if err != nil || n == 0 {
			return sqldb.Wrap(err, "disabling %s", ref)
		}
		return bumpConnectors(ctx, tx, key.ProjectID, `id = $2`, key.ID)
	})
}

// putConnector returns a *store.DuplicateError or *store.SecretVersionError if the connector is
// written in part.
func (s *Store) putConnector(ctx context.Context, tx *sqldb.Tx, connector store.Connector) (partly, err error) {
	if err := s.ClaimIDInTx(ctx, tx, connector.Key(), connector.Ref); err != nil {
		return nil, err
	}
	if err := mustBeLive(ctx, tx, connector.Activation, `id = $2`, connector.ProjectID, connector.EnvironmentID); err != nil {
		return nil, sqldb.Wrap(err, "projecting %s", connector.Ref)
	}
	connector.Name = sqldb.Text(connector.Name)
	if partly, err = checkNameConflict(ctx, tx, connector); partly == nil && err == nil {
		partly, err = writeConnector(ctx, tx, connector)
	}
	return partly, sqldb.Wrap(err, "projecting %s", connector.Ref)
}

// mustBeLive returns store.ErrNotLive if the environment of the condition has another activation
// than the one with the rank, and store.ErrNothingLive if it has none. Rank 0 matches any. The
// argument of the condition is $2.
func mustBeLive(ctx context.Context, tx *sqldb.Tx, rank int64, condition string, project uuid.UUID, of uuid.UUID) error {
	if rank == 0 {
		return nil
	}
	var live int64
	switch err := sqldb.MapNoRows(tx.QueryRowContext(ctx, `SELECT live_rank FROM environments
		WHERE project_id = $1 AND `+condition, project, of).Scan(&live)); {
	case errors.Is(err, store.ErrNotFound), err == nil && live != rank:
		if err == nil && live == 0 {
			return store.ErrNothingLive
		}
		return store.ErrNotLive
	default:
		return sqldb.Wrap(err, "reading the live deployment")
	}
}

// checkNameConflict returns a *store.DuplicateError if another connector of the environment has the name.
// The stored row of this connector is then no longer in effect. A connector that has the name keeps
// it, also from later ones that differ in case only.
func checkNameConflict(ctx context.Context, tx *sqldb.Tx, connector store.Connector) (taken, err error) {
	if connector.Retired {
		return nil, nil
	}
	name := connectorName(connector)
	namesakes, err := sqldb.Collect(ctx, tx, scanNamesake, `SELECT c.id, c.name, c.retired, c.defined_in_code, `+object.RefColumns+`
		FROM connectors c JOIN object_ids k ON k.project_id = c.project_id AND k.id = c.id
		WHERE c.project_id = $1 AND c.environment_id = $2 AND NOT c.shadowed AND length(c.name) = length(CAST($3 AS text))
		ORDER BY c.retired, c.created_at, c.id`, connector.ProjectID, connector.EnvironmentID, connector.Name)
	if err != nil {
		return nil, fmt.Errorf("reading the holder of the name: %w", err)
	}
	for _, other := range namesakes {
		switch {
		case !name.ClashesWith(connectorName(other)):
		case other.ID != connector.ID:
			return &store.DuplicateError{Holder: other.Ref}, takeOutOfEffect(ctx, tx, connector.Key(), `NOT shadowed`)
		case !other.Retired:
			return nil, nil
		}
	}
	return nil, nil
}

func connectorName(c store.Connector) store.ConnectorName {
	return store.ConnectorName{Name: c.Name, DefinedInCode: c.DefinedInCode, Retired: c.Retired}
}

// scanNamesake reads the fields that decide a name conflict.
func scanNamesake(row sqldb.Scanner) (c store.Connector, err error) {
	err = row.Scan(append([]any{&c.ID, &c.Name, &c.Retired, &c.DefinedInCode}, object.RefFields(&c.Ref)...)...)
	return c, err
}

// takeOutOfEffect takes a connector's row out of effect, if it meets a condition.
func takeOutOfEffect(ctx context.Context, tx *sqldb.Tx, key store.Key, condition string, args ...any) error {
	n, err := tx.Exec(ctx, `UPDATE connectors SET shadowed = TRUE WHERE project_id = $1 AND id = $2 AND `+condition,
		append([]any{key.ProjectID, key.ID}, args...)...)
	if err != nil || n == 0 {
		return sqldb.Wrap(err, "taking a connector out of effect")
	}
	return bumpConnectors(ctx, tx, key.ProjectID, `id = $2`, key.ID)
}

// writeConnector writes a connector with its own ID and name, if it has changed. It returns a
// *store.SecretVersionError if the secrets stay.
func writeConnector(ctx context.Context, tx *sqldb.Tx, connector store.Connector) (behind, err error) {
	var now time.Time
	if err := tx.QueryRowContext(ctx, `SELECT now_us()`).Scan(sqldb.ScanTime(&now)); err != nil {
		return nil, err
	}
	var shadowed bool
	stored, err := connectorrow.Scan(
		tx.QueryRowContext(ctx, connectorrow.SelectWritten, connector.ProjectID, connector.ID), &shadowed)
	if err != nil && !errors.Is(err, store.ErrNotFound) {
		return nil, fmt.Errorf("reading the stored row: %w", err)
	}
	known := err == nil
	if connector.SecretVersion < stored.SecretVersion {
		behind = &store.SecretVersionError{Asked: connector.SecretVersion, Stored: stored.SecretVersion}
		connector.SecretVersion, connector.SecretDigest = stored.SecretVersion, stored.SecretDigest
		connector.SecretGracePeriod, connector.SecretKey = stored.SecretGracePeriod, stored.SecretKey
	}
	ends, err := platformkey.Ends(ctx, tx)
	if err != nil {
		return nil, err
	}
	connector.Config = []byte(sqldb.Text(string(connector.Config)))
	connector.Secrets = store.RotateSecrets(stored.Secrets, store.AcceptedSecret{
		SHA256: connector.SecretDigest, Version: connector.SecretVersion, Key: connector.SecretKey,
	}, connector.SecretGracePeriod, ends, now)
	if known && !shadowed && sameConnector(stored, connector) {
		return behind, nil
	}
	inEffect := known && !shadowed && !stored.Retired && stored.Mode == connector.Mode && stored.EnvironmentID == connector.EnvironmentID
	if err := upsertConnector(ctx, tx, connector); err != nil || !connector.Sends() || inEffect {
		return behind, err
	}
	return behind, dropSurplus(ctx, tx, connector)
}

func upsertConnector(ctx context.Context, tx *sqldb.Tx, connector store.Connector) error {
	secrets, err := sqldb.MarshalText(connector.Secrets)
	if err != nil {
		return err
	}
	_, err = tx.Exec(ctx, `INSERT INTO connectors (project_id, id, environment_id, name, type, mode, enabled, retired,
			defined_in_code, config, sealed, secret_version,
			secrets, secret_grace_us, secret_key, sealed_key, shadowed, version, created_at, updated_at)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, FALSE, now_us(), now_us(), now_us())
		ON CONFLICT (project_id, id) DO UPDATE SET environment_id = excluded.environment_id,
			name = excluded.name, type = excluded.type, mode = excluded.mode, enabled = excluded.enabled,
			retired = excluded.retired, defined_in_code = excluded.defined_in_code, config = excluded.config,
			sealed = excluded.sealed,
			secret_version = excluded.secret_version, secrets = excluded.secrets,
			secret_grace_us = excluded.secret_grace_us, secret_key = excluded.secret_key,
			sealed_key = excluded.sealed_key, shadowed = FALSE,
			version = `+sqldb.NextConnectorVersion+`, updated_at = excluded.updated_at`,
		connector.ProjectID, connector.ID, connector.EnvironmentID, connector.Name, connector.Type, connector.Mode,
		connector.Enabled, connector.Retired, connector.DefinedInCode, string(connector.Config), connector.Sealed,
		connector.SecretVersion, secrets, connector.SecretGracePeriod.Microseconds(), connector.SecretKey, connector.SealedKey)
	tx.Hint(store.TopicRoute, connector.Key())
	if err != nil {
		return err
	}
	return crontick.Put(ctx, tx, connector)
}

func sameConnector(a, b store.Connector) bool {
	return a.EnvironmentID == b.EnvironmentID && a.Name == b.Name && a.Type == b.Type &&
		a.Mode == b.Mode && a.Enabled == b.Enabled && a.Retired == b.Retired && a.DefinedInCode == b.DefinedInCode &&
		bytes.Equal(a.Config, b.Config) && bytes.Equal(a.Sealed, b.Sealed) &&
		a.SecretVersion == b.SecretVersion &&
		a.SecretKey == b.SecretKey && a.SealedKey == b.SealedKey &&
		a.SecretGracePeriod.Truncate(time.Microsecond) == b.SecretGracePeriod.Truncate(time.Microsecond) &&
		slices.EqualFunc(a.Secrets, b.Secrets, func(x, y store.AcceptedSecret) bool {
			return bytes.Equal(x.SHA256, y.SHA256) && x.Version == y.Version && x.Key == y.Key && (x.NotAfter == nil) == (y.NotAfter == nil) &&
				(x.NotAfter == nil || x.NotAfter.Equal(*y.NotAfter))
		})
}

// bumpConnectors increases the version of the project's connectors that match a condition. Its
// arguments begin at $2.
func bumpConnectors(ctx context.Context, tx *sqldb.Tx, project uuid.UUID, condition string, args ...any) error {
	var crons []uuid.UUID
	err := sqldb.EachRow(ctx, tx, func(row sqldb.Scanner) error {
		key, kind := store.Key{ProjectID: project}, ""
		if err := row.Scan(&key.ID, &kind); err != nil {
			return err
		}
		tx.Hint(store.TopicRoute, key)
		if kind == store.TypeCron {
			crons = append(crons, key.ID)
		}
		return nil
	}, `UPDATE connectors SET version = `+sqldb.NextConnectorVersion+`, updated_at = now_us()
		WHERE project_id = $1 AND `+condition+` RETURNING id, type`, append([]any{project}, args...)...)
	if err != nil {
		return sqldb.Wrap(err, "increasing the version of connectors")
	}
	return crontick.Settle(ctx, tx, project, crons)
}

// removeConnector deletes a connector with its links. Its runs stay.
func removeConnector(ctx context.Context, tx *sqldb.Tx, key store.Key) error {
	for _, statement := range []string{
		`DELETE FROM object_ids WHERE project_id = $1 AND id IN
			(SELECT l.id FROM links l WHERE l.project_id = $1 AND l.connector_id = $2)`,
		`DELETE FROM links WHERE project_id = $1 AND connector_id = $2`,
		`DELETE FROM cron_ticks WHERE project_id = $1 AND connector_id = $2`,
		`DELETE FROM rejections WHERE project_id = $1 AND connector_id = $2`,
		`DELETE FROM replays WHERE project_id = $1 AND connector_id = $2`,
		`DELETE FROM connectors WHERE project_id = $1 AND id = $2`,
		// A re-created connector has the same ID, and its generations start again.
		`UPDATE destinations SET failures = 0, rejected = 0, rejected_reason = '', paused_generation = NULL, paused_reason = '' WHERE project_id = $1 AND connector_id = $2`,
	} {
		if _, err := tx.Exec(ctx, statement, key.ProjectID, key.ID); err != nil {
			return err
		}
	}
	tx.Hint(store.TopicRoute, key)
	return object.RecordDeletion(ctx, tx, store.KindConnector, key)
}

// ConnectorIDs implements store.Routes.
func (s *Store) ConnectorIDs(ctx context.Context, after store.Key, limit int) ([]store.Key, error) {
	keys, err := sqldb.Collect(ctx, s.db.Reader(), sqldb.ScanKey, `SELECT project_id, id FROM connectors
		WHERE (project_id, id) > ($1, $2) ORDER BY project_id, id LIMIT $3`, after.ProjectID, after.ID, limit)
	return keys, sqldb.Wrap(err, "listing connectors")
}
