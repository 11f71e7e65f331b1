// SPDX-License-Identifier: Apache-2.0

package sqlcore

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/agentplatform/agentplatform/store"
)

// connectorColumns are of connectors c with their claims k and environments e.
// A connector is enabled only while its environment is there.
const connectorColumns = `c.id, c.project_id, c.environment_id, c.name, c.type, c.mode,
	c.enabled AND e.id IS NOT NULL, c.retired, c.defined_in_code, c.config, c.sealed, c.require_authentication,
	c.timeout_seconds, c.files_required, c.secrets, c.secret_grace_us, c.version, c.created_at, c.updated_at,
	k.cluster_uid, k.namespace, k.kind, k.name, k.object_uid, k.generation`

const connectorTables = `connectors c JOIN claims k ON k.id = c.id LEFT JOIN environments e ON e.id = c.environment_id`

// connectorFields are the destinations of connectorColumns; finish is to be
// called once they are filled.
func connectorFields(c *store.Connector) (dest []any, finish func()) {
	var (
		config string
		grace  int64
	)
	dest = []any{
		&c.ID, &c.ProjectID, &c.EnvironmentID, &c.Name, &c.Type, &c.Mode, &c.Enabled, &c.Retired, &c.DefinedInCode,
		&config, &c.Sealed, &c.RequireAuthentication, &c.TimeoutSeconds, &c.FilesRequired, document{&c.Secrets}, &grace,
		&c.Version, at(&c.CreatedAt), at(&c.UpdatedAt),
		&c.Ref.ClusterUID, &c.Ref.Namespace, &c.Ref.Kind, &c.Ref.Name, &c.Ref.ObjectUID, &c.Ref.Generation,
	}
	return dest, func() {
		if config != "" {
			c.Config = []byte(config)
		}
		c.SecretGracePeriod = time.Duration(grace) * time.Microsecond
		for _, s := range c.Secrets {
			if s.NotAfter == nil {
				c.SecretDigest = s.SHA256
			}
		}
	}
}

func scanConnector(row scanner) (c store.Connector, err error) {
	dest, finish := connectorFields(&c)
	if err = row.Scan(dest...); err == nil {
		finish()
	}
	return c, err
}

// Connector implements store.Catalog.
func (c *Core) Connector(ctx context.Context, id uuid.UUID) (store.Connector, error) {
	connector, err := scanConnector(c.engine.Reader().QueryRowContext(ctx,
		`SELECT `+connectorColumns+` FROM `+connectorTables+` WHERE c.id = $1`, id))
	return connector, wrap(found(err), "reading connector %s", id)
}

// PutConnector implements store.Projector.
func (c *Core) PutConnector(ctx context.Context, connector store.Connector) error {
	return c.Write(ctx, func(ctx context.Context, tx *Tx) error {
		return c.putConnector(ctx, tx, connector)
	})
}

func (c *Core) putConnector(ctx context.Context, tx *Tx, connector store.Connector) error {
	if err := c.claim(ctx, tx, connector.Ref, connector.ID, connector.ProjectID); err != nil {
		return err
	}
	err := writeConnector(ctx, tx, connector)
	return wrap(err, "projecting %s", connector.Ref)
}

