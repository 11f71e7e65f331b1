// SPDX-License-Identifier: Apache-2.0

// Package quota shares out what there is a limited amount of (memory, places) to
// projects, of which one has at most a part: however much it asks for, it takes nothing
// of the others'. An amount that is larger than a part counts as a part.
//
// Nobody waits for [Places]; a [Budget] is waited for, in a line. [Turns] shares out nothing
// but whose turn it is: a queue (round-robin; fair queueing) in which a project that has put
// in a lot waits for itself.
package quota

import (
	"errors"
	"fmt"
)

// Errors of what cannot be had now.
var (
	// ErrPart: the project has its part already.
	ErrPart = errors.New("the project has as much as it may")
	// ErrInVain is an ErrPart: its patience is over.
	ErrInVain = fmt.Errorf("%w, and nothing of it came free in time", ErrPart)
	// ErrAll: all projects together have all there is.
	ErrAll = errors.New("there is no more")
)

// Refusal is an error with what its caller says for ErrPart and for ErrAll; any other
// error, and nil, is itself.
func Refusal(err, part, all error) error {
	switch {
	case errors.Is(err, ErrPart):
		return part
	case errors.Is(err, ErrAll):
		return all
	}
	return err
}

// partOf is the part of all that a project has: at least one.
func partOf(all, parts int64) int64 { return max(all/parts, 1) }
