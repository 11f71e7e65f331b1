// SPDX-License-Identifier: Apache-2.0

package sqlcore

import (
	"context"
	"strings"
)

// maxRows is how many rows one statement inserts at most, a power of two.
const maxRows = 256

// rows are rows to insert, as many as there are: by statements of 256, 128, … rows, so that
// there are few different ones, which are prepared once.
type rows struct{ values [][]any }

func (r *rows) add(values ...any) { r.values = append(r.values, values) }

// insert inserts them. Each % of row stands for its next value; after is what follows them.
func (r *rows) insert(ctx context.Context, tx *Tx, into, row, after string) error {
	return r.each(into, row, after, func(statement string, args []any) error {
		_, err := tx.exec(ctx, statement, args...)
		return err
	})
}

// each hands on the statements that insert them.
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
