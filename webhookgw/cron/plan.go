// SPDX-License-Identifier: Apache-2.0

package cron

import (
	"fmt"
	"time"

	"github.com/agentplatform/agentplatform/internal/cron"
	"github.com/agentplatform/agentplatform/store"
)

const (
	// maxLateness is how late a tick can run before it counts as missed. A database failover or a
	// gateway replacement takes less time.
	maxLateness = 5 * time.Minute
	// emptyScheduleCheck is the pause before the next check of a schedule without a tick for years.
	emptyScheduleCheck = 30 * 24 * time.Hour
)

// tickStep is the next action for the ticks of a connector.
type tickStep struct {
	// tick is the tick to record, or zero.
	tick time.Time
	// skipped is the reason why the tick starts no runs, or "".
	skipped string
	// next is the time of the next tick, if planned is set. Otherwise it is the time of the next
	// check.
	next    time.Time
	planned bool
}

// planTick decides about one due tick at a time, at the database's time now. Later ticks stay due.
func planTick(due store.DueTick, schedule cron.Schedule, missed cron.Missed, now time.Time) tickStep {
	if !due.Planned {
		since := due.At
		if due.LastAt != nil && due.LastAt.After(since) { // the clock was set back since
			since = *due.LastAt
		}
		return tickStep{}.withNextTick(schedule.Next(since), now)
	}
	oldest := now.Add(-maxLateness)
	if !due.At.Before(oldest) {
		return tickStep{tick: due.At}.withNextTick(schedule.Next(due.At), now)
	}
	inTime := schedule.Next(oldest.Add(-time.Nanosecond))
	switch late := inTime.IsZero() || inTime.After(now); {
	case missed == cron.MissedSkip:
		reason := fmt.Sprintf("missed: it could not run within %s, and missed_ticks is skip; the schedule continues", maxLateness)
		return tickStep{tick: due.At, skipped: reason}.withNextTick(inTime, now)
	case late:
		tick := schedule.Latest(due.At, now)
		if tick.Before(due.At) { // planned with older time zone rules
			tick = due.At
		}
		return tickStep{tick: tick}.withNextTick(schedule.Next(tick), now)
	default:
		return tickStep{}.withNextTick(inTime, now)
	}
}

// withNextTick adds the time of the next tick to the step. A zero time means that no tick comes for years.
func (s tickStep) withNextTick(next, now time.Time) tickStep {
	s.next, s.planned = next, !next.IsZero()
	if !s.planned {
		s.next = now.Add(emptyScheduleCheck)
	}
	return s
}
