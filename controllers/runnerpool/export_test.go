// SPDX-License-Identifier: Apache-2.0

package runnerpool

import (
	"context"
	"errors"

	"github.com/agentplatform/agentplatform/store"
)

// CheckHinted checks all pools, as after a lost notification.
func (s *Scaler) CheckHinted(ctx context.Context) error {
	s.Pools.handleHint(store.Hint{Topic: store.TopicQueued})
	var problems []error
	for _, key := range s.Pools.takeDue(s.Clock.Now()) {
		problems = append(problems, s.checkPool(ctx, key))
	}
	return errors.Join(problems...)
}

// Len returns the number of pools that scale.
func (p *Pools) Len() int { return len(p.pools) }

// PollingInterval is the interval of checks without notifications.
const PollingInterval = pollingInterval

// MaxRollouts and MaxRolloutTime are the limits of rollouts.
const (
	MaxRollouts    = maxRollouts
	MaxRolloutTime = maxRolloutTime
)
