// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"time"
)

// Searched is a run with what of it is searched: of its output, of which a Run of a list has
// nothing, and of its input at most the first MaxInlineText bytes.
type Searched struct {
	Run
	// Input is of that type.
	ContentType string
	Input       []byte
	// Headers are those that the run sees of its event's request.
	Headers map[string]string
}

// Search says which runs somebody looks for. What has ended and is indexed is found by its words,
// and what is not indexed yet is looked at like all others.
type Search struct {
	// Words are words that each run has which matches, as those were that it was indexed by. Without
	// any all runs are looked at that the fields leave.
	Words []string
	// AgentName, TestName and Status are what each run has that matches, as in a RunQuery.
	AgentName, TestName string
	Status              RunStatus
	// Match says whether a run matches. Its context ends with the time that is Left.
	Match func(ctx context.Context, run Searched) bool
	// Left says for how long it may go on, in statements too; without any it goes on to its end.
	Left func() time.Duration
}
