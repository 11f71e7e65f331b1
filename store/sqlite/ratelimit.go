// SPDX-License-Identifier: Apache-2.0

package sqlite

import (
	"context"

	"github.com/google/uuid"

	"github.com/agentplatform/agentplatform/store"
)

// TakeRequest implements store.RateLimiter in the memory of this process, because no other process
// has the file open. It reads the project's limit from the file, which does not use the writer.
func (s *Store) TakeRequest(ctx context.Context, projectID uuid.UUID, limit store.RateLimit) (store.RateVerdict, error) {
	most, err := s.RequestsPerMinute(ctx, projectID)
	if err != nil {
		return store.RateVerdict{}, err
	}
	if most > 0 {
		limit.Requests = most
	}
	return s.requests.TakeRequest(ctx, projectID, limit)
}
