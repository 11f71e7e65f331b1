// SPDX-License-Identifier: Apache-2.0

package sweep

import (
	"errors"
	"slices"
	"sync"

	"github.com/agentplatform/agentplatform/store"
	"github.com/agentplatform/agentplatform/store/sqldb"
)

const (
	// MaxSkippedCalls is the maximum number of calls that skip a row.
	MaxSkippedCalls = 64
	// maxSkippedRows is the maximum number of skipped rows per operation.
	maxSkippedRows = 2000
)

// Skipped are rows that failed alone in an operation. Later calls skip them: one call after the first
// failure, and twice as many after each further failure. Each process has its own list.
type Skipped struct {
	mutex sync.Mutex
	rows  map[store.Key]skippedRow
}

// skippedRow has the number of failures of a row, and the number of calls that still skip it. A negative
// number counts the calls since the last skip.
type skippedRow struct{ failures, calls int }

// BeginCall starts a call, and removes rows that have not failed for long.
func (a *Skipped) BeginCall() {
	a.mutex.Lock()
	defer a.mutex.Unlock()
	for key, row := range a.rows {
		if row.calls--; row.calls < -MaxSkippedCalls {
			delete(a.rows, key)
			continue
		}
		a.rows[key] = row
	}
}

// Keys returns the rows that a call skips.
func (a *Skipped) Keys() (keys []store.Key) {
	a.mutex.Lock()
	defer a.mutex.Unlock()
	for key, row := range a.rows {
		if row.calls > 0 {
			keys = append(keys, key)
		}
	}
	slices.SortFunc(keys, sqldb.CompareKeys)
	return keys
}

// Skip sets a row aside and returns a *store.SetAsideError. It returns because if there are too many
// rows.
func (a *Skipped) Skip(key store.Key, because error) error {
	a.mutex.Lock()
	defer a.mutex.Unlock()
	row, known := a.rows[key]
	if !known && len(a.rows) >= maxSkippedRows {
		return because
	}
	if a.rows == nil {
		a.rows = map[store.Key]skippedRow{}
	}
	calls := min(1<<min(row.failures, 10), MaxSkippedCalls)
	a.rows[key] = skippedRow{row.failures + 1, calls + 1} // BeginCall subtracts one when the next call starts
	return &store.SetAsideError{Rows: []error{sqldb.Wrap(because, "%s, which the next %d calls skip", key, calls)}}
}

// JoinSetAside joins errors. The result is a *store.SetAsideError if all of them are.
func JoinSetAside(errs ...error) error {
	var aside, others []error
	for _, err := range errs {
		var found *store.SetAsideError
		switch {
		case errors.As(err, &found):
			aside = append(aside, err)
		case err != nil:
			others = append(others, err)
		}
	}
	switch {
	case len(others) > 0:
		for i, err := range aside {
			aside[i] = errors.New(err.Error())
		}
		return errors.Join(append(others, aside...)...)
	case len(aside) > 0:
		return &store.SetAsideError{Rows: aside}
	}
	return nil
}
