// SPDX-License-Identifier: Apache-2.0

// Package projection stores the projection of Kubernetes objects: projects, environments, connectors and links, and which
// deployment is live.
package projection

import (
	"context"
	"errors"
	"fmt"

	"github.com/google/uuid"

	"github.com/agentplatform/agentplatform/store"
	"github.com/agentplatform/agentplatform/store/deployment"
	"github.com/agentplatform/agentplatform/store/object"
	"github.com/agentplatform/agentplatform/store/sqldb"
)

// Store writes the projection.
type Store struct {
	db *sqldb.DB
	// cancelOpen cancels the open runs of an environment that is deleted.
	cancelOpen func(ctx context.Context, tx *sqldb.Tx, environment store.Key) error
}

// New returns a Store.
func New(db *sqldb.DB, cancelOpen func(ctx context.Context, tx *sqldb.Tx, environment store.Key) error) *Store {
	return &Store{db: db, cancelOpen: cancelOpen}
}

// ClaimID implements store.Projector. It reads first, because the object usually has the ID
// already.
func (s *Store) ClaimID(ctx context.Context, key store.Key, ref store.ObjectRef) error {
	held, err := object.Read(ctx, s.db.Reader(), key)
	if err == nil && held.NamesObject(ref) {
		return nil
	}
	if err != nil && !errors.Is(err, store.ErrNotFound) {
		return fmt.Errorf("reading the claim of %s: %w", ref, err)
	}
	return s.db.Write(ctx, func(ctx context.Context, tx *sqldb.Tx) error { return s.ClaimIDInTx(ctx, tx, key, ref) })
}

// ClaimIDInTx claims the ID for the object. It locks the project, and applies the deletion of an
// earlier incarnation with the object's name or ID. A ref without ObjectUID is an object that is
// not mirrored yet: it keeps the recorded incarnation.
func (s *Store) ClaimIDInTx(ctx context.Context, tx *sqldb.Tx, key store.Key, ref store.ObjectRef) error {
	if err := s.db.Lock(ctx, tx, key.ProjectID); err != nil {
		return err
	}
	// One row may have the ID, another the name.
	rows, err := sqldb.Collect(ctx, tx, object.Scan,
		object.Select+`WHERE k.project_id = $1 AND (k.id = $2 OR k.kind = $3 AND k.name = $4)`,
		key.ProjectID, key.ID, ref.Kind, ref.Name)
	if err != nil {
		return fmt.Errorf("reading the holder of the ID of %s: %w", ref, err)
	}
	next := object.Claim{Key: key, Ref: ref}
	for _, row := range rows {
		departed := row.Key.ID != key.ID
		switch {
		case !row.Ref.SameObject(ref):
			return &store.IDTakenError{Holder: row.Ref}
		case !departed:
			if next, departed, err = row.ClaimedBy(ref); err != nil {
				return err
			}
		}
		if !departed {
			continue
		}
		stays, err := s.applyDeletion(ctx, tx, row)
		if err != nil {
			return err
		}
		if stays && row.Key.ID != key.ID {
			return &store.IDTakenError{Holder: row.Ref}
		}
	}
	return object.Write(ctx, tx, next)
}

// Remove implements store.Projector.
func (s *Store) Remove(ctx context.Context, projectID uuid.UUID, ref store.ObjectRef) error {
	return s.db.Write(ctx, func(ctx context.Context, tx *sqldb.Tx) error {
		if err := s.db.Lock(ctx, tx, projectID); err != nil {
			return err
		}
		held, err := object.Scan(tx.QueryRowContext(ctx,
			object.Select+`WHERE k.project_id = $1 AND k.kind = $2 AND k.name = $3`, projectID, ref.Kind, ref.Name))
		switch err = sqldb.MapNoRows(err); {
		case errors.Is(err, store.ErrNotFound):
			return nil
		case err != nil:
			return fmt.Errorf("reading %s: %w", ref, err)
		case !held.Ref.SameObject(ref), held.Ref.ObjectUID != "" && ref.ObjectUID != held.Ref.ObjectUID:
			return nil
		}
		_, err = s.applyDeletion(ctx, tx, held)
		return err
	})
}

