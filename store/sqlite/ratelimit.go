// SPDX-License-Identifier: Apache-2.0

package sqlite

import (
	"context"

	"github.com/google/uuid"

	"github.com/agentplatform/agentplatform/store"
)

// TakeRequest implements store.RateLimiter in the memory of this process: it is
// the only one that has the file open, so that nobody else counts.
func (s *Store) TakeRequest(ctx context.Context, projectID uuid.UUID, limit store.RateLimit) (store.RateVerdict, error) {
	return s.requests.TakeRequest(ctx, projectID, limit)
}
