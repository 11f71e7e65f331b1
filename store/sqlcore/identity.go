// SPDX-License-Identifier: Apache-2.0

package sqlcore

import (
	"context"
	"errors"
	"fmt"

	"github.com/google/uuid"

	"github.com/agentplatform/agentplatform/store"
	"github.com/agentplatform/agentplatform/store/sqldb"
)

// identity is a row of object_ids: an ID and the object that holds it.
type identity struct {
	key store.Key
	ref store.ObjectRef
	// writes counts the writes of the row.
	writes int64
	// adopted means that the store was adopted, and no object of the new cluster has taken over the
	// row yet.
	adopted bool
}

// refColumns are the columns of the object in object_ids k.
const refColumns = `k.namespace, k.kind, k.name, k.object_uid, k.generation`

// refFields are the destinations of refColumns.
func refFields(r *store.ObjectRef) []any {
	return []any{&r.Namespace, &r.Kind, &r.Name, &r.ObjectUID, &r.Generation}
}

const selectIdentities = `SELECT k.project_id, k.id, k.writes, k.adopted, ` + refColumns + ` FROM object_ids k `

func scanIdentity(row sqldb.Scanner) (i identity, err error) {
	err = row.Scan(append([]any{&i.key.ProjectID, &i.key.ID, &i.writes, &i.adopted}, refFields(&i.ref)...)...)
	return i, err
}

func identityOf(ctx context.Context, q sqldb.Queryer, key store.Key) (identity, error) {
	i, err := scanIdentity(q.QueryRowContext(ctx, selectIdentities+`WHERE k.project_id = $1 AND k.id = $2`,
		key.ProjectID, key.ID))
	return i, sqldb.MapNoRows(err)
}

// ClaimID implements store.Projector. It reads first, because the object usually has the ID
// already.
func (c *Core) ClaimID(ctx context.Context, key store.Key, ref store.ObjectRef) error {
	held, err := identityOf(ctx, c.engine.Reader(), key)
	if err == nil && held.namesObject(ref) {
		return nil
	}
	if err != nil && !errors.Is(err, store.ErrNotFound) {
		return fmt.Errorf("reading the claim of %s: %w", ref, err)
	}
	return c.Write(ctx, func(ctx context.Context, tx *sqldb.Tx) error { return c.claimID(ctx, tx, key, ref) })
}

// namesObject reports whether the ID belongs to this very object, and no newer state is known.
func (i identity) namesObject(ref store.ObjectRef) bool {
	return i.ref.SameObject(ref) && i.ref.ObjectUID == ref.ObjectUID && !i.adopted && i.ref.Generation <= ref.Generation
}

// claimID claims the ID for the object. It locks the project, and applies the deletion of an
// earlier incarnation with the object's name or ID. A ref without ObjectUID is an object that is
// not mirrored yet: it keeps the recorded incarnation.
func (c *Core) claimID(ctx context.Context, tx *sqldb.Tx, key store.Key, ref store.ObjectRef) error {
	if err := c.engine.Lock(ctx, tx, key.ProjectID); err != nil {
		return err
	}
	// One row may have the ID, another the name.
	rows, err := sqldb.Collect(ctx, tx, scanIdentity,
		selectIdentities+`WHERE k.project_id = $1 AND (k.id = $2 OR k.kind = $3 AND k.name = $4)`,
		key.ProjectID, key.ID, ref.Kind, ref.Name)
	if err != nil {
		return fmt.Errorf("reading the holder of the ID of %s: %w", ref, err)
	}
	next := identity{key: key, ref: ref}
	for _, row := range rows {
		departed := row.key.ID != key.ID
		switch {
		case !row.ref.SameObject(ref):
			return &store.IDTakenError{Holder: row.ref}
		case !departed:
			if next, departed, err = row.claimedBy(ref); err != nil {
				return err
			}
		}
		if !departed {
			continue
		}
		stays, err := c.applyDeletion(ctx, tx, row)
		if err != nil {
			return err
		}
		if stays && row.key.ID != key.ID {
			return &store.IDTakenError{Holder: row.ref}
		}
	}
	return writeIdentity(ctx, tx, next)
}

// claimedBy returns the row after the object has claimed it again. departed means that this is
// another incarnation, and the deletion of the previous one was missed.
func (i identity) claimedBy(ref store.ObjectRef) (next identity, departed bool, err error) {
	next = identity{key: i.key, ref: ref}
	switch {
	case ref.ObjectUID == "":
		next.ref = i.ref
	case i.ref.ObjectUID == "":
	case i.ref.ObjectUID != ref.ObjectUID:
		departed = true
	case ref.Generation < i.ref.Generation && ref.Restored != i.writes:
		err = &store.StaleError{Stored: i.ref.Generation, Writes: i.writes}
	}
	return next, departed, err
}

