// SPDX-License-Identifier: Apache-2.0

package sqldb

import (
	"context"
	"errors"
	"slices"

	"github.com/agentplatform/agentplatform/store"
)

// errStaleRead means that a read returned older data than the database that is written to.
var errStaleRead = errors.New("a connection reads stale data from a replica or a former primary; let all connections lead to the primary")

// CheckMissingRows returns errStaleRead if a history row exists that an earlier read did not find. A
// consumer does nothing for missing rows, so the transaction that takes the outbox row verifies this:
// the read may have used another server.
func (d *DB) CheckMissingRows(ctx context.Context, tx *Tx, table string, missing []store.Key, narrow string) error {
	parts, err := d.GroupByExistingPart(ctx, tx, table, missing)
	if err != nil {
		return err
	}
	for _, same := range parts {
		for some := range slices.Chunk(same, MaxKeys) {
			var l Args
			there, err := Collect(ctx, tx, ScanUUID, d.InPart(`SELECT r.id FROM {`+table+`} r WHERE `+d.KeyCondition(&l, "r.id", some)+narrow+` LIMIT 1`, some[0].ID), l.Values...)
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

// GroupByExistingPart groups keys by partition, without deleted partitions, because naming one would
// abort the transaction.
func (d *DB) GroupByExistingPart(ctx context.Context, q Queryer, table string, keys []store.Key) (parts [][]store.Key, err error) {
	for _, same := range d.KeysByPart(table, keys) {
		there, err := d.HasPart(ctx, q, table, same[0].ID)
		if err != nil {
			return nil, Wrap(err, "checking for a partition of %s", table)
		}
		if there {
			parts = append(parts, same)
		}
	}
	return parts, nil
}
