// SPDX-License-Identifier: Apache-2.0

package sqlcore

import (
	"math"
	"time"
)

// grain is how long the times are that rollups are about, in UTC.
type grain string

const (
	hourly  grain = "hour"
	daily   grain = "day"
	monthly grain = "month"
)

// grains are all of them; each is made of whole ones of the one before.
var grains = []grain{hourly, daily, monthly}

// Bounds of a window without a beginning or an end, in microseconds as all of these.
const (
	always = math.MinInt64
	never  = math.MaxInt64
)

// floor is when the time of a grain began in which a moment lies.
func (g grain) floor(us int64) int64 {
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

// ceil is the first beginning that is not before a moment.
func (g grain) ceil(us int64) int64 {
	begin := g.floor(us)
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

// stretch are the times of a grain that begin at from or later and before to.
type stretch struct {
	grain    grain
	from, to int64
}

// period is what lies between two moments, the second one excluded.
type period struct{ from, to int64 }

func (p period) empty() bool { return p.from >= p.to }

// split takes a window apart: into stretches of whole hours, days and months, as few as there can
// be, and what is left at its ends, each within an hour.
func split(window period) (whole []stretch, rest []period) {
	lo, hi := hourly.ceil(window.from), hourly.floor(window.to)
	if lo > hi {
		if !window.empty() {
			rest = []period{window}
		}
		return nil, rest
	}
	for _, end := range []period{{window.from, lo}, {hi, window.to}} {
		if !end.empty() {
			rest = append(rest, end)
		}
	}
	return cover(grains, lo, hi), rest
}

// cover covers what lies between two beginnings of the first of these grains.
func cover(grains []grain, from, to int64) []stretch {
	if from >= to {
		return nil
	}
	if len(grains) > 1 {
		if lo, hi := grains[1].ceil(from), grains[1].floor(to); lo < hi {
			return append(append(cover(grains[:1], from, lo), cover(grains[1:], lo, hi)...), cover(grains[:1], hi, to)...)
		}
	}
	return []stretch{{grains[0], from, to}}
}