// applyDeletion applies the deletion of an object. A live connector in code stays with everything it has
// and waits for its new mirror, because its secrets are in effect.
func (s *Store) applyDeletion(ctx context.Context, tx *sqldb.Tx, held object.Claim) (stays bool, err error) {
	if held.Ref.Kind == store.KindConnector {
		n, err := tx.Exec(ctx, `UPDATE object_ids SET object_uid = '', generation = 0, adopted = FALSE, writes = writes + 1
			WHERE project_id = $1 AND id = $2 AND EXISTS (SELECT 1 FROM connectors c
				WHERE c.project_id = $1 AND c.id = $2 AND c.defined_in_code AND NOT c.retired)`, held.Key.ProjectID, held.Key.ID)
		if err != nil || n > 0 {
			return n > 0, sqldb.Wrap(err, "taking %s off its connector", held.Ref)
		}
	}
	return false, s.removeObject(ctx, tx, held)
}

// removeObject applies the effects of an object's deletion and frees its ID.
func (s *Store) removeObject(ctx context.Context, tx *sqldb.Tx, held object.Claim) error {
	var err error
	switch held.Ref.Kind {
	case store.KindProject:
		err = removeProject(ctx, tx, held.Key.ProjectID)
	case store.KindEnvironment:
		if err = releasePosition(ctx, tx, held.Key); err == nil {
			err = s.removeEnvironment(ctx, tx, held.Key)
		}
	case store.KindDeployment:
		if err = deployment.Cancel(ctx, tx, held.Key.ProjectID, deployment.DeletedMessage, `id = $2`, held.Key.ID); err == nil {
			err = object.RecordDeletion(ctx, tx, store.KindDeployment, held.Key)
		}
	case store.KindConnector:
		err = removeConnector(ctx, tx, held.Key)
	case store.KindConnectorLink:
		err = removeLink(ctx, tx, held.Key)
	case store.KindAPIKey: // only an ID
	default:
		err = fmt.Errorf("unknown kind %q", held.Ref.Kind)
	}
	if err == nil {
		err = releaseID(ctx, tx, held.Key)
	}
	return sqldb.Wrap(err, "removing %s", held.Ref)
}

func releaseID(ctx context.Context, tx *sqldb.Tx, key store.Key) error {
	_, err := tx.Exec(ctx, `DELETE FROM object_ids WHERE project_id = $1 AND id = $2`, key.ProjectID, key.ID)
	return err
}

// ListProjected implements store.Sweeper.
func (s *Store) ListProjected(ctx context.Context) ([]store.ProjectedObject, error) {
	objects, err := sqldb.Collect(ctx, s.db.Reader(), scanProjected,
		object.Select+`WHERE k.object_uid <> '' OR k.adopted ORDER BY k.project_id, k.kind, k.name`)
	return objects, sqldb.Wrap(err, "listing the projection")
}

func scanProjected(row sqldb.Scanner) (store.ProjectedObject, error) {
	i, err := object.Scan(row)
	return store.ProjectedObject{Key: i.Key, Ref: i.Ref}, err
}

// Holder implements store.Catalog.
func (s *Store) Holder(ctx context.Context, key store.Key) (store.ObjectRef, error) {
	i, err := object.Read(ctx, s.db.Reader(), key)
	return i.Ref, sqldb.Wrap(err, "reading the holder of ID %s", key)
}

// Holders implements store.Catalog.
func (s *Store) Holders(ctx context.Context, projectID uuid.UUID, kind string) ([]store.ProjectedObject, error) {
	objects, err := sqldb.Collect(ctx, s.db.Reader(), scanProjected,
		object.Select+`WHERE k.project_id = $1 AND k.kind = $2 ORDER BY k.name`, projectID, kind)
	return objects, sqldb.Wrap(err, "listing the ID holders of project %s", projectID)
}
