// SPDX-License-Identifier: Apache-2.0

package sqlcore

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/agentplatform/agentplatform/store"
)

// isolation processes rows so that a failing row blocks no other row.
type isolation[R any] struct {
	// processAll processes all rows or none.
	processAll func(ctx context.Context, rows []R) error
	// isDataError reports whether the data of the rows caused the error.
	isDataError func(err error) bool
	// canProceed reports whether other rows could be processed now.
	canProceed func(ctx context.Context) bool
	// setAside sets a failing row aside and returns a *store.SetAsideError. It returns nil if the row
	// was handled otherwise, and another error if it cannot be set aside.
	setAside func(ctx context.Context, row R, because error) error
}

// processRows processes rows. If that fails, it halves them to find the failing rows, and sets these
// aside.
//
// A row that fails alone is set aside if its data is at fault. With any other error it is set aside
// only if it fails again after a successful trial. So a general failure of the store sets no row
// aside. It is returned unchanged.
func (i isolation[R]) processRows(ctx context.Context, rows []R) error {
	return i.isolateAfter(ctx, rows, i.processAll(ctx, rows))
}

// isolateAfter is apart for rows that have just failed with err.
func (i isolation[R]) isolateAfter(ctx context.Context, rows []R, err error) error {
	if err == nil || errors.Is(err, errConsumedElsewhere) {
		return err
	}
	alone := len(rows) == 1
	if !i.isDataError(err) {
		if ctx.Err() != nil || !i.canProceed(ctx) {
			return err
		}
		if alone {
			if err = i.processAll(ctx, rows); err == nil || errors.Is(err, errConsumedElsewhere) || ctx.Err() != nil {
				return err
			}
		}
	}
	if alone {
		return i.setAside(ctx, rows[0], err)
	}
	return i.processHalves(ctx, rows)
}

func (i isolation[R]) processHalves(ctx context.Context, rows []R) error {
	var aside []error
	for half := range slices.Chunk(rows, (len(rows)+1)/2) {
		err := i.processRows(ctx, half)
		var found *store.SetAsideError
		switch {
		case errors.As(err, &found):
			aside = append(aside, found.Rows...)
		case errors.Is(err, errConsumedElsewhere): // another process has consumed this half
		case err != nil && len(aside) > 0: // not a *store.SetAsideError, because some other rows were not processed
			return fmt.Errorf("%w; set aside before: %s", err, (&store.SetAsideError{Rows: aside}).Error())
		case err != nil:
			return err
		}
	}
	if len(aside) == 0 {
		return nil
	}
	return &store.SetAsideError{Rows: aside}
}

// errConsumedElsewhere means that other processes have consumed all of the rows.
var errConsumedElsewhere = errors.New("other processes have done the work")
