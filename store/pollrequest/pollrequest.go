// SPDX-License-Identifier: Apache-2.0

// Package pollrequest stores requests to poll the repositories of projects.
package pollrequest

import (
	"context"
	"fmt"
	"slices"

	"github.com/google/uuid"

	"github.com/agentplatform/agentplatform/store"
	"github.com/agentplatform/agentplatform/store/sqldb"
)

// Store has the projects whose repositories are to be polled.
type Store struct{ db *sqldb.DB }

// New returns a Store.
func New(db *sqldb.DB) *Store { return &Store{db: db} }

// projectKeys returns the keys of projects, each once and in order.
func projectKeys(projects []uuid.UUID) ([]store.Key, error) {
	if len(projects) > store.MaxPollRequests {
		return nil, fmt.Errorf("requesting polls of %d projects, more than %d", len(projects), store.MaxPollRequests)
	}
	var keys []store.Key
	for _, id := range slices.SortedFunc(slices.Values(projects), sqldb.CompareIDs) {
		if key := (store.Project{ID: id}).Key(); len(keys) == 0 || keys[len(keys)-1] != key {
			keys = append(keys, key)
		}
	}
	return keys, nil
}

// HavePollRequests implements store.PollRequests.
func (s *Store) HavePollRequests(ctx context.Context, projects []uuid.UUID) (map[uuid.UUID]bool, error) {
	keys, err := projectKeys(projects)
	if err != nil {
		return nil, err
	}
	asked, l := map[uuid.UUID]bool{}, sqldb.Args{}
	err = sqldb.CollectMap(ctx, s.db.Reader(), asked, func(row sqldb.Scanner) (id uuid.UUID, is bool, err error) {
		err = row.Scan(&id, &is)
		return id, is, err
	}, `SELECT p.project_id, l.project_id IS NOT NULL FROM projects p LEFT JOIN looks l ON l.project_id = p.project_id
		WHERE `+s.db.KeyCondition(&l, "p.project_id", keys), l.Values...)
	return asked, sqldb.Wrap(err, "reading which of %d projects exist", len(keys))
}

// ProjectIDs implements store.PollRequests.
func (s *Store) ProjectIDs(ctx context.Context, after uuid.UUID, limit int) ([]uuid.UUID, error) {
	ids, err := sqldb.Collect(ctx, s.db.Reader(), sqldb.ScanUUID, `SELECT project_id FROM projects WHERE project_id > $1 ORDER BY project_id LIMIT $2`, after, limit)
	return ids, sqldb.Wrap(err, "listing projects")
}

// RequestPolls implements store.PollRequests.
func (s *Store) RequestPolls(ctx context.Context, projects []uuid.UUID) error {
	keys, err := projectKeys(projects)
	if err != nil {
		return err
	}
	err = s.db.Write(ctx, func(ctx context.Context, tx *sqldb.Tx) error {
		var l sqldb.Args
		made, err := sqldb.Collect(ctx, tx, sqldb.ScanUUID, `INSERT INTO looks (project_id, asked_at)
			SELECT project_id, now_us() FROM projects WHERE `+s.db.KeyCondition(&l, "project_id", keys)+`
			ORDER BY project_id ON CONFLICT (project_id) DO NOTHING RETURNING project_id`, l.Values...)
		for _, id := range made {
			tx.Hint(store.TopicLook, store.Project{ID: id}.Key())
		}
		return err
	})
	return sqldb.Wrap(err, "requesting polls of %d projects", len(keys))
}

// ListPollRequests implements store.PollRequestReader.
func (s *Store) ListPollRequests(ctx context.Context, after uuid.UUID, limit int) ([]store.PollRequest, error) {
	looks, err := sqldb.Collect(ctx, s.db.Reader(), func(row sqldb.Scanner) (look store.PollRequest, err error) {
		err = row.Scan(&look.ProjectID, &look.Namespace)
		return look, err
	}, `SELECT l.project_id, o.namespace FROM looks l JOIN object_ids o ON o.project_id = l.project_id AND o.id = l.project_id
		WHERE l.project_id > $1 ORDER BY l.project_id LIMIT $2`, after, limit)
	return looks, sqldb.Wrap(err, "reading the requested polls")
}

// DeletePollRequest implements store.PollRequestReader.
func (s *Store) DeletePollRequest(ctx context.Context, project uuid.UUID) error {
	_, err := s.db.Exec(ctx, `DELETE FROM looks WHERE project_id = $1`, project)
	return sqldb.Wrap(err, "taking the poll request of project %s", project)
}
