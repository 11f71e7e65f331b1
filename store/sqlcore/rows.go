// SPDX-License-Identifier: Apache-2.0

package sqlcore

import (
	"context"
	"strings"
)

// maxRows is the maximum number of rows per INSERT, a power of two.
const maxRows = 256

// rows are rows to insert, with statements of 256, 128, … rows, so that few different statements
// have to be prepared.
type rows struct{ values [][]any }

func (r *rows) add(values ...any) { r.values = append(r.values, values) }

// insert inserts the rows. Each % in row stands for its next value. after is the end of the
// statement.
func (r *rows) insert(ctx context.Context, tx *Tx, into, row, after string) error {
	return r.each(into, row, after, func(statement string, args []any) error {
		_, err := tx.exec(ctx, statement, args...)
		return err
	})
}

// each calls run with the statements that insert them.
func (r *rows) each(into, row, after string, run func(statement string, args []any) error) error {
	for left := r.values; len(left) > 0; {
		n := maxRows
		for n > len(left) {
			n /= 2
		}
		var (
			l    list
			text strings.Builder
		)
		for i, values := range left[:n] {
			if i > 0 {
				text.WriteString(", ")
			}
			for j, part := range strings.Split(row, "%") {
				if j > 0 {
					text.WriteString(l.add(values[j-1]))
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
