// SPDX-License-Identifier: Apache-2.0

package sqlcore

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"

	"github.com/google/uuid"

	"github.com/agentplatform/agentplatform/store"
)

const (
	// longestAside is the maximum number of calls that skip a row.
	longestAside = 64
	// maxAsides is the maximum number of skipped rows per reason.
	maxAsides = 2000
)

// asides are rows that failed alone, by the name of the failed operation. Later calls skip them:
// one call after the first failure, and twice as many after each further failure. Each process has
// its own list.
type asides struct {
	mutex sync.Mutex
	of    map[string]map[store.Key]aside
}

// aside is the number of failures of a row and of calls that still skip it. Below zero it counts
// the calls since.
type aside struct{ failures, calls int }

// turn starts a call, and removes rows that have not failed for long.
func (a *asides) turn(name string) {
	a.mutex.Lock()
	defer a.mutex.Unlock()
	for key, row := range a.of[name] {
		if row.calls--; row.calls < -longestAside {
			delete(a.of[name], key)
			continue
		}
		a.of[name][key] = row
	}
}

// passed returns the rows that a call skips.
func (a *asides) passed(name string) (keys []store.Key) {
	a.mutex.Lock()
	defer a.mutex.Unlock()
	for key, row := range a.of[name] {
		if row.calls > 0 {
			keys = append(keys, key)
		}
	}
	slices.SortFunc(keys, CompareKeys)
	return keys
}

// put sets a row aside and returns a *store.SetAsideError. It returns because if there are too many
// rows.
func (a *asides) put(name string, key store.Key, because error) error {
	a.mutex.Lock()
	defer a.mutex.Unlock()
	row, known := a.of[name][key]
	if !known && len(a.of[name]) >= maxAsides {
		return because
	}
	if a.of == nil {
		a.of = map[string]map[store.Key]aside{}
	}
	if a.of[name] == nil {
		a.of[name] = map[store.Key]aside{}
	}
	calls := min(1<<min(row.failures, 10), longestAside)
	a.of[name][key] = aside{row.failures + 1, calls + 1} // turn subtracts one when the next call starts
	return &store.SetAsideError{Rows: []error{wrap(because, "%s, which the next %d calls skip", key, calls)}}
}

// canWrite reports whether the store can write now.
func (c *Core) canWrite(ctx context.Context) bool {
	if errors.Is(ctx.Err(), context.Canceled) {
		return false
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), readTimeout)
	defer cancel()
	return errors.Is(c.Write(ctx, func(ctx context.Context, tx *Tx) error {
		_, err := tx.exec(ctx, `DELETE FROM departed WHERE project_id = $1`, uuid.Nil)
		return cmp.Or(err, errTrial)
	}), errTrial)
}

// joinAsides joins errors. The result is a *store.SetAsideError if all of them are.
func joinAsides(errs ...error) error {
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
