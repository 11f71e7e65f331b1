// SPDX-License-Identifier: Apache-2.0

package store

import "context"

// Eraser erases what somebody wants gone before its time.
type Eraser interface {
	// EraseRun erases what an ended run was about: output, error and journal; its input, files and
	// headers with the last run of its event; what it has sent, and what receivers answered. The
	// run is not found from then on; numbers keep it. A delivery of it that is open ends without
	// being sent. ErrConflict of a run that is open.
	EraseRun(ctx context.Context, run Key) error
}
