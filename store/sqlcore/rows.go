// SPDX-License-Identifier: Apache-2.0

package sqlcore

import (
	"context"
	"strings"
)

// maxRows is the maximum number of rows per INSERT, a power of two.
const maxRows = 256

// rowBatch has rows to insert. Its statements have 256, 128, … rows, so that few different statements are
// prepared.
type rowBatch struct{ values [][]any }

func (r *rowBatch) addRow(values ...any) { r.values = append(r.values, values) }

// insertRows inserts the rows. Each % in row stands for its next value. after is the end of the
// statement.
func (r *rowBatch) insertRows(ctx context.Context, tx *Tx, into, row, after string) error {
	return r.eachStatement(into, row, after, func(statement string, args []any) error {
		_, err := tx.exec(ctx, statement, args...)
		return err
	})
}

// eachStatement calls run with the statements that insert them.
func (r *rowBatch) eachStatement(into, row, after string, run func(statement string, args []any) error) error {
	for left := r.values; len(left) > 0; {
		n := maxRows
		for n > len(left) {
			n /= 2
		}
		var (
			l    argList
			text strings.Builder
		)
		for i, values := range left[:n] {
			if i > 0 {
				text.WriteString(", ")
			}
			for j, part := range strings.Split(row, "%") {
				if j > 0 {
					text.WriteString(l.addArg(values[j-1]))
				}
				text.WriteString(part)
			}
		}
		if err := run(into+text.String()+after, l.args); err != nil {
			return err
		}
		left = left[n:]
	}
	return nil
}
