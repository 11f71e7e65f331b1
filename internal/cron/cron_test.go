// SPDX-License-Identifier: Apache-2.0

package cron

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func at(t *testing.T, text string) time.Time {
	t.Helper()
	moment, err := time.Parse(time.RFC3339, text)
	require.NoError(t, err)
	return moment
}

func parsed(t *testing.T, schedule, zone string) Schedule {
	t.Helper()
	s, err := Parse(schedule, zone)
	require.NoError(t, err)
	return s
}

func TestNext_ReturnsTicks(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		schedule, zone, after string
		ticks                 []string
	}{
		"every five minutes": {"*/5 * * * *", "", "2026-01-01T00:04:59.5Z", []string{"2026-01-01T00:05:00Z", "2026-01-01T00:10:00Z"}},
		"at a tick":          {"@hourly", "UTC", "2026-01-01T01:00:00Z", []string{"2026-01-01T02:00:00Z"}},
		"in a zone":          {"0 9 * * MON-FRI", "Asia/Tokyo", "2026-01-02T00:00:00Z", []string{"2026-01-05T00:00:00Z"}},
		"day or weekday":     {"0 0 13 * FRI", "", "2026-02-01T00:00:00Z", []string{"2026-02-06T00:00:00Z", "2026-02-13T00:00:00Z"}},
		"the leap day":       {"0 0 29 2 *", "", "2026-01-01T00:00:00Z", []string{"2028-02-29T00:00:00Z"}},
		"a skipped hour is skipped": {"30 2 * * *", "Europe/Berlin", "2026-03-28T00:00:00Z", []string{
			"2026-03-28T01:30:00Z", "2026-03-30T00:30:00Z",
		}},
		"a doubled hour comes twice": {"30 2 * * *", "Europe/Berlin", "2026-10-24T12:00:00Z", []string{
			"2026-10-25T00:30:00Z", "2026-10-25T01:30:00Z", "2026-10-26T01:30:00Z",
		}},
		"every hour of a day with 23": {"0 * * * *", "Europe/Berlin", "2026-03-29T00:30:00Z", []string{
			"2026-03-29T01:00:00Z", "2026-03-29T02:00:00Z",
		}},
	} {
		t.Run(name, func(t *testing.T) {
			s, next := parsed(t, c.schedule, c.zone), at(t, c.after)
			for _, want := range c.ticks {
				next = s.Next(next)
				require.Equal(t, want, next.Format(time.RFC3339Nano))
			}
		})
	}
	require.Zero(t, Schedule{}.Next(time.Now()))
}

func TestParse_RejectsInvalidSchedules(t *testing.T) {
	t.Parallel()
	for value, want := range map[string]string{
		"":                       "five fields",
		"x":                      "five fields",
		"99 99 99 99 99":         `has "99" for the minute; use *, or values of 0-59`,
		"0 24 * * *":             `has "24" for the hour`,
		"0 0 0 * *":              `has "0" for the day of the month`,
		"0 0 * 13 *":             `has "13" for the month`,
		"0 0 * * MOO":            `has "MOO" for the day of the week`,
		"* * * *":                "five fields",
		"0 * * * * *":            "five fields",
		"*/0 * * * *":            `has "*/0" for the minute`,
		"@reboot":                "five fields",
		"@every 5m":              "@every",
		"TZ=UTC * * * * *":       "time zone",
		"CRON_TZ=Mars * * * * *": "time zone",
		"TZ=":                    "time zone",
		" * * * * *":             "one line",
		"* * * *\t*":             "one line",
		"0 0 30 2 *":             "no month",
	} {
		t.Run(fmt.Sprintf("%.60s", value), func(t *testing.T) {
			_, err := Parse(value, "")
			var field *FieldError
			require.ErrorAs(t, err, &field, value)
			require.Equal(t, FieldSchedule, field.Field, value)
			require.Contains(t, field.Error(), want, value)
		})
	}
	for _, zone := range []string{"Mars/Phobos", "Local", "../../etc/passwd", "/etc/localtime", strings.Repeat("a", 65), "Europe/Berlin "} {
		_, err := Parse("@daily", zone)
		var field *FieldError
		require.ErrorAs(t, err, &field, zone)
		require.Equal(t, "timezone must be the IANA name of a time zone, such as Europe/Paris", field.Error())
	}
}

