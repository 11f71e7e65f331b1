// SPDX-License-Identifier: Apache-2.0

package history

import (
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/agentplatform/agentplatform/apiserver/rest"
)

// AgentTimeRange is a window of statistics and lists of runs.
type AgentTimeRange string

func (AgentTimeRange) Schema(r huma.Registry) *huma.Schema {
	return rest.Enumeration(r, "AgentTimeRange", "A window that ends now, or a calendar period in UTC. all has no start.",
		"24h", "7d", "30d", "90d", "today", "this_month", "last_month", "this_year", "all")
}

// RunStatusFilter is a status that filters agent runs.
type RunStatusFilter string

func (RunStatusFilter) Schema(r huma.Registry) *huma.Schema {
	return rest.Enumeration(r, "RunStatusFilter", "A status to filter agent runs by. No run is scheduled or awaiting_approval in this release.",
		"queued", "running", "completed", "failed", "cancelled")
}

// Window returns the window of time_range, start_date, which overrides time_range, and end_date. A zero time is no
// bound.
func Window(within AgentTimeRange, start, end rest.Moment, now time.Time) (since, until time.Time, err error) {
	if start.Given && end.Given && !end.At.After(start.At) {
		return since, until, rest.Invalid(rest.FieldError{Location: "query.end_date", Message: "must be after start_date"})
	}
	if start.Given {
		return start.At, end.At, nil
	}
	since, until = within.window(now.UTC())
	if end.Given && (until.IsZero() || end.At.Before(until)) {
		until = end.At
	}
	return since, until, nil
}

// window returns the window of a time range. A zero time is no bound.
func (r AgentTimeRange) window(now time.Time) (since, until time.Time) {
	const day = 24 * time.Hour
	month := time.Date(now.Year(), now.Month(), 1, 0, 0, 0, 0, time.UTC)
	switch r {
	case "24h":
		since = now.Add(-day)
	case "7d":
		since = now.Add(-7 * day)
	case "30d":
		since = now.Add(-30 * day)
	case "90d":
		since = now.Add(-90 * day)
	case "today":
		since = now.Truncate(day)
	case "this_month":
		since = month
	case "last_month":
		since, until = month.AddDate(0, -1, 0), month
	case "this_year":
		since = time.Date(now.Year(), 1, 1, 0, 0, 0, 0, time.UTC)
	}
	return since, until
}