func writeIdentity(ctx context.Context, tx *sqldb.Tx, i identity) error {
	_, err := tx.Exec(ctx, `INSERT INTO object_ids
		(project_id, id, cluster_uid, namespace, kind, name, object_uid, generation, writes, adopted)
		VALUES ($1, $2, COALESCE((SELECT cluster_uid FROM cluster_lease WHERE id = 1), ''), $3, $4, $5, $6, $7, 1, FALSE)
		ON CONFLICT (project_id, id) DO UPDATE SET cluster_uid = excluded.cluster_uid, object_uid = excluded.object_uid,
			generation = excluded.generation, writes = object_ids.writes + 1, adopted = FALSE`,
		i.key.ProjectID, i.key.ID, i.ref.Namespace, i.ref.Kind, i.ref.Name, i.ref.ObjectUID, i.ref.Generation)
	return sqldb.Wrap(err, "claiming the ID of %s", i.ref)
}

// Remove implements store.Projector.
func (c *Core) Remove(ctx context.Context, projectID uuid.UUID, ref store.ObjectRef) error {
	return c.Write(ctx, func(ctx context.Context, tx *sqldb.Tx) error {
		if err := c.engine.Lock(ctx, tx, projectID); err != nil {
			return err
		}
		held, err := scanIdentity(tx.QueryRowContext(ctx,
			selectIdentities+`WHERE k.project_id = $1 AND k.kind = $2 AND k.name = $3`, projectID, ref.Kind, ref.Name))
		switch err = sqldb.MapNoRows(err); {
		case errors.Is(err, store.ErrNotFound):
			return nil
		case err != nil:
			return fmt.Errorf("reading %s: %w", ref, err)
		case !held.ref.SameObject(ref), held.ref.ObjectUID != "" && ref.ObjectUID != held.ref.ObjectUID:
			return nil
		}
		_, err = c.applyDeletion(ctx, tx, held)
		return err
	})
}

// applyDeletion applies the deletion of an object. A live connector in code stays with everything it has
// and waits for its new mirror, because its secrets are in effect.
func (c *Core) applyDeletion(ctx context.Context, tx *sqldb.Tx, held identity) (stays bool, err error) {
	if held.ref.Kind == store.KindConnector {
		n, err := tx.Exec(ctx, `UPDATE object_ids SET object_uid = '', generation = 0, adopted = FALSE, writes = writes + 1
			WHERE project_id = $1 AND id = $2 AND EXISTS (SELECT 1 FROM connectors c
				WHERE c.project_id = $1 AND c.id = $2 AND c.defined_in_code AND NOT c.retired)`, held.key.ProjectID, held.key.ID)
		if err != nil || n > 0 {
			return n > 0, sqldb.Wrap(err, "taking %s off its connector", held.ref)
		}
	}
	return false, c.removeObject(ctx, tx, held)
}

// removeObject applies the effects of an object's deletion and frees its ID.
func (c *Core) removeObject(ctx context.Context, tx *sqldb.Tx, held identity) error {
	var err error
	switch held.ref.Kind {
	case store.KindProject:
		err = removeProject(ctx, tx, held.key.ProjectID)
	case store.KindEnvironment:
		if err = releasePosition(ctx, tx, held.key); err == nil {
			err = c.removeEnvironment(ctx, tx, held.key)
		}
	case store.KindDeployment:
		if err = cancelDeployments(ctx, tx, held.key.ProjectID, deletedMessage, `id = $2`, held.key.ID); err == nil {
			err = recordDeletion(ctx, tx, store.KindDeployment, held.key)
		}
	case store.KindConnector:
		err = removeConnector(ctx, tx, held.key)
	case store.KindConnectorLink:
		err = removeLink(ctx, tx, held.key)
	case store.KindAPIKey: // only an ID
	default:
		err = fmt.Errorf("unknown kind %q", held.ref.Kind)
	}
	if err == nil {
		err = releaseID(ctx, tx, held.key)
	}
	return sqldb.Wrap(err, "removing %s", held.ref)
}

func releaseID(ctx context.Context, tx *sqldb.Tx, key store.Key) error {
	_, err := tx.Exec(ctx, `DELETE FROM object_ids WHERE project_id = $1 AND id = $2`, key.ProjectID, key.ID)
	return err
}

// ListProjected implements store.Sweeper.
func (c *Core) ListProjected(ctx context.Context) ([]store.ProjectedObject, error) {
	objects, err := sqldb.Collect(ctx, c.engine.Reader(), scanProjected,
		selectIdentities+`WHERE k.object_uid <> '' OR k.adopted ORDER BY k.project_id, k.kind, k.name`)
	return objects, sqldb.Wrap(err, "listing the projection")
}

func scanProjected(row sqldb.Scanner) (store.ProjectedObject, error) {
	i, err := scanIdentity(row)
	return store.ProjectedObject{Key: i.key, Ref: i.ref}, err
}

// Holder implements store.Catalog.
func (c *Core) Holder(ctx context.Context, key store.Key) (store.ObjectRef, error) {
	i, err := identityOf(ctx, c.engine.Reader(), key)
	return i.ref, sqldb.Wrap(err, "reading the holder of ID %s", key)
}

// Holders implements store.Catalog.
func (c *Core) Holders(ctx context.Context, projectID uuid.UUID, kind string) ([]store.ProjectedObject, error) {
	objects, err := sqldb.Collect(ctx, c.engine.Reader(), scanProjected,
		selectIdentities+`WHERE k.project_id = $1 AND k.kind = $2 ORDER BY k.name`, projectID, kind)
	return objects, sqldb.Wrap(err, "listing the ID holders of project %s", projectID)
}
