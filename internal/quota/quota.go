// SPDX-License-Identifier: Apache-2.0

// Package quota shares limited amounts of memory and slots among projects. Each project has at most
// its part, so a project cannot use up the parts of others. An amount larger than a part counts as
// a part.
//
// The slots of a [SlotSet] are taken without waiting. A [Budget] has a queue. [FairQueue] is a fair queue: it serves
// projects round-robin, so a busy project delays only itself.
package quota

import (
	"errors"
	"fmt"
)

// Errors for amounts that are not available now.
var (
	// ErrProjectLimit: the project has its part already.
	ErrProjectLimit = errors.New("the project is at its limit")
	// ErrWaitTimeout is an ErrProjectLimit after the patience.
	ErrWaitTimeout = fmt.Errorf("%w, and nothing became free in time", ErrProjectLimit)
	// ErrTotalLimit: all projects together have everything.
	ErrTotalLimit = errors.New("there is no more")
)

// Refusal returns part for ErrProjectLimit, all for ErrTotalLimit, and any other error or nil unchanged.
func Refusal(err, part, all error) error {
	switch {
	case errors.Is(err, ErrProjectLimit):
		return part
	case errors.Is(err, ErrTotalLimit):
		return all
	}
	return err
}

// projectPart returns the part of a project, at least 1.
func projectPart(all, parts int64) int64 { return max(all/parts, 1) }
