// SPDX-License-Identifier: Apache-2.0

package sqlcore

import (
	"math"
	"time"
)

// grain is the length of rollup periods, in UTC.
type grain string

const (
	hourly  grain = "hour"
	daily   grain = "day"
	monthly grain = "month"
)

// grains lists all grains. Each consists of whole periods of the previous one.
var grains = []grain{hourly, daily, monthly}

// Bounds of an open window, in microseconds.
const (
	always = math.MinInt64
	never  = math.MaxInt64
)

// floorTime returns the start of the period that contains a time.
func (g grain) floorTime(us int64) int64 {
	if us == always || us == never {
		return us
	}
	at := time.UnixMicro(us).UTC()
	switch g {
	case monthly:
		return time.Date(at.Year(), at.Month(), 1, 0, 0, 0, 0, time.UTC).UnixMicro()
	case daily:
		return at.Truncate(24 * time.Hour).UnixMicro()
	default:
		return at.Truncate(time.Hour).UnixMicro()
	}
}

// ceilTime returns the first start of a period that is not before a time.
func (g grain) ceilTime(us int64) int64 {
	begin := g.floorTime(us)
	if begin == us {
		return us
	}
	at := time.UnixMicro(begin).UTC()
	switch g {
	case monthly:
		return at.AddDate(0, 1, 0).UnixMicro()
	case daily:
		return at.AddDate(0, 0, 1).UnixMicro()
	default:
		return at.Add(time.Hour).UnixMicro()
	}
}

// stretch is the sequence of periods of a grain that begin at from or later, and before to.
type stretch struct {
	grain    grain
	from, to int64
}

// period is the time from from to before to.
type period struct{ from, to int64 }

func (p period) isEmpty() bool { return p.from >= p.to }

// overlap returns the part of a period within another.
func (p period) overlap(with period) period {
	return period{max(p.from, with.from), min(p.to, with.to)}
}

// splitWindow splits a window into as few stretches of whole hours, days and months as possible, and the
// rest at its ends, each within an hour.
func splitWindow(window period) (whole []stretch, rest []period) {
	lo, hi := hourly.ceilTime(window.from), hourly.floorTime(window.to)
	if lo > hi {
		if !window.isEmpty() {
			rest = []period{window}
		}
		return nil, rest
	}
	for _, end := range []period{{window.from, lo}, {hi, window.to}} {
		if !end.isEmpty() {
			rest = append(rest, end)
		}
	}
	return coverPeriods(grains, lo, hi), rest
}

// coverPeriods covers the time between two starts of the first of these grains.
func coverPeriods(grains []grain, from, to int64) []stretch {
	if from >= to {
		return nil
	}
	if len(grains) > 1 {
		if lo, hi := grains[1].ceilTime(from), grains[1].floorTime(to); lo < hi {
			return append(append(coverPeriods(grains[:1], from, lo), coverPeriods(grains[1:], lo, hi)...), coverPeriods(grains[:1], hi, to)...)
		}
	}
	return []stretch{{grains[0], from, to}}
}