func TestInput_EncodesJSON(t *testing.T) {
	t.Parallel()
	tick := time.Date(2026, 1, 1, 1, 0, 0, 0, time.FixedZone("", 3600))
	for want, in := range map[string]Input{
		`{"scheduled_at":"2026-01-01T00:00:00Z","prompt":"","payload":{}}`:           {ScheduledAt: tick},
		`{"scheduled_at":"2026-01-01T00:00:00Z","prompt":"a < b","payload":{"a":1}}`: {ScheduledAt: tick, Prompt: "a < b", Payload: json.RawMessage(`{ "a": 1 }`)},
		`{"scheduled_at":"2026-01-01T00:00:00Z","prompt":"x","payload":{} }`:         {ScheduledAt: tick, Prompt: "x", Payload: json.RawMessage(`null`)},
	} {
		t.Run(want, func(t *testing.T) {
			got, err := in.JSON()
			require.NoError(t, err)
			require.JSONEq(t, want, string(got))
			require.NotContains(t, string(got), `\u003c`)
		})
	}
	full := MaxInput - len(`{"scheduled_at":"2026-01-01T00:00:00.999999999Z","prompt":"","payload":{"a":""}}`)
	for problem, payload := range map[string]string{
		"":                           `{"a":"` + strings.Repeat("x", full) + `"}`,
		"payload must keep the inpu": `{"a":"` + strings.Repeat("x", full+1) + `"}`,
		"line 1, column 6: the number is too large": `{"a":1e400}`,
		"line 1, column 7: the text is not UTF-8":   "{\"a\":\"\xe9\"}",
		"payload must be a JSON obje":               `[]`,
		"payload must be a JSON obj":                `{`,
	} {
		t.Run(problem, func(t *testing.T) {
			wrong := Check("@daily", "UTC", "", json.RawMessage(payload))
			if problem == "" {
				require.Empty(t, wrong)
				return
			}
			require.Len(t, wrong, 1)
			require.ErrorContains(t, wrong[0], problem)
		})
	}
	require.Len(t, Check("x", "y", "", json.RawMessage(`1`)), 3)
}

// schedules generates valid and unusual schedules.
func schedules() *rapid.Generator[string] {
	field := func(from, to int) *rapid.Generator[string] {
		return rapid.Custom(func(t *rapid.T) string {
			number := rapid.IntRange(from, to)
			switch a, b := number.Draw(t, "a"), number.Draw(t, "b"); rapid.IntRange(0, 4).Draw(t, "form") {
			case 0:
				return itoa(a)
			case 1:
				return itoa(min(a, b)) + "-" + itoa(max(a, b))
			case 2:
				return "*/" + itoa(max(a, 1))
			case 3:
				return itoa(a) + "," + itoa(b)
			}
			return "*"
		})
	}
	return rapid.Custom(func(t *rapid.T) string {
		if rapid.IntRange(0, 5).Draw(t, "word") == 0 {
			return rapid.SampledFrom([]string{"@yearly", "@monthly", "@weekly", "@daily", "@hourly"}).Draw(t, "schedule")
		}
		return strings.Join([]string{
			field(0, 59).Draw(t, "minute"), field(0, 23).Draw(t, "hour"), field(1, 31).Draw(t, "day"),
			field(1, 12).Draw(t, "month"), field(0, 6).Draw(t, "weekday"),
		}, " ")
	})
}

func itoa(n int) string {
	text, _ := json.Marshal(n)
	return string(text)
}

var zones = []string{
	"", "UTC", "Europe/Berlin", "America/New_York", "America/Sao_Paulo", "America/Havana", "Australia/Lord_Howe", "Asia/Kathmandu",
	"Asia/Beirut", "Africa/Casablanca", "Pacific/Apia", "Pacific/Chatham",
}

// The binary search finds the same tick as a search through all of them, and ticks are in order.
func TestLatest_ReturnsLastTick(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		s, err := Parse(schedules().Draw(t, "schedule"), rapid.SampledFrom(zones).Draw(t, "zone"))
		if err != nil { // 30 February
			return
		}
		from := time.Unix(rapid.Int64Range(1_200_000_000, 2_000_000_000).Draw(t, "from"), 0)
		now := from.Add(time.Duration(rapid.Int64Range(0, int64(72*time.Hour)).Draw(t, "for")))
		var last time.Time
		for tick := s.Next(from.Add(-1)); !tick.IsZero() && !tick.After(now); tick = s.Next(tick) {
			if !tick.After(last) {
				t.Fatalf("%s does not follow %s", tick, last)
			}
			last = tick
		}
		if got := s.Latest(from, now); !got.Equal(last) {
			t.Fatalf("from %s to %s: %s, not %s", from, now, got, last)
		}
	})
}

// FuzzParse checks that any text is parsed or rejected, and that a tick follows its predecessor.
func FuzzParse(f *testing.F) {
	for _, seed := range []string{"* * * * *", "@hourly", "TZ=", "CRON_TZ=UTC 1 2 3 4 5", "1-2/3 ? L W #", "0 0 31 2,4 *", "@every 1ns"} {
		f.Add(seed, "Europe/Berlin", "prompt", []byte(`{"a":1}`))
	}
	f.Fuzz(func(t *testing.T, schedule, zone, prompt string, payload []byte) {
		wrong := Check(schedule, zone, prompt, payload)
		s, err := Parse(schedule, zone)
		if err != nil {
			if len(wrong) == 0 {
				t.Fatal(err)
			}
			return
		}
		if next := s.Next(leapYear); !next.After(leapYear) {
			t.Fatalf("%q in %q: %s", schedule, zone, next)
		}
	})
}
