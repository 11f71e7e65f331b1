// SPDX-License-Identifier: Apache-2.0

// Package pause waits.
package pause

import (
	"context"
	"time"
)

// For waits for a while; where ctx ends before, it returns why.
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
