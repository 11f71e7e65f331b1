// SPDX-License-Identifier: Apache-2.0

// Package bench measures the platform through its front doors, each figure
// against a yardstick that the same run measures on the same machine. `make
// bench` prints the lines.
package bench

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"time"
)

// Figure is a measurement. Ratio is Value divided by Yardstick. Better is "higher" or "lower". Aim is the target, or 0 for no
// target. Spread is set for a figure of several rounds: the largest ratio minus the smallest, divided by the median.
type Figure struct {
	Name      string  `json:"name"`
	Value     float64 `json:"value"`
	Unit      string  `json:"unit"`
	Yardstick float64 `json:"yardstick"`
	Ratio     float64 `json:"ratio"`
	Better    string  `json:"better"`
	Aim       float64 `json:"aim,omitempty"`
	Spread    float64 `json:"spread,omitempty"`
}

// Rate returns a figure for which a higher value is better.
func Rate(name, unit string, value, yardstick, aim float64) Figure {
	return Figure{name, value, unit, yardstick, value / yardstick, "higher", aim, 0}
}

// Cost returns a figure for which a lower value is better.
func Cost(name, unit string, value, yardstick, aim float64) Figure {
	return Figure{name, value, unit, yardstick, value / yardstick, "lower", aim, 0}
}

// Over is the figure of several rounds of one: each of its numbers is the middle one of
// theirs.
func Over(rounds []Figure) Figure {
	f := rounds[0]
	var values, yardsticks, ratios []float64
	for _, round := range rounds {
		values, yardsticks, ratios = append(values, round.Value), append(yardsticks, round.Yardstick), append(ratios, round.Ratio)
	}
	f.Value, f.Yardstick, f.Ratio = median(values), median(yardsticks), median(ratios)
	if f.Ratio > 0 {
		f.Spread = (slices.Max(ratios) - slices.Min(ratios)) / f.Ratio
	}
	return f
}

// median is the middle one of numbers, which are sorted in place, or the mean of the two
// in the middle.
func median(numbers []float64) float64 {
	slices.Sort(numbers)
	half := len(numbers) / 2
	if len(numbers)%2 == 1 {
		return numbers[half]
	}
	return (numbers[half-1] + numbers[half]) / 2
}

// Write prints figures as JSON lines, to three digits after the point.
func Write(w io.Writer, figures ...Figure) error {
	for _, f := range figures {
		f.Value, f.Yardstick, f.Ratio, f.Spread = roundMillis(f.Value), roundMillis(f.Yardstick), roundMillis(f.Ratio), roundMillis(f.Spread)
		line, err := json.Marshal(f)
		if err != nil {
			return fmt.Errorf("writing figure %s: %w", f.Name, err)
		}
		if _, err := fmt.Fprintf(w, "%s\n", line); err != nil {
			return err
		}
	}
	return nil
}

func roundMillis(f float64) float64 { return float64(int64(f*1000+0.5)) / 1000 }

// Percentile is the duration that a share of all is not longer than, in
// milliseconds; durations are sorted in place.
func Percentile(durations []time.Duration, share float64) float64 {
	if len(durations) == 0 {
		return 0
	}
	slices.Sort(durations)
	at := min(int(share*float64(len(durations))), len(durations)-1)
	return float64(durations[at].Microseconds()) / 1000
}
