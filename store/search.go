// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"time"
)

// Searched is a run with its searchable texts: at most the first MaxInlineText bytes of output and
// input. A listed Run has no output itself.
type Searched struct {
	Run
	// ContentType is the media type of Input.
	ContentType string
	Input       []byte
	// Headers are the request headers that the run may see.
	Headers map[string]string
}

// Search is a search for runs. Indexed runs are found by Words. All other runs are read.
type Search struct {
	// Words are the words that every matching run has, as indexed. Without words, all runs that
	// match the fields are read.
	Words []string
	// AgentName, TestName and Status are fields of every matching run, as in a RunQuery.
	AgentName, TestName string
	Status              RunStatus
	// Match reports whether a run matches. Its context ends with the remaining time.
	Match func(ctx context.Context, run Searched) bool
	// Left returns the remaining time, which also limits statements; nil means no limit.
	Left func() time.Duration
}
