// SPDX-License-Identifier: Apache-2.0

package sqlcore

import (
	"context"
	"maps"

	"github.com/google/uuid"
)

// NumberBytes is how many bytes a row of numbers counts as stored: about what it takes with its
// share of the indexes.
const NumberBytes = 512

// growth is by how many bytes the numbers of projects grow in a transaction. They are added at its
// end, of all projects at once: so those who add wait for each other in one order.
type growth map[uuid.UUID]int64

// rows counts so many rows that are new, or below 0 those that go.
func (g growth) rows(project uuid.UUID, n int64) { g[project] += n * NumberBytes }

// insert inserts rows, or adds to those that are there, and counts those that are new, as is said of
// what the statement returns.
func (g growth) insert(ctx context.Context, tx *Tx, numbers rows, into, row, after string, isNew func(scanner) (project uuid.UUID, fresh bool, err error)) error {
	return numbers.each(into, row, after, func(statement string, args []any) error {
		_, err := collect(ctx, tx, func(row scanner) (none struct{}, err error) {
			project, fresh, err := isNew(row)
			if fresh {
				g.rows(project, 1)
			}
			return none, err
		}, statement, args...)
		return err
	})
}

// write adds it to what projects have stored.
func (g growth) write(ctx context.Context, tx *Tx) error {
	maps.DeleteFunc(g, func(_ uuid.UUID, bytes int64) bool { return bytes == 0 })
	return addStored(ctx, tx, g)
}
