// SPDX-License-Identifier: Apache-2.0

package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"

	"github.com/google/uuid"

	"github.com/agentplatform/agentplatform/store"
	"github.com/agentplatform/agentplatform/store/searchindex"
	"github.com/agentplatform/agentplatform/store/sqldb"
)

// AddTerms implements searchindex.Engine.
func (e engine) AddTerms(ctx context.Context, q sqldb.Queryer, entries []searchindex.Entry) (added []store.Key, err error) {
	for _, entry := range entries {
		for n, run := range entry.Runs {
			var (
				number int64
				shared *uuid.UUID
			)
			if len(entry.Runs) > 1 {
				shared = &entry.Runs[0]
			}
			err := q.QueryRowContext(ctx, `INSERT INTO run_words (project_id, run_id, shared, bytes) VALUES ($1, $2, $3, $4)
				ON CONFLICT (project_id, run_id) DO NOTHING RETURNING entry`, entry.Project, run, shared, entry.Bytes(n)).Scan(&number)
			if errors.Is(err, sql.ErrNoRows) { // it exists
				continue
			}
			if err == nil && n == 0 {
				_, err = q.ExecContext(ctx, `INSERT INTO run_terms (rowid, terms) VALUES ($1, $2)`, number, spelled(entry.Terms, " "))
			}
			if err != nil {
				return nil, err
			}
			added = append(added, store.Key{ProjectID: entry.Project, ID: run})
		}
	}
	return added, nil
}

// WithTerms implements searchindex.Engine.
func (e engine) WithTerms(all []searchindex.Term, or searchindex.Term, most, first int) (string, []any) {
	return fmt.Sprintf(`WITH m AS MATERIALIZED (SELECT w.project_id, w.run_id, w.shared FROM {run_words} w
			WHERE w.entry IN (SELECT rowid FROM run_terms WHERE run_terms MATCH $%d LIMIT $%d))
		SELECT m.project_id, m.run_id FROM m
		UNION ALL SELECT s.project_id, s.run_id FROM m CROSS JOIN {run_words} s ON s.project_id = m.project_id AND s.shared = m.run_id
			WHERE m.shared IS NOT NULL AND s.run_id <> m.run_id`,
		first, first+1), []any{matching(all, or), most}
}

// LookThrough implements searchindex.Engine. It searches the terms among the entries that were written
// between the first and the last of these.
func (e engine) LookThrough(among string, all []searchindex.Term, or searchindex.Term, first int) (string, []any) {
	return fmt.Sprintf(`WITH e AS MATERIALIZED (SELECT w.run_id, COALESCE((SELECT s.entry FROM {run_words} s
			WHERE s.project_id = w.project_id AND s.run_id = w.shared), w.entry) AS entry FROM {run_words} w WHERE w.project_id = $1%s)
		SELECT e.run_id, e.entry IN (SELECT rowid FROM run_terms WHERE run_terms MATCH $%d
			AND rowid >= (SELECT MIN(entry) FROM e) AND rowid <= (SELECT MAX(entry) FROM e)) AS has FROM e`, among, first), []any{matching(all, or)}
}

// matching returns the FTS5 expression for entries with all of these terms, or the one.
func matching(all []searchindex.Term, or searchindex.Term) string {
	return "(" + spelled(all, " AND ") + ") OR " + spelled([]searchindex.Term{or}, "")
}

// ByWords implements searchindex.Engine.
func (e engine) ByWords(ctx context.Context, fn func(ctx context.Context, q sqldb.Queryer) error) error {
	return e.Snapshot(ctx, fn)
}

// spelled returns terms as words of FTS5.
func spelled(terms []searchindex.Term, between string) string {
	words := make([]string, len(terms))
	for i, term := range terms {
		words[i] = fmt.Sprintf("t%016x", uint64(term)) //nolint:gosec // all bits are used
	}
	return strings.Join(words, between)
}
