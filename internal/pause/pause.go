// SPDX-License-Identifier: Apache-2.0

// Package pause waits for a time or a context.
package pause

import (
	"context"
	"time"
)

// For waits for d. If ctx ends before, it returns the cause.
func For(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
