// SPDX-License-Identifier: Apache-2.0

package postgres

import (
	"context"
	"fmt"
	"strings"

	"github.com/agentplatform/agentplatform/store/sqlcore"
)

// AddTerms implements sqlcore.Engine. Of a day whose runs go at present the partition of the index
// may have gone before theirs.
func (e engine) AddTerms(ctx context.Context, q sqlcore.Queryer, entries []sqlcore.Entry) error {
	parts := map[string]bool{}
	var (
		rows []string
		args []any
	)
	for _, entry := range entries {
		part := e.Part("run_words", entry.Run.ID)
		there, known := parts[part]
		if !known {
			var err error
			if there, err = e.HasPart(ctx, q, "run_words", entry.Run.ID); err != nil {
				return fmt.Errorf("looking for %s: %w", part, err)
			}
			parts[part] = there
		}
		if !there {
			continue
		}
		n := len(args)
		rows = append(rows, fmt.Sprintf("($%d::uuid, $%d::uuid, $%d::bigint[])", n+1, n+2, n+3))
		args = append(args, entry.Run.ProjectID, entry.Run.ID, numbers(entry.Terms))
	}
	if len(rows) == 0 {
		return nil
	}
	_, err := q.ExecContext(ctx, `INSERT INTO run_words (project_id, run_id, terms) VALUES `+strings.Join(rows, ", ")+` ON CONFLICT (project_id, run_id) DO NOTHING`, args...)
	return err
}

// WithTerms implements sqlcore.Engine. The entries are found by their terms and by nothing else: a
// planner who guesses that many have them would look at all of the project's, in the order that
// is asked for, and does not know of words which never meet.
func (e engine) WithTerms(all []sqlcore.Term, or sqlcore.Term, most, first int) (string, []any) {
	return fmt.Sprintf(`SELECT w.project_id, w.run_id FROM {run_words} w WHERE w.terms @> $%d::bigint[] OR w.terms @> $%d::bigint[] LIMIT $%d::int`,
		first, first+1, first+2), []any{numbers(all), []int64{int64(or)}, most}
}

// LookThrough implements sqlcore.Engine.
func (e engine) LookThrough(among string, all []sqlcore.Term, or sqlcore.Term, first int) (string, []any) {
	return fmt.Sprintf(`SELECT w.run_id, w.terms @> $%d::bigint[] OR w.terms @> $%d::bigint[] AS has FROM {run_words} w WHERE w.project_id = $1%s`, first, first+1, among),
		[]any{numbers(all), []int64{int64(or)}}
}

// ByWords implements sqlcore.Engine. An index of words is read by bitmaps alone, which no other
// statement is planned with.
func (e engine) ByWords(ctx context.Context, fn func(ctx context.Context, q sqlcore.Queryer) error) error {
	return e.Snapshot(ctx, func(ctx context.Context, q sqlcore.Queryer) error {
		if _, err := q.ExecContext(ctx, `SET LOCAL enable_bitmapscan = on`); err != nil {
			return fmt.Errorf("setting how words are looked for: %w", err)
		}
		return fn(ctx, q)
	})
}

func numbers(terms []sqlcore.Term) []int64 {
	out := make([]int64, len(terms))
	for i, term := range terms {
		out[i] = int64(term)
	}
	return out
}
