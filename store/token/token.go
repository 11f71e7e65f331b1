// SPDX-License-Identifier: Apache-2.0

// Package token stores the tokens of builds and runners.
package token

import (
	"context"

	"github.com/agentplatform/agentplatform/store"
	"github.com/agentplatform/agentplatform/store/sqldb"
)

// Store has the tokens of builds and runners.
type Store struct{ db *sqldb.DB }

// New returns a Store.
func New(db *sqldb.DB) *Store { return &Store{db: db} }

// PutToken implements store.Tokens.
func (s *Store) PutToken(ctx context.Context, t store.Token) error {
	err := s.db.Write(ctx, func(ctx context.Context, tx *sqldb.Tx) error {
		if err := s.db.Lock(ctx, tx, t.ProjectID); err != nil {
			return err
		}
		others, of := `kind = 'runner' AND environment_id = $2`, t.EnvironmentID
		if t.Kind == store.TokenBuild {
			if t.DeploymentID == nil {
				return store.ErrConflict
			}
			others, of = `kind = 'build' AND deployment_id = $2`, *t.DeploymentID
		}
		if _, err := tx.Exec(ctx, `DELETE FROM tokens WHERE project_id = $1 AND `+others, t.ProjectID, of); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, `INSERT INTO tokens (sha256, kind, project_id, environment_id, deployment_id, created_at)
			VALUES ($1, $2, $3, $4, $5, now_us())`,
			t.SHA256, string(t.Kind), t.ProjectID, t.EnvironmentID, t.DeploymentID)
		tx.Hint(store.TopicQueued, t.Environment()) // runners that wait with an old token must reconnect
		return err
	})
	return sqldb.Wrap(err, "recording a %s token", t.Kind)
}

// Token implements store.Tokens.
func (s *Store) Token(ctx context.Context, sha256 []byte) (store.Token, error) {
	var t store.Token
	err := s.db.Reader().QueryRowContext(ctx, `SELECT t.sha256, t.kind, t.project_id, t.environment_id, t.deployment_id
		FROM tokens t JOIN environments e ON e.project_id = t.project_id AND e.id = t.environment_id
		LEFT JOIN deployments d ON d.project_id = t.project_id AND d.id = t.deployment_id
		WHERE t.sha256 = $1 AND (t.deployment_id IS NULL OR d.status IN ('pending', 'building'))`, sha256).
		Scan(&t.SHA256, &t.Kind, &t.ProjectID, &t.EnvironmentID, &t.DeploymentID)
	return t, sqldb.Wrap(sqldb.MapNoRows(err), "reading a token")
}
