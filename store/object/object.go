// SPDX-License-Identifier: Apache-2.0

// Package object has the claims of IDs by Kubernetes objects.
package object

import (
	"context"

	"github.com/agentplatform/agentplatform/store"
	"github.com/agentplatform/agentplatform/store/sqldb"
)

// Claim is a row of object_ids: an ID and the object that holds it.
type Claim struct {
	Key store.Key
	Ref store.ObjectRef
	// writes counts the writes of the row.
	writes int64
	// adopted means that the store was adopted, and no object of the new cluster has taken over the
	// row yet.
	adopted bool
}

// RefColumns are the columns of the object in object_ids k.
const RefColumns = `k.namespace, k.kind, k.name, k.object_uid, k.generation`

// RefFields are the destinations of RefColumns.
func RefFields(r *store.ObjectRef) []any {
	return []any{&r.Namespace, &r.Kind, &r.Name, &r.ObjectUID, &r.Generation}
}

// Select selects claims k.
const Select = `SELECT k.project_id, k.id, k.writes, k.adopted, ` + RefColumns + ` FROM object_ids k `

// Scan scans a row of Select.
func Scan(row sqldb.Scanner) (i Claim, err error) {
	err = row.Scan(append([]any{&i.Key.ProjectID, &i.Key.ID, &i.writes, &i.adopted}, RefFields(&i.Ref)...)...)
	return i, err
}

// Read returns the claim of an ID.
func Read(ctx context.Context, q sqldb.Queryer, key store.Key) (Claim, error) {
	i, err := Scan(q.QueryRowContext(ctx, Select+`WHERE k.project_id = $1 AND k.id = $2`,
		key.ProjectID, key.ID))
	return i, sqldb.MapNoRows(err)
}

// NamesObject reports whether the ID belongs to this very object, and no newer state is known.
func (i Claim) NamesObject(ref store.ObjectRef) bool {
	return i.Ref.SameObject(ref) && i.Ref.ObjectUID == ref.ObjectUID && !i.adopted && i.Ref.Generation <= ref.Generation
}

// ClaimedBy returns the row after the object has claimed it again. departed means that this is
// another incarnation, and the deletion of the previous one was missed.
func (i Claim) ClaimedBy(ref store.ObjectRef) (next Claim, departed bool, err error) {
	next = Claim{Key: i.Key, Ref: ref}
	switch {
	case ref.ObjectUID == "":
		next.Ref = i.Ref
	case i.Ref.ObjectUID == "":
	case i.Ref.ObjectUID != ref.ObjectUID:
		departed = true
	case ref.Generation < i.Ref.Generation && ref.Restored != i.writes:
		err = &store.StaleError{Stored: i.Ref.Generation, Writes: i.writes}
	}
	return next, departed, err
}

// Write writes a claim.
func Write(ctx context.Context, tx *sqldb.Tx, i Claim) error {
	_, err := tx.Exec(ctx, `INSERT INTO object_ids
		(project_id, id, cluster_uid, namespace, kind, name, object_uid, generation, writes, adopted)
		VALUES ($1, $2, COALESCE((SELECT cluster_uid FROM cluster_lease WHERE id = 1), ''), $3, $4, $5, $6, $7, 1, FALSE)
		ON CONFLICT (project_id, id) DO UPDATE SET cluster_uid = excluded.cluster_uid, object_uid = excluded.object_uid,
			generation = excluded.generation, writes = object_ids.writes + 1, adopted = FALSE`,
		i.Key.ProjectID, i.Key.ID, i.Ref.Namespace, i.Ref.Kind, i.Ref.Name, i.Ref.ObjectUID, i.Ref.Generation)
	return sqldb.Wrap(err, "claiming the ID of %s", i.Ref)
}

// RecordDeletion records the deletion of an object whose rollups and builds stay as long as its history. An
// object that is re-created with the same ID gets them back.
func RecordDeletion(ctx context.Context, tx *sqldb.Tx, kind string, key store.Key) error {
	return RecordNamedDeletion(ctx, tx, kind, key, "")
}

// RecordNamedDeletion also records the name, which is shown with the remaining rows.
func RecordNamedDeletion(ctx context.Context, tx *sqldb.Tx, kind string, key store.Key, name string) error {
	_, err := tx.Exec(ctx, `INSERT INTO departed (project_id, kind, id, gone_at, name) VALUES ($1, $2, $3, now_us(), $4)
		ON CONFLICT (project_id, kind, id) DO UPDATE SET gone_at = excluded.gone_at,
			name = CASE WHEN excluded.name = '' THEN departed.name ELSE excluded.name END`, key.ProjectID, kind, key.ID, name)
	return sqldb.Wrap(err, "recording the deletion")
}
