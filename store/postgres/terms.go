// SPDX-License-Identifier: Apache-2.0

package postgres

import (
	"context"
	"fmt"
	"strconv"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/agentplatform/agentplatform/store/sqlcore"
)

// addTermsStatement inserts rows of any number of entries: it is one statement, which is prepared once.
const addTermsStatement = `INSERT INTO run_words (project_id, run_id, terms, shared, bytes)
	SELECT e.project_id, e.run_id, e.terms::bigint[], e.shared, e.bytes
	FROM unnest($1::uuid[], $2::uuid[], $3::text[], $4::uuid[], $5::bigint[]) AS e (project_id, run_id, terms, shared, bytes)
	ON CONFLICT (project_id, run_id) DO NOTHING`

// AddTerms implements sqlcore.Engine. Of a day whose runs go at present the partition of the index
// may have gone before theirs.
func (e engine) AddTerms(ctx context.Context, q sqlcore.Queryer, entries []sqlcore.Entry) error {
	var (
		parts                  = map[string]bool{}
		projects, runs, shared []pgtype.UUID
		terms                  []string
		bytes                  []int64
	)
	for _, entry := range entries {
		first := entry.Runs[0]
		part := e.Part("run_words", first)
		there, looked := parts[part]
		if !looked {
			var err error
			if there, err = e.HasPart(ctx, q, "run_words", first); err != nil {
				return fmt.Errorf("looking for %s: %w", part, err)
			}
			parts[part] = there
		}
		if !there {
			continue
		}
		var of pgtype.UUID
		if len(entry.Runs) > 1 {
			of = known(first)
		}
		for n, run := range entry.Runs {
			has := "{}"
			if n == 0 {
				has = array(entry.Terms)
			}
			projects, runs, shared = append(projects, known(entry.Project)), append(runs, known(run)), append(shared, of)
			terms, bytes = append(terms, has), append(bytes, entry.Bytes(n))
		}
	}
	if len(runs) == 0 {
		return nil
	}
	_, err := q.ExecContext(ctx, addTermsStatement, projects, runs, terms, shared, bytes)
	return err
}

// WithTerms implements sqlcore.Engine. The entries are found by their terms and by nothing else: a
// planner who guesses that many have them would look at all of the project's, in the order that
// is asked for, and does not know of words which never meet. So it is with the runs that share them.
func (e engine) WithTerms(all []sqlcore.Term, or sqlcore.Term, most, first int) (string, []any) {
	return fmt.Sprintf(`WITH m AS MATERIALIZED (SELECT w.project_id, w.run_id, w.shared FROM {run_words} w
			WHERE w.terms @> $%d::bigint[] OR w.terms @> $%d::bigint[] LIMIT $%d::int)
		SELECT m.project_id, m.run_id FROM m UNION ALL SELECT s.project_id, s.run_id FROM m, LATERAL (
			SELECT w.project_id, w.run_id FROM {run_words} w WHERE w.project_id = m.project_id AND w.shared = m.run_id AND w.run_id <> m.run_id OFFSET 0) s
		WHERE m.shared IS NOT NULL`,
		first, first+1, first+2), []any{numbers(all), []int64{int64(or)}, most}
}

// LookThrough implements sqlcore.Engine.
func (e engine) LookThrough(among string, all []sqlcore.Term, or sqlcore.Term, first int) (string, []any) {
	has := func(row string) string {
		return fmt.Sprintf(`%[1]s.terms @> $%[2]d::bigint[] OR %[1]s.terms @> $%[3]d::bigint[]`, row, first, first+1)
	}
	return `SELECT w.run_id, CASE WHEN w.shared IS NULL OR w.shared = w.run_id THEN ` + has("w") + ` ELSE COALESCE((SELECT ` + has("s") + ` FROM {run_words} s
			WHERE s.project_id = w.project_id AND s.run_id = w.shared), FALSE) END AS has
		FROM {run_words} w WHERE w.project_id = $1` + among, []any{numbers(all), []int64{int64(or)}}
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

// array is a column of terms as text.
func array(terms []sqlcore.Term) string {
	text := []byte{'{'}
	for i, term := range terms {
		if i > 0 {
			text = append(text, ',')
		}
		text = strconv.AppendInt(text, int64(term), 10)
	}
	return string(append(text, '}'))
}
