// SPDX-License-Identifier: Apache-2.0

package sqlcore

import (
	"context"
	"errors"
	"slices"

	"github.com/agentplatform/agentplatform/store"
)

// errBehind says that what was read is older than what is written to.
var errBehind = errors.New("a connection reads from a database that is behind the one that is written to, as a replica is, or a primary that was: let all of them lead to the primary")

// checkGone is errBehind if a row of history is there that was not found before the transaction, by
// a reading of its own. Who consumes a row of an outbox has nothing to do for what is gone: it is the
// transaction that takes the row which says so, for another connection may read another server.
func (c *Core) checkGone(ctx context.Context, tx *Tx, table string, missing []store.Key, narrow string) error {
	for _, same := range c.keysByPart(table, missing) {
		for some := range slices.Chunk(same, maxKeys) {
			first, last := slices.MinFunc(some, compareKeyIDs).ID, slices.MaxFunc(some, compareKeyIDs).ID
			l := list{args: []any{first, last}} // by which no other part is looked into
			there, err := collect(ctx, tx, scanID, `SELECT r.id FROM `+table+` r WHERE r.id >= $1 AND r.id <= $2 AND `+c.keys(&l, "r.id", some)+narrow+` LIMIT 1`, l.args...)
			if err != nil {
				return err
			}
			if len(there) > 0 {
				return errBehind
			}
		}
	}
	return nil
}

// heldByPart are keys by the part of history that holds them, but for those whose part is gone: to
// name it would end a transaction.
func (c *Core) heldByPart(ctx context.Context, q Queryer, table string, keys []store.Key) (parts [][]store.Key, err error) {
	for _, same := range c.keysByPart(table, keys) {
		there, err := c.engine.HasPart(ctx, q, table, same[0].ID)
		if err != nil {
			return nil, wrap(err, "looking for a part of %s", table)
		}
		if there {
			parts = append(parts, same)
		}
	}
	return parts, nil
}

func compareKeyIDs(a, b store.Key) int { return compareIDs(a.ID, b.ID) }

// among are the keys that are in a set.
func among(keys []store.Key, set map[store.Key]bool) []store.Key {
	return slices.DeleteFunc(slices.Clone(keys), func(key store.Key) bool { return !set[key] })
}

// withKey is a row with a key.
type withKey interface{ rowKey() store.Key }

func (t tallied) rowKey() store.Key           { return t.Key }
func (r endedRun) rowKey() store.Key          { return r.Key }
func (r endedConnectorRun) rowKey() store.Key { return r.Key }
func (e indexedRun) rowKey() store.Key        { return e.Key }

// notAmong are the keys of no row.
func notAmong[R withKey](keys []store.Key, rows []R) []store.Key {
	found := map[store.Key]bool{}
	for _, row := range rows {
		found[row.rowKey()] = true
	}
	return slices.DeleteFunc(slices.Clone(keys), func(key store.Key) bool { return found[key] })
}
