// SPDX-License-Identifier: Apache-2.0

package sqlcore

import (
	"context"
	"errors"
	"slices"

	"github.com/agentplatform/agentplatform/store"
)

// errStaleRead means that a read returned older data than the database that is written to.
var errStaleRead = errors.New("a connection reads stale data from a replica or a former primary; let all connections lead to the primary")

// checkMissingRows returns errStaleRead if a history row exists that an earlier read did not find. A
// consumer does nothing for missing rows, so the transaction that takes the outbox row verifies this:
// the read may have used another server.
func (c *Core) checkMissingRows(ctx context.Context, tx *Tx, table string, missing []store.Key, narrow string) error {
	parts, err := c.groupByExistingPart(ctx, tx, table, missing)
	if err != nil {
		return err
	}
	for _, same := range parts {
		for some := range slices.Chunk(same, maxKeys) {
			var l argList
			there, err := collect(ctx, tx, scanUUID, c.InPart(`SELECT r.id FROM {`+table+`} r WHERE `+c.keyCondition(&l, "r.id", some)+narrow+` LIMIT 1`, some[0].ID), l.args...)
			if err != nil {
				return err
			}
			if len(there) > 0 {
				return errStaleRead
			}
		}
	}
	return nil
}

// groupByExistingPart groups keys by partition, without deleted partitions, because naming one would
// abort the transaction.
func (c *Core) groupByExistingPart(ctx context.Context, q Queryer, table string, keys []store.Key) (parts [][]store.Key, err error) {
	for _, same := range c.keysByPart(table, keys) {
		there, err := c.engine.HasPart(ctx, q, table, same[0].ID)
		if err != nil {
			return nil, wrap(err, "checking for a partition of %s", table)
		}
		if there {
			parts = append(parts, same)
		}
	}
	return parts, nil
}

func compareKeyIDs(a, b store.Key) int { return compareIDs(a.ID, b.ID) }

// keysInSet returns the keys that are in a set.
func keysInSet(keys []store.Key, set map[store.Key]bool) []store.Key {
	return slices.DeleteFunc(slices.Clone(keys), func(key store.Key) bool { return !set[key] })
}

// keyedRow is a row with a key.
type keyedRow interface{ primaryKey() store.Key }

func (t rollupRun) primaryKey() store.Key         { return t.Key }
func (r endedRun) primaryKey() store.Key          { return r.Key }
func (r endedConnectorRun) primaryKey() store.Key { return r.Key }
func (e indexedRun) primaryKey() store.Key        { return e.Key }

// keysWithoutRow returns the keys without a row.
func keysWithoutRow[R keyedRow](keys []store.Key, rows []R) []store.Key {
	found := map[store.Key]bool{}
	for _, row := range rows {
		found[row.primaryKey()] = true
	}
	return slices.DeleteFunc(slices.Clone(keys), func(key store.Key) bool { return found[key] })
}
