// SPDX-License-Identifier: Apache-2.0

package postgres

import (
	"context"
	"fmt"
	"strconv"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/agentplatform/agentplatform/store"
	"github.com/agentplatform/agentplatform/store/searchindex"
	"github.com/agentplatform/agentplatform/store/sqldb"
)

// termsRow is the entry of a run in the search index. shared is the run whose entry has its terms, if that is another one.
type termsRow struct {
	project, run uuid.UUID
	shared       *uuid.UUID
	terms        string
	bytes        int64
}

var termsRows = rowset[termsRow]{
	uuidColumn("project_id", func(t *termsRow) uuid.UUID { return t.project }),
	uuidColumn("run_id", func(t *termsRow) uuid.UUID { return t.run }),
	columnOf("terms", func(t *termsRow) string { return t.terms }),
	columnOf("shared", func(t *termsRow) pgtype.UUID { return nullableUUID(t.shared) }),
	columnOf("bytes", func(t *termsRow) int64 { return t.bytes }),
}

// addTermsStatement inserts rows of any number of entries, so that one statement has to be
// prepared.
var addTermsStatement = `INSERT INTO run_words (project_id, run_id, terms, shared, bytes)
	SELECT e.project_id, e.run_id, e.terms::bigint[], e.shared, e.bytes
	FROM ` + termsRows.fromClause(1, "e") + `
	ON CONFLICT (project_id, run_id) DO NOTHING RETURNING project_id, run_id`

// AddTerms implements searchindex.Engine. While a day is being deleted, its partition of the index may
// be dropped before its runs.
func (e engine) AddTerms(ctx context.Context, q sqldb.Queryer, entries []searchindex.Entry) (added []store.Key, err error) {
	var (
		parts = map[string]bool{}
		rows  []termsRow
	)
	for _, entry := range entries {
		first := entry.Runs[0]
		part := e.Part("run_words", first)
		there, looked := parts[part]
		if !looked {
			if there, err = e.HasPart(ctx, q, "run_words", first); err != nil {
				return nil, fmt.Errorf("reading %s: %w", part, err)
			}
			parts[part] = there
		}
		if !there {
			continue
		}
		var shared *uuid.UUID
		if len(entry.Runs) > 1 {
			shared = &first
		}
		for n, run := range entry.Runs {
			has := "{}"
			if n == 0 {
				has = termArray(entry.Terms)
			}
			rows = append(rows, termsRow{entry.Project, run, shared, has, entry.Bytes(n)})
		}
	}
	if len(rows) == 0 {
		return nil, nil
	}
	return readKeys(q.QueryContext(ctx, addTermsStatement, termsRows.arguments(rows)...))
}

// WithTerms implements searchindex.Engine. It finds entries by their terms only. A planner that expects
// many matches would read all entries of the project in the requested order, and does not know
// which words never occur together. The same holds for the runs of shared entries.
func (e engine) WithTerms(all []searchindex.Term, or searchindex.Term, most, first int) (string, []any) {
	return fmt.Sprintf(`WITH m AS MATERIALIZED (SELECT w.project_id, w.run_id, w.shared FROM {run_words} w
			WHERE w.terms @> $%d::bigint[] OR w.terms @> $%d::bigint[] LIMIT $%d::int)
		SELECT m.project_id, m.run_id FROM m UNION ALL SELECT s.project_id, s.run_id FROM m, LATERAL (
			SELECT w.project_id, w.run_id FROM {run_words} w WHERE w.project_id = m.project_id AND w.shared = m.run_id AND w.run_id <> m.run_id OFFSET 0) s
		WHERE m.shared IS NOT NULL`,
		first, first+1, first+2), []any{numbers(all), []int64{int64(or)}, most}
}

// LookThrough implements searchindex.Engine.
func (e engine) LookThrough(among string, all []searchindex.Term, or searchindex.Term, first int) (string, []any) {
	has := func(row string) string {
		return fmt.Sprintf(`%[1]s.terms @> $%[2]d::bigint[] OR %[1]s.terms @> $%[3]d::bigint[]`, row, first, first+1)
	}
	return `SELECT w.run_id, CASE WHEN w.shared IS NULL OR w.shared = w.run_id THEN ` + has("w") + ` ELSE COALESCE((SELECT ` + has("s") + ` FROM {run_words} s
			WHERE s.project_id = w.project_id AND s.run_id = w.shared), FALSE) END AS has
		FROM {run_words} w WHERE w.project_id = $1` + among, []any{numbers(all), []int64{int64(or)}}
}

// ByWords implements searchindex.Engine. An index of words is read by bitmap scans, which no other
// statement may use.
func (e engine) ByWords(ctx context.Context, fn func(ctx context.Context, q sqldb.Queryer) error) error {
	return e.Snapshot(ctx, func(ctx context.Context, q sqldb.Queryer) error {
		if _, err := q.ExecContext(ctx, `SET LOCAL enable_bitmapscan = on`); err != nil {
			return fmt.Errorf("setting the planner parameters of the search index: %w", err)
		}
		return fn(ctx, q)
	})
}

func numbers(terms []searchindex.Term) []int64 {
	out := make([]int64, len(terms))
	for i, term := range terms {
		out[i] = int64(term)
	}
	return out
}

// termArray returns a column of terms as text.
func termArray(terms []searchindex.Term) string {
	text := []byte{'{'}
	for i, term := range terms {
		if i > 0 {
			text = append(text, ',')
		}
		text = strconv.AppendInt(text, int64(term), 10)
	}
	return string(append(text, '}'))
}
