// SPDX-License-Identifier: Apache-2.0

// Package timewindow splits periods of time into windows of history and of rollups.
package timewindow

import (
	"math"
	"time"

	"github.com/agentplatform/agentplatform/store/sqldb"
)

// Grain is the length of rollup periods, in UTC.
type Grain string

const (
	Hourly  Grain = "hour"
	Daily   Grain = "day"
	Monthly Grain = "month"
)

// Grains lists all grains. Each consists of whole periods of the previous one.
var Grains = []Grain{Hourly, Daily, Monthly}

// Bounds of an open window, in microseconds.
const (
	Always = math.MinInt64
	Never  = math.MaxInt64
)

// FloorTime returns the start of the period that contains a time.
func (g Grain) FloorTime(us int64) int64 {
	if us == Always || us == Never {
		return us
	}
	at := time.UnixMicro(us).UTC()
	switch g {
	case Monthly:
		return time.Date(at.Year(), at.Month(), 1, 0, 0, 0, 0, time.UTC).UnixMicro()
	case Daily:
		return at.Truncate(24 * time.Hour).UnixMicro()
	default:
		return at.Truncate(time.Hour).UnixMicro()
	}
}

// CeilTime returns the first start of a period that is not before a time.
func (g Grain) CeilTime(us int64) int64 {
	begin := g.FloorTime(us)
	if begin == us {
		return us
	}
	at := time.UnixMicro(begin).UTC()
	switch g {
	case Monthly:
		return at.AddDate(0, 1, 0).UnixMicro()
	case Daily:
		return at.AddDate(0, 0, 1).UnixMicro()
	default:
		return at.Add(time.Hour).UnixMicro()
	}
}

// Smaller returns the next smaller grain.
func (g Grain) Smaller() Grain {
	if g == Monthly {
		return Daily
	}
	return Hourly
}

// PeriodFrom returns the period of the grain that begins at a time.
func (g Grain) PeriodFrom(begin int64) Period {
	return Period{From: begin, To: g.CeilTime(begin + 1)}
}

// Stretch is the sequence of periods of a grain that begin at from or later, and before to.
type Stretch struct {
	Grain    Grain
	From, To int64
}

// Period is the time from from to before to.
type Period struct{ From, To int64 }

// IsEmpty reports whether the period contains no time.
func (p Period) IsEmpty() bool { return p.From >= p.To }

// Overlap returns the part of a period within another.
func (p Period) Overlap(with Period) Period {
	return Period{max(p.From, with.From), min(p.To, with.To)}
}

// Split splits a window into as few stretches of whole hours, days and months as possible, and the
// rest at its ends, each within an hour.
func Split(window Period) (whole []Stretch, rest []Period) {
	lo, hi := Hourly.CeilTime(window.From), Hourly.FloorTime(window.To)
	if lo > hi {
		if !window.IsEmpty() {
			rest = []Period{window}
		}
		return nil, rest
	}
	for _, end := range []Period{{window.From, lo}, {hi, window.To}} {
		if !end.IsEmpty() {
			rest = append(rest, end)
		}
	}
	return coverPeriods(Grains, lo, hi), rest
}

// coverPeriods covers the time between two starts of the first of these grains.
func coverPeriods(grains []Grain, from, to int64) []Stretch {
	if from >= to {
		return nil
	}
	if len(grains) > 1 {
		if lo, hi := grains[1].CeilTime(from), grains[1].FloorTime(to); lo < hi {
			return append(append(coverPeriods(grains[:1], from, lo), coverPeriods(grains[1:], lo, hi)...), coverPeriods(grains[:1], hi, to)...)
		}
	}
	return []Stretch{{grains[0], from, to}}
}

// Condition limits to IDs of a period. It omits unneeded conditions, because each comparison costs a
// third of counting a row.
func Condition(id string, window Period, l *sqldb.Args) (text string) {
	if window.From > 0 {
		text += ` AND ` + id + ` >= id_at(` + l.Add(window.From) + `)`
	}
	if window.To != Never {
		text += ` AND ` + id + ` < id_at(` + l.Add(window.To) + `)`
	}
	return text
}

// Between returns the window from since to before until; a zero time is no bound.
func Between(since, until time.Time) Period {
	return Period{From: bound(since, Always), To: bound(until, Never)}
}

// bound returns a window bound in whole milliseconds, the resolution of IDs.
func bound(t time.Time, without int64) int64 {
	if t.IsZero() {
		return without
	}
	return t.Truncate(time.Millisecond).UnixMicro()
}
