// SPDX-License-Identifier: Apache-2.0

package sqldb

import (
	"bytes"
	"cmp"
	"slices"

	"github.com/google/uuid"

	"github.com/agentplatform/agentplatform/store"
)

// CompareKeys is the lock order of rows: by project, then by ID.
func CompareKeys(a, b store.Key) int {
	return cmp.Or(CompareIDs(a.ProjectID, b.ProjectID), CompareIDs(a.ID, b.ID))
}

// CompareIDs orders IDs bytewise, as the databases do.
func CompareIDs(a, b uuid.UUID) int { return bytes.Compare(a[:], b[:]) }

// KeysByPart groups keys by the partition of their rows.
func (d *DB) KeysByPart(table string, keys []store.Key) [][]store.Key {
	return groupByPart(d, table, keys, func(key store.Key) uuid.UUID { return key.ID })
}

// IDsByPart groups IDs by the partition of a history table.
func (d *DB) IDsByPart(table string, ids []uuid.UUID) [][]uuid.UUID {
	return groupByPart(d, table, ids, func(id uuid.UUID) uuid.UUID { return id })
}

func groupByPart[T any](d *DB, table string, all []T, id func(T) uuid.UUID) (parts [][]T) {
	at := map[string]int{}
	for _, one := range all {
		part := d.Part(table, id(one))
		i, ok := at[part]
		if !ok {
			i, at[part] = len(parts), len(parts)
			parts = append(parts, nil)
		}
		parts[i] = append(parts[i], one)
	}
	return parts
}

// CompareKeyIDs orders keys of one project by their IDs.
func CompareKeyIDs(a, b store.Key) int { return CompareIDs(a.ID, b.ID) }

// KeysFromIDs returns the keys of IDs of a project.
func KeysFromIDs(project uuid.UUID, ids []uuid.UUID) []store.Key {
	keys := make([]store.Key, len(ids))
	for i, id := range ids {
		keys[i] = store.Key{ProjectID: project, ID: id}
	}
	return keys
}

// NewKeySet returns a set of keys.
func NewKeySet(keys []store.Key) map[store.Key]bool {
	set := make(map[store.Key]bool, len(keys))
	for _, key := range keys {
		set[key] = true
	}
	return set
}

// KeysInSet returns the keys that are in a set.
func KeysInSet(keys []store.Key, set map[store.Key]bool) []store.Key {
	return slices.DeleteFunc(slices.Clone(keys), func(key store.Key) bool { return !set[key] })
}

// KeyedRow is a row with a key.
type KeyedRow interface{ PrimaryKey() store.Key }

// KeysWithoutRow returns the keys without a row.
func KeysWithoutRow[R KeyedRow](keys []store.Key, rows []R) []store.Key {
	found := map[store.Key]bool{}
	for _, row := range rows {
		found[row.PrimaryKey()] = true
	}
	return slices.DeleteFunc(slices.Clone(keys), func(key store.Key) bool { return found[key] })
}
