// SPDX-License-Identifier: Apache-2.0

package store

import "context"

// Eraser erases runs before their retention ends.
type Eraser interface {
	// EraseRun erases the contents of an ended run: output, error, context, journal, sent payloads and the
	// responses of receivers. With the last run of an event it also erases the input, files and
	// headers. The run is not found afterwards, but statistics include it. An open delivery of the
	// run ends unsent. It returns ErrConflict if the run is open.
	EraseRun(ctx context.Context, run Key) error
}
