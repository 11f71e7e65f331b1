// SPDX-License-Identifier: Apache-2.0

package script

import (
	"errors"
	"fmt"
	"math"
	"time"
	_ "time/tzdata" // The child has no files of its own.

	"go.starlark.net/starlark"
)

// utc returns a time as text.
func formatUTC(a *arguments, t time.Time) (starlark.Value, error) {
	if a.err != nil {
		return nil, a.err
	}
	if t = t.UTC(); t.Year() < 1 || t.Year() > 9999 {
		return nil, fmt.Errorf("%s: the year is not between 1 and 9999", a.name)
	}
	return starlark.String(t.Format(time.RFC3339Nano)), nil
}

// time returns an argument with an RFC 3339 time.
func (a *arguments) timeArg(i int) time.Time {
	t, err := time.Parse(time.RFC3339Nano, a.textArg(i))
	if err != nil && a.err == nil {
		a.err = fmt.Errorf("%s: %s must be an RFC 3339 time such as 2026-01-02T03:04:05Z", a.name, a.names[i])
	}
	return t
}

// zone returns an argument with the name of a time zone.
func (a *arguments) zoneArg(i int) *time.Location {
	name := a.textArg(i)
	location, err := time.LoadLocation(name)
	if (err != nil || name == "Local") && a.err == nil {
		a.err = fmt.Errorf("%s: unknown time zone; use an IANA name such as Europe/Paris", a.name)
	}
	return location
}

func currentTime(c *call, a *arguments) (starlark.Value, error) { return formatUTC(a, c.message.Now) }

func parseTime(_ *call, a *arguments) (starlark.Value, error) {
	if a.values[1] == starlark.None {
		return formatUTC(a, a.timeArg(0))
	}
	text, format, zone := a.textArg(0), a.textArg(1), a.zoneArg(2)
	if a.err != nil {
		return nil, a.err
	}
	t, err := strptime(text, format, zone)
	if err != nil {
		return nil, fmt.Errorf("time.parse: %w", err)
	}
	return formatUTC(a, t)
}

func formatTime(_ *call, a *arguments) (starlark.Value, error) {
	t, format, zone := a.timeArg(0), a.textArg(1), a.zoneArg(2)
	if a.err != nil {
		return nil, a.err
	}
	text, err := strftime(t.In(zone), format)
	if err != nil {
		return nil, fmt.Errorf("time.format: %w", err)
	}
	return starlark.String(text), nil
}

// maxSeconds limits the seconds that time.add adds: 10,000 years.
const maxSeconds = 10_000 * 366 * 24 * 60 * 60

func addTime(_ *call, a *arguments) (starlark.Value, error) {
	t := a.timeArg(0)
	seconds := 0.0
	for i, unit := range []float64{24 * 60 * 60, 60 * 60, 60, 1} {
		seconds += a.floatArg(i+1) * unit
	}
	switch {
	case a.err != nil:
		return nil, a.err
	case !(math.Abs(seconds) <= maxSeconds):
		return nil, errors.New("time.add: the year is not between 1 and 9999")
	}
	whole, fraction := math.Modf(seconds)
	// A Duration ends after 292 years, so whole seconds are added to the date.
	t = time.Unix(t.Unix()+int64(whole), int64(t.Nanosecond())).Add(time.Duration(fraction * float64(time.Second)).Round(time.Microsecond))
	return formatUTC(a, t)
}

func unixTime(_ *call, a *arguments) (starlark.Value, error) {
	return starlark.MakeInt64(a.timeArg(0).Unix()), a.err
}
