// SPDX-License-Identifier: Apache-2.0

package sqlcore

import (
	"context"
	"errors"
	"fmt"

	"github.com/google/uuid"

	"github.com/agentplatform/agentplatform/store"
)

// claimed is a row of the claims.
type claimed struct {
	id, project uuid.UUID
	ref         store.ObjectRef
}

const selectClaims = `SELECT id, project_id, cluster_uid, namespace, kind, name, object_uid, generation FROM claims `

func scanClaim(row scanner) (c claimed, err error) {
	err = row.Scan(&c.id, &c.project, &c.ref.ClusterUID, &c.ref.Namespace, &c.ref.Kind, &c.ref.Name,
		&c.ref.ObjectUID, &c.ref.Generation)
	return c, err
}

func claimOf(ctx context.Context, q Queryer, id uuid.UUID) (claimed, error) {
	c, err := scanClaim(q.QueryRowContext(ctx, selectClaims+`WHERE id = $1`, id))
	return c, found(err)
}

func claimByName(ctx context.Context, q Queryer, ref store.ObjectRef) (claimed, error) {
	c, err := scanClaim(q.QueryRowContext(ctx,
		selectClaims+`WHERE cluster_uid = $1 AND namespace = $2 AND kind = $3 AND name = $4`,
		ref.ClusterUID, ref.Namespace, ref.Kind, ref.Name))
	return c, found(err)
}

// claim makes the id the object's. It locks the project, and applies the
// deletion of what the object's name or id stood for in an earlier incarnation.
// A ref without ObjectUID is of an object that is yet to be mirrored: it keeps
// what is known of the incarnation.
func (c *Core) claim(ctx context.Context, tx *Tx, ref store.ObjectRef, id, project uuid.UUID) error {
	if err := c.engine.Lock(ctx, tx, project); err != nil {
		return err
	}
	switch before, err := claimByName(ctx, tx, ref); {
	case errors.Is(err, store.ErrNotFound):
	case err != nil:
		return fmt.Errorf("looking for an earlier id of %s: %w", ref, err)
	case before.id != id:
		if err := c.removeObject(ctx, tx, before); err != nil {
			return err
		}
	}
	inserted, err := tx.exec(ctx, `INSERT INTO claims
		(id, project_id, cluster_uid, namespace, kind, name, object_uid, generation)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8) ON CONFLICT (id) DO NOTHING`,
		id, project, ref.ClusterUID, ref.Namespace, ref.Kind, ref.Name, ref.ObjectUID, ref.Generation)
	if err != nil || inserted == 1 {
		return wrap(err, "claiming the id of %s", ref)
	}
	holder, err := claimOf(ctx, tx, id)
	if err != nil {
		return fmt.Errorf("reading the holder of the id of %s: %w", ref, err)
	}
	return c.claimHeld(ctx, tx, holder, ref, project)
}

// claimHeld claims an id that has a holder.
func (c *Core) claimHeld(ctx context.Context, tx *Tx, holder claimed, ref store.ObjectRef, project uuid.UUID) error {
	switch {
	case !holder.ref.SameObject(ref):
		return &store.IDTakenError{Holder: holder.ref}
	case ref.ObjectUID == "":
		ref.ObjectUID, ref.Generation = holder.ref.ObjectUID, holder.ref.Generation
	case holder.ref.ObjectUID == "":
	case holder.ref.ObjectUID != ref.ObjectUID:
		if err := c.removeObject(ctx, tx, holder); err != nil {
			return err
		}
	case ref.Generation < holder.ref.Generation:
		return store.ErrStale
	}
	_, err := tx.exec(ctx, `INSERT INTO claims
		(id, project_id, cluster_uid, namespace, kind, name, object_uid, generation)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8)
		ON CONFLICT (id) DO UPDATE SET project_id = excluded.project_id, object_uid = excluded.object_uid,
			generation = excluded.generation`,
		holder.id, project, ref.ClusterUID, ref.Namespace, ref.Kind, ref.Name, ref.ObjectUID, ref.Generation)
	return wrap(err, "renewing the claim of %s", ref)
}

// Remove implements store.Projector.
func (c *Core) Remove(ctx context.Context, kind string, id uuid.UUID, ref store.ObjectRef) error {
	ref.Kind = kind
	look := func(ctx context.Context, q Queryer) (claimed, error) {
		if id == uuid.Nil {
			return claimByName(ctx, q, ref)
		}
		return claimOf(ctx, q, id)
	}
	return c.Write(ctx, func(ctx context.Context, tx *Tx) error {
		held, err := look(ctx, tx)
		if err == nil {
			if err = c.engine.Lock(ctx, tx, held.project); err == nil {
				held, err = look(ctx, tx) // again: it may have changed before the lock
			}
		}
		switch {
		case errors.Is(err, store.ErrNotFound):
			return nil
		case err != nil:
			return fmt.Errorf("looking for %s: %w", ref, err)
		case !held.ref.SameObject(ref), ref.ObjectUID != "" && held.ref.ObjectUID != "" && ref.ObjectUID != held.ref.ObjectUID:
			return nil
		}
		return c.removeObject(ctx, tx, held)
	})
}

// removeObject applies the effects of an object's deletion and frees its id.
func (c *Core) removeObject(ctx context.Context, tx *Tx, held claimed) error {
	var err error
	switch held.ref.Kind {
	case store.KindProject:
		_, err = tx.exec(ctx, `DELETE FROM projects WHERE id = $1`, held.id)
	case store.KindEnvironment:
		err = c.removeEnvironment(ctx, tx, held.id)
	case store.KindDeployment:
		err = cancelDeployments(ctx, tx, "the deployment was deleted", `id = $1`, held.id)
	case store.KindConnector:
		err = removeConnector(ctx, tx, held.id)
	case store.KindConnectorLink:
		err = removeLink(ctx, tx, held.id)
	default:
		err = fmt.Errorf("unknown kind %q", held.ref.Kind)
	}
	if err == nil {
		_, err = tx.exec(ctx, `DELETE FROM claims WHERE id = $1`, held.id)
	}
	return wrap(err, "removing %s", held.ref)
}

// ListProjected implements store.Sweeper.
func (c *Core) ListProjected(ctx context.Context, clusterUID string) ([]store.ProjectedObject, error) {
	rows, err := collect(ctx, c.engine.Reader(), func(row scanner) (store.ProjectedObject, error) {
		held, err := scanClaim(row)
		return store.ProjectedObject{Ref: held.ref, ID: held.id}, err
	}, selectClaims+`WHERE cluster_uid = $1 AND object_uid <> '' ORDER BY namespace, kind, name`, clusterUID)
	return rows, wrap(err, "listing the projection of a cluster")
}

// wrap adds what was being done to an error; nil stays nil.
func wrap(err error, format string, args ...any) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf(format+": %w", append(args, err)...)
}
