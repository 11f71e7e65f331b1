// SPDX-License-Identifier: Apache-2.0

// Package connectorrow reads rows of connectors and links.
package connectorrow

import (
	"context"
	"strconv"
	"strings"
	"time"

	"github.com/agentplatform/agentplatform/store"
	"github.com/agentplatform/agentplatform/store/object"
	"github.com/agentplatform/agentplatform/store/sqldb"
)

// connectorColumns are columns of connectors c with the objects k that hold their IDs, environments
// e and projects pr. A connector is enabled only while both exist.
const connectorColumns = `c.id, c.project_id, c.environment_id, c.name, c.type, c.mode,
	c.enabled AND e.id IS NOT NULL AND pr.project_id IS NOT NULL, e.id IS NULL, c.retired, c.defined_in_code, c.config, c.sealed, c.secret_version, c.secret_key, c.sealed_key, c.secrets, c.secret_grace_us,
	c.deployment_id, c.version, c.created_at, c.updated_at, ` + object.RefColumns

// Sends is the condition that a connector c sends results, as store.Connector.Sends.
const Sends = `c.mode = 'outbound'`

// validityColumns determine the valid secrets: the time, and the ends of revoked keys as
// id=microseconds,…
const validityColumns = `, now_us(), COALESCE((SELECT string_agg(p.id || '=' || p.ends_at, ',')
	FROM platform_keys p WHERE p.ends_at IS NOT NULL), '')`

// selectConnectors selects connectors in effect, SelectOne one of them.
const (
	selectConnectors = `SELECT ` + connectorColumns + validityColumns + `
	FROM connectors c JOIN object_ids k ON k.project_id = c.project_id AND k.id = c.id
	LEFT JOIN environments e ON e.project_id = c.project_id AND e.id = c.environment_id
	LEFT JOIN projects pr ON pr.project_id = c.project_id
	WHERE NOT c.shadowed`
	SelectOne = selectConnectors + ` AND c.project_id = $1 AND c.id = $2`
)

// SelectAllWritten selects all connectors of a project as they were written, enabled or not, in
// effect or not, with all secrets, expired or not. SelectWritten selects one of them.
const (
	SelectAllWritten = `SELECT c.shadowed, ` + connectorColumns + `, 0, ''
	FROM connectors c JOIN object_ids k ON k.project_id = c.project_id AND k.id = c.id
	CROSS JOIN (SELECT 1 AS id) e CROSS JOIN (SELECT 1 AS project_id) pr
	WHERE c.project_id = $1`
	SelectWritten = SelectAllWritten + ` AND c.id = $2`
)

// connectorFields returns the destinations of connectorColumns and validityColumns. Call finish
// after scanning.
func connectorFields(c *store.Connector) (dest []any, finish func()) {
	var (
		config, ends string
		grace        int64
		now          time.Time
	)
	dest = append([]any{
		&c.ID, &c.ProjectID, &c.EnvironmentID, &c.Name, &c.Type, &c.Mode, &c.Enabled, &c.EnvironmentGone, &c.Retired, &c.DefinedInCode,
		&config, &c.Sealed, &c.SecretVersion, &c.SecretKey, &c.SealedKey, sqldb.ScanJSON(&c.Secrets), &grace, &c.DeploymentID, &c.Version, sqldb.ScanTime(&c.CreatedAt), sqldb.ScanTime(&c.UpdatedAt),
	}, object.RefFields(&c.Ref)...)
	dest = append(dest, sqldb.ScanTime(&now), &ends)
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
		c.Secrets = store.AcceptedAt(c.Secrets, parseEnds(ends), now)
	}
}

// Scan reads a connector, after the columns in before.
func Scan(row sqldb.Scanner, before ...any) (c store.Connector, err error) {
	dest, finish := connectorFields(&c)
	if err = row.Scan(append(before, dest...)...); err == nil {
		finish()
	}
	return c, sqldb.MapNoRows(err)
}

// ByKeys reads connectors by their keys.
func ByKeys(ctx context.Context, db *sqldb.DB, q sqldb.Queryer, keys []store.Key) (map[store.Key]store.Connector, error) {
	var l sqldb.Args
	all, err := sqldb.Collect(ctx, q, func(row sqldb.Scanner) (store.Connector, error) { return Scan(row) },
		selectConnectors+` AND `+db.KeyCondition(&l, "c.id", keys), l.Values...)
	of := map[store.Key]store.Connector{}
	for _, connector := range all {
		of[connector.Key()] = connector
	}
	return of, err
}

// parseEnds parses id=microseconds,…
func parseEnds(text string) store.KeyEnds {
	ends := store.KeyEnds{}
	for _, entry := range strings.Split(text, ",") {
		id, end, _ := strings.Cut(entry, "=")
		if us, err := strconv.ParseInt(end, 10, 64); err == nil {
			ends[id] = time.UnixMicro(us).UTC()
		}
	}
	return ends
}
