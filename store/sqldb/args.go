// SPDX-License-Identifier: Apache-2.0

package sqldb

import (
	"context"
	"strconv"
	"strings"

	"github.com/google/uuid"

	"github.com/agentplatform/agentplatform/store"
)

// maxRows is the maximum number of rows per INSERT, a power of two.
const maxRows = 256

// RowBatch has rows to insert. Its statements have 256, 128, … rows, so that few different statements are
// prepared.
type RowBatch struct{ values [][]any }

// Add adds a row.
func (r *RowBatch) Add(values ...any) { r.values = append(r.values, values) }

// Insert inserts the rows. Each % in row stands for its next value. after is the end of the
// statement.
func (r *RowBatch) Insert(ctx context.Context, tx *Tx, into, row, after string) error {
	return r.EachStatement(into, row, after, func(statement string, args []any) error {
		_, err := tx.Exec(ctx, statement, args...)
		return err
	})
}

// EachStatement calls run with the statements that insert them.
func (r *RowBatch) EachStatement(into, row, after string, run func(statement string, args []any) error) error {
	for left := r.values; len(left) > 0; {
		n := maxRows
		for n > len(left) {
			n /= 2
		}
		var (
			l    Args
			text strings.Builder
		)
		for i, values := range left[:n] {
			if i > 0 {
				text.WriteString(", ")
			}
			for j, part := range strings.Split(row, "%") {
				if j > 0 {
					text.WriteString(l.Add(values[j-1]))
				}
				text.WriteString(part)
			}
		}
		if err := run(into+text.String()+after, l.Values); err != nil {
			return err
		}
		left = left[n:]
	}
	return nil
}

// Args is a growing list of arguments.
type Args struct{ Values []any }

// Add adds an argument and returns its placeholder.
func (l *Args) Add(v any) string {
	l.Values = append(l.Values, v)
	return "$" + strconv.Itoa(len(l.Values))
}

// KeyCondition returns the condition that a row has one of these keys. id is the column of its ID.
func (d *DB) KeyCondition(l *Args, id string, keys []store.Key) string {
	source, args := d.Engine.Keys(keys, len(l.Values)+1)
	l.Values = append(l.Values, args...)
	project := "project_id"
	if table, _, qualified := strings.Cut(id, "."); qualified {
		project = table + "." + project
	}
	return "(" + project + ", " + id + ") IN " + source
}

// AddIDs returns an IN list.
func (l *Args) AddIDs(ids []uuid.UUID) string {
	marks := make([]string, len(ids))
	for i, id := range ids {
		marks[i] = l.Add(id)
	}
	return "(" + strings.Join(marks, ", ") + ")"
}

// AddTexts returns an IN list of texts.
func AddTexts[T ~string](l *Args, all []T) string {
	marks := make([]string, len(all))
	for i, text := range all {
		marks[i] = l.Add(Text(string(text)))
	}
	return "(" + strings.Join(marks, ", ") + ")"
}

// MaxIDs is the maximum number of rows per statement with a list of IDs.
const MaxIDs = 500

// MaxKeys is the number of rows per read by key.
const MaxKeys = 1000
