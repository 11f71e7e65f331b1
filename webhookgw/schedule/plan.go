// SPDX-License-Identifier: Apache-2.0

package schedule

import (
	"fmt"
	"time"

	"github.com/agentplatform/agentplatform/internal/cron"
	"github.com/agentplatform/agentplatform/store"
)

const (
	// maxLateness is how late a tick may be run by which nothing is said to be missed: a
	// failover of the database, or a gateway that is replaced, takes less.
	maxLateness = 5 * time.Minute
	// farOff is when to look again for the next tick of a schedule that has none for years.
	farOff = 30 * 24 * time.Hour
)

// step is what comes next of a connector's ticks.
type step struct {
	// tick is the one to record, zero for none.
	tick time.Time
	// skipped says why the tick starts no runs, "" where it does.
	skipped string
	// next is when the next one is due; unless it is planned, when to look for it.
	next    time.Time
	planned bool
}

// plan decides on what is due by now, the database's time: it does what is to be done with
// one tick at a time, so that what is due afterwards is due still.
func plan(due store.DueTick, schedule cron.Schedule, missed cron.Missed, now time.Time) step {
	if !due.Planned {
		since := due.At
		if due.LastAt != nil && due.LastAt.After(since) { // by a clock that was set back since
			since = *due.LastAt
		}
		return step{}.then(schedule.Next(since), now)
	}
	oldest := now.Add(-maxLateness)
	if !due.At.Before(oldest) {
		return step{tick: due.At}.then(schedule.Next(due.At), now)
	}
	inTime := schedule.Next(oldest.Add(-time.Nanosecond))
	switch late := inTime.IsZero() || inTime.After(now); {
	case missed == cron.MissedSkip:
		reason := fmt.Sprintf("missed: it could not be run within %s, and missed_ticks is skip; the schedule goes on", maxLateness)
		return step{tick: due.At, skipped: reason}.then(inTime, now)
	case late:
		tick := schedule.Latest(due.At, now)
		if tick.Before(due.At) { // which was planned by other rules of its time zone
			tick = due.At
		}
		return step{tick: tick}.then(schedule.Next(tick), now)
	default:
		return step{}.then(inTime, now)
	}
}

// then is the step with the next tick; the zero time where none comes for years.
func (s step) then(next, now time.Time) step {
	s.next, s.planned = next, !next.IsZero()
	if !s.planned {
		s.next = now.Add(farOff)
	}
	return s
}
