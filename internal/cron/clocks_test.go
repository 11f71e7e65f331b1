// SPDX-License-Identifier: Apache-2.0

package cron

import (
	"archive/zip"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// wallClock is the local time of a minute.
type wallClock struct {
	month        time.Month
	day          int
	weekday      time.Weekday
	hour, minute int
}

// clockSchedules are schedules with independent rules for their minutes.
var clockSchedules = []struct {
	schedule string
	comes    func(c wallClock) bool
}{
	{"@hourly", func(c wallClock) bool { return c.minute == 0 }},
	{"0 12 * * *", func(c wallClock) bool { return c.hour == 12 && c.minute == 0 }},
	{"30 0-3 * * *", func(c wallClock) bool { return c.hour <= 3 && c.minute == 30 }},
	{"0 0 * * *", func(c wallClock) bool { return c.hour == 0 && c.minute == 0 }},
	{"*/7 23,0-2 * * *", func(c wallClock) bool { return (c.hour == 23 || c.hour <= 2) && c.minute%7 == 0 }},
	{"0 9 * * FRI,SUN", func(c wallClock) bool {
		return c.hour == 9 && c.minute == 0 && (c.weekday == time.Friday || c.weekday == time.Sunday)
	}},
	{"0 9 1-7,24-31 3,4,9,10,11 *", func(c wallClock) bool {
		months := []time.Month{time.March, time.April, time.September, time.October, time.November}
		return c.hour == 9 && c.minute == 0 && (c.day <= 7 || c.day >= 24) && slices.Contains(months, c.month)
	}},
	{"15 1,9 28-31 * SAT", func(c wallClock) bool {
		return (c.hour == 1 || c.hour == 9) && c.minute == 15 && (c.day >= 28 || c.weekday == time.Saturday)
	}},
}

// Around each change of the clocks in ten years, and at the end of a leap year, a tick occurs
// exactly in the minutes with a matching local time. The nightly job checks all zones of the
// database.
func TestNext_ChangeOfClocks(t *testing.T) {
	t.Parallel()
	for _, name := range clockZones(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			zone, err := time.LoadLocation(name)
			require.NoError(t, err)
			leapYearsEnd := time.Date(2028, 12, 31, 12, 0, 0, 0, time.UTC)
			for _, change := range append(clockChanges(zone), leapYearsEnd) {
				requireTicksOfClocks(t, name, zone, change.Add(-50*time.Hour), change.Add(50*time.Hour))
			}
		})
	}
}

// requireTicksOfClocks compares the ticks of all schedules with the minutes of a period.
func requireTicksOfClocks(t *testing.T, name string, zone *time.Location, from, to time.Time) {
	t.Helper()
	want := make([][]time.Time, len(clockSchedules))
	for minute := from; minute.Before(to); minute = minute.Add(time.Minute) {
		local := minute.In(zone)
		clock := wallClock{month: local.Month(), day: local.Day(), weekday: local.Weekday(), hour: local.Hour(), minute: local.Minute()}
		for i, s := range clockSchedules {
			if s.comes(clock) {
				want[i] = append(want[i], minute)
			}
		}
	}
	for i, c := range clockSchedules {
		s := parsed(t, c.schedule, name)
		var got []time.Time
		for tick := s.Next(from.Add(-time.Nanosecond)); tick.Before(to); tick = s.Next(tick) {
			require.False(t, tick.IsZero(), "%s ends", c.schedule)
			got = append(got, tick)
		}
		require.Equal(t, want[i], got, "%s from %s to %s", c.schedule, from.In(zone), to.In(zone))
	}
}

// clockChanges returns the minutes at which a zone's offset from UTC changes.
func clockChanges(zone *time.Location) []time.Time {
	offset := func(at time.Time) int {
		_, seconds := at.In(zone).Zone()
		return seconds
	}
	var changes []time.Time
	for hour := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC); hour.Year() < 2036; hour = hour.Add(time.Hour) {
		if offset(hour) == offset(hour.Add(time.Hour)) {
			continue
		}
		minute := hour
		for offset(minute) == offset(minute.Add(time.Minute)) {
			minute = minute.Add(time.Minute)
		}
		changes = append(changes, minute.Add(time.Minute))
	}
	return changes
}

// clockZones are zones that skip midnight or change by half an hour, and a sample of the others;
// all zones of the database if AGENTPLATFORM_NIGHTLY is 1.
func clockZones(t *testing.T) []string {
	t.Helper()
	all := databaseZones(t)
	if os.Getenv("AGENTPLATFORM_NIGHTLY") == "1" {
		return all
	}
	zones := []string{
		"Africa/Cairo", "Asia/Beirut", "Australia/Lord_Howe", "America/Santiago", "America/Havana", "Atlantic/Azores",
		"Africa/Casablanca", "America/Nuuk", "Antarctica/Troll", "Pacific/Chatham",
	}
	for _, i := range rand.New(rand.NewPCG(1, 2)).Perm(len(all))[:20] {
		if !slices.Contains(zones, all[i]) {
			zones = append(zones, all[i])
		}
	}
	return zones
}

// databaseZones returns the zones of Go's database.
func databaseZones(t *testing.T) []string {
	t.Helper()
	root, err := exec.CommandContext(t.Context(), "go", "env", "GOROOT").Output()
	require.NoError(t, err)
	files, err := zip.OpenReader(filepath.Join(strings.TrimSpace(string(root)), "lib", "time", "zoneinfo.zip"))
	require.NoError(t, err)
	defer func() { require.NoError(t, files.Close()) }()
	var names []string
	for _, file := range files.File {
		if !file.FileInfo().IsDir() {
			names = append(names, file.Name)
		}
	}
	require.Greater(t, len(names), 400)
	slices.Sort(names)
	return names
}

// A tick occurs on days without a midnight, and on time if the clocks change by half an hour.
func TestNext_SkippedMidnight(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ schedule, zone, after, want string }{
		"date in cairo":     {"0 9 30 4 *", "Africa/Cairo", "2027-01-01T00:00:00Z", "2027-04-30T06:00:00Z"},
		"weekday in cairo":  {"0 9 * * FRI", "Africa/Cairo", "2027-04-24T00:00:00Z", "2027-04-30T06:00:00Z"},
		"weekday in beirut": {"0 9 * * SUN", "Asia/Beirut", "2027-03-22T00:00:00Z", "2027-03-28T06:00:00Z"},
		"noon, lord howe":   {"0 12 * * *", "Australia/Lord_Howe", "2027-04-03T12:00:00Z", "2027-04-04T01:30:00Z"},
		"midnight in cairo": {"0 0 * * *", "Africa/Cairo", "2027-04-29T12:00:00Z", "2027-04-30T21:00:00Z"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, c.want, parsed(t, c.schedule, c.zone).Next(at(t, c.after)).Format(time.RFC3339))
		})
	}
}

// A schedule without a tick within five years has no next tick, in any zone.
func TestNext_Bound(t *testing.T) {
	t.Parallel()
	for _, zone := range []string{"UTC", "Africa/Cairo", "Asia/Tokyo"} {
		t.Run(fmt.Sprintf("leap day in %s", zone), func(t *testing.T) {
			t.Parallel()
			s := parsed(t, "0 12 29 2 *", zone)
			require.Zero(t, s.Next(at(t, "2096-03-02T00:00:00Z")))
			require.Equal(t, 2096, s.Next(at(t, "2092-03-02T00:00:00Z")).Year())
		})
	}
}
