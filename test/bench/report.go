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

// Figure is a measurement. Ratio is Value over Yardstick; Better says whether a
// higher or a lower one is better, Aim what it should be, 0 for none.
type Figure struct {
	Name      string  `json:"name"`
	Value     float64 `json:"value"`
	Unit      string  `json:"unit"`
	Yardstick float64 `json:"yardstick"`
	Ratio     float64 `json:"ratio"`
	Better    string  `json:"better"`
	Aim       float64 `json:"aim,omitempty"`
}

// Rate is a figure of which more is better, Cost one of which less is.
func Rate(name, unit string, value, yardstick, aim float64) Figure {
	return Figure{name, value, unit, yardstick, value / yardstick, "higher", aim}
}

// Cost is a figure of which less is better.
func Cost(name, unit string, value, yardstick, aim float64) Figure {
	return Figure{name, value, unit, yardstick, value / yardstick, "lower", aim}
}

// Write prints figures as JSON lines, to three digits after the point.
func Write(w io.Writer, figures ...Figure) error {
	for _, f := range figures {
		f.Value, f.Yardstick, f.Ratio = round(f.Value), round(f.Yardstick), round(f.Ratio)
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

func round(f float64) float64 { return float64(int64(f*1000+0.5)) / 1000 }

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