// writeConnector writes a connector whose id is claimed, if it changed.
func writeConnector(ctx context.Context, tx *Tx, connector store.Connector) error {
	var now time.Time
	if err := tx.QueryRowContext(ctx, `SELECT now_us()`).Scan(at(&now)); err != nil {
		return err
	}
	// Enabled is read as written here, not as it is in effect.
	stored, err := scanConnector(tx.QueryRowContext(ctx, `SELECT `+connectorColumns+`
		FROM connectors c JOIN claims k ON k.id = c.id CROSS JOIN (SELECT 1 AS id) e WHERE c.id = $1`, connector.ID))
	if err := found(err); err != nil && !errors.Is(err, store.ErrNotFound) {
		return fmt.Errorf("reading what is stored: %w", err)
	}
	connector.Name = Text(connector.Name)
	connector.Config = []byte(Text(string(connector.Config)))
	connector.Secrets = store.RotateSecrets(stored.Secrets, connector.SecretDigest, connector.SecretGracePeriod, now)
	if err == nil && sameConnector(stored, connector) {
		return nil
	}
	secrets, err := marshalled(connector.Secrets)
	if err != nil {
		return err
	}
	_, err = tx.exec(ctx, `INSERT INTO connectors (id, project_id, environment_id, name, type, mode, enabled, retired,
			defined_in_code, config, sealed, require_authentication, timeout_seconds, files_required, secrets,
			secret_grace_us, version, created_at, updated_at)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, now_us(), now_us(), now_us())
		ON CONFLICT (id) DO UPDATE SET project_id = excluded.project_id, environment_id = excluded.environment_id,
			name = excluded.name, type = excluded.type, mode = excluded.mode, enabled = excluded.enabled,
			retired = excluded.retired, defined_in_code = excluded.defined_in_code, config = excluded.config,
			sealed = excluded.sealed, require_authentication = excluded.require_authentication,
			timeout_seconds = excluded.timeout_seconds, files_required = excluded.files_required,
			secrets = excluded.secrets, secret_grace_us = excluded.secret_grace_us,
			version = `+nextVersion+`, updated_at = excluded.updated_at`,
		connector.ID, connector.ProjectID, connector.EnvironmentID, connector.Name, connector.Type, connector.Mode,
		connector.Enabled, connector.Retired, connector.DefinedInCode, string(connector.Config), connector.Sealed,
		connector.RequireAuthentication, connector.TimeoutSeconds, connector.FilesRequired, secrets,
		connector.SecretGracePeriod.Microseconds())
	tx.Hint(store.TopicRoute, connector.ID)
	return err
}

// nextVersion raises a connector's version. Versions are times where they can
// be, so that a connector that is removed and made again under its old id never
// comes back to a version that some gateway remembers.
const nextVersion = `CASE WHEN connectors.version >= now_us() THEN connectors.version + 1 ELSE now_us() END`

func sameConnector(a, b store.Connector) bool {
	return a.ProjectID == b.ProjectID && a.EnvironmentID == b.EnvironmentID && a.Name == b.Name && a.Type == b.Type &&
		a.Mode == b.Mode && a.Enabled == b.Enabled && a.Retired == b.Retired && a.DefinedInCode == b.DefinedInCode &&
		bytes.Equal(a.Config, b.Config) && bytes.Equal(a.Sealed, b.Sealed) &&
		a.RequireAuthentication == b.RequireAuthentication && a.TimeoutSeconds == b.TimeoutSeconds &&
		a.FilesRequired == b.FilesRequired &&
		a.SecretGracePeriod.Truncate(time.Microsecond) == b.SecretGracePeriod.Truncate(time.Microsecond) &&
		slices.EqualFunc(a.Secrets, b.Secrets, func(x, y store.AcceptedSecret) bool {
			return bytes.Equal(x.SHA256, y.SHA256) && (x.NotAfter == nil) == (y.NotAfter == nil) &&
				(x.NotAfter == nil || x.NotAfter.Equal(*y.NotAfter))
		})
}

// bumpConnectors raises the version of the connectors that a condition names.
func bumpConnectors(ctx context.Context, tx *Tx, condition string, args ...any) error {
	ids, err := collect(ctx, tx, scanID,
		`UPDATE connectors SET version = `+nextVersion+`, updated_at = now_us() WHERE `+condition+` RETURNING id`, args...)
	for _, id := range ids {
		tx.Hint(store.TopicRoute, id)
	}
	return wrap(err, "raising the version of connectors")
}

// removeConnector deletes a connector with its links; its runs stay.
func removeConnector(ctx context.Context, tx *Tx, id uuid.UUID) error {
	if _, err := tx.exec(ctx, `DELETE FROM claims WHERE id IN (SELECT id FROM links WHERE connector_id = $1)`, id); err != nil {
		return err
	}
	if _, err := tx.exec(ctx, `DELETE FROM links WHERE connector_id = $1`, id); err != nil {
		return err
	}
	_, err := tx.exec(ctx, `DELETE FROM connectors WHERE id = $1`, id)
	tx.Hint(store.TopicRoute, id)
	return err
}
