// SPDX-License-Identifier: Apache-2.0

// Package sweep processes due rows so that a failing row blocks no other row.
package sweep

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/agentplatform/agentplatform/store"
)

// Isolation processes rows so that a failing row blocks no other row.
type Isolation[R any] struct {
	// ProcessAll processes all rows or none.
	ProcessAll func(ctx context.Context, rows []R) error
	// IsDataError reports whether the data of the rows caused the error.
	IsDataError func(err error) bool
	// CanProceed reports whether other rows could be processed now.
	CanProceed func(ctx context.Context) bool
	// SetAside sets a failing row aside and returns a *store.SetAsideError. It returns nil if the row
	// was handled otherwise, and another error if it cannot be set aside.
	SetAside func(ctx context.Context, row R, because error) error
}

// Process processes rows. If that fails, it halves them to find the failing rows, and sets these
// aside.
//
// A row that fails alone is set aside if its data is at fault. With any other error it is set aside
// only if it fails again after a successful trial. So a general failure of the store sets no row
// aside. It is returned unchanged.
func (i Isolation[R]) Process(ctx context.Context, rows []R) error {
	return i.IsolateAfter(ctx, rows, i.ProcessAll(ctx, rows))
}

// IsolateAfter is Process for rows that have just failed with err.
func (i Isolation[R]) IsolateAfter(ctx context.Context, rows []R, err error) error {
	if err == nil || errors.Is(err, ErrConsumedElsewhere) {
		return err
	}
	alone := len(rows) == 1
	if !i.IsDataError(err) {
		if ctx.Err() != nil || !i.CanProceed(ctx) {
			return err
		}
		if alone {
			if err = i.ProcessAll(ctx, rows); err == nil || errors.Is(err, ErrConsumedElsewhere) || ctx.Err() != nil {
				return err
			}
		}
	}
	if alone {
		return i.SetAside(ctx, rows[0], err)
	}
	return i.processHalves(ctx, rows)
}

func (i Isolation[R]) processHalves(ctx context.Context, rows []R) error {
	var aside []error
	for half := range slices.Chunk(rows, (len(rows)+1)/2) {
		err := i.Process(ctx, half)
		var found *store.SetAsideError
		switch {
		case errors.As(err, &found):
			aside = append(aside, found.Rows...)
		case errors.Is(err, ErrConsumedElsewhere): // another process has consumed this half
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

// ErrConsumedElsewhere means that other processes have consumed all of the rows.
var ErrConsumedElsewhere = errors.New("other processes have done the work")
