// SPDX-License-Identifier: Apache-2.0

// Package cron parses the schedules of cron connectors and computes their ticks. It alone defines
// valid schedules, time zones and inputs of ticks, for the kinds, the REST API and the files of a
// repository.
package cron

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"
	_ "time/tzdata" // images contain no time zones

	"github.com/robfig/cron/v3"

	"github.com/agentplatform/agentplatform/internal/jsonscan"
)

// MaxInput limits the input of a tick, prompt and payload together, in bytes of JSON.
const MaxInput = 64 << 10

// Missed selects the treatment of ticks that could not run in time.
type Missed string

// Treatments of missed ticks.
const (
	// MissedSkip skips them.
	MissedSkip Missed = "skip"
	// MissedLatest runs the newest of them once.
	MissedLatest Missed = "latest"
)

// ParseMissed parses a treatment, "" for MissedSkip. Its error is a *FieldError.
func ParseMissed(word string) (Missed, error) {
	switch missed := Missed(word); missed {
	case "":
		return MissedSkip, nil
	case MissedSkip, MissedLatest:
		return missed, nil
	}
	return "", &FieldError{Field: FieldMissed, Problem: "must be skip or latest"}
}

// Field is a field of a cron connector, named as in the REST API and the files of a repository.
type Field string

// Fields.
const (
	FieldSchedule Field = "schedule"
	FieldZone     Field = "timezone"
	FieldMissed   Field = "missed_ticks"
	FieldPayload  Field = "payload"
)

// FieldError is the problem of a field. It never contains the field's value.
type FieldError struct {
	Field Field
	// Problem continues the field's name: "must be …".
	Problem string
}

// Error returns the field and its problem.
func (e *FieldError) Error() string { return string(e.Field) + " " + e.Problem }

// Schedule computes the ticks of a schedule in a time zone. The zero value has none.
//
// Ticks follow the rules of a Kubernetes CronJob. A tick in an hour that the clocks skip does not
// occur. A tick in an hour that the clocks repeat occurs twice. A schedule with a day of the month
// and a day of the week matches either.
type Schedule struct {
	// ticks are ticks in UTC, because the library loses ticks in other zones on days with a change
	// of the clocks.
	ticks cron.Schedule
	zone  *time.Location
}

// parser accepts five fields or a name such as @hourly. The zone is a separate field. @every is not
// supported, because its ticks would depend on the start time.
var parser = cron.NewParser(cron.Minute | cron.Hour | cron.Dom | cron.Month | cron.Dow | cron.Descriptor)

// leapYear is the year before a leap year. A schedule without a tick within five years of it never
// has one.
var leapYear = time.Date(2023, 1, 1, 0, 0, 0, 0, time.UTC)

// Parse parses a schedule and a time zone, "" for UTC. Its error is a *FieldError.
func Parse(schedule, zone string) (Schedule, error) {
	in, err := ParseZone(zone)
	if err != nil {
		return Schedule{}, err
	}
	ticks, err := parseSchedule(schedule)
	if err != nil {
		return Schedule{}, &FieldError{Field: FieldSchedule, Problem: err.Error()}
	}
	return Schedule{ticks: ticks, zone: in}, nil
}

const notASchedule = `must have five fields, such as "0 6 * * 1-5", or be one of @yearly, @annually, @monthly, @weekly, @daily, @midnight and @hourly`

// parseSchedule parses a schedule without a zone.
func parseSchedule(schedule string) (cron.Schedule, error) {
	switch {
	case strings.Contains(schedule, "TZ="):
		return nil, errors.New("must not contain a time zone; set the separate field")
	case strings.HasPrefix(schedule, "@every"):
		return nil, errors.New("must not be @every, because its ticks would depend on the start time; write five fields")
	case strings.Trim(schedule, " \t\r\n") != schedule, strings.ContainsAny(schedule, "\t\r\n"):
		return nil, errors.New("must have its fields on one line, separated by spaces, with no spaces around them")
	}
	ticks, err := parser.Parse(schedule)
	if err != nil {
		return nil, errors.New(cmp.Or(wrongField(schedule), notASchedule))
	}
	if ticks.Next(leapYear).IsZero() {
		return nil, errors.New("must match at least one date: no month has these days")
	}
	return ticks, nil
}

// fields are the five fields of a schedule and their values.
var fields = []struct{ name, values string }{
	{"minute", "0-59"}, {"hour", "0-23"}, {"day of the month", "1-31"}, {"month", "1-12 or JAN-DEC"}, {"day of the week", "0-6 or SUN-SAT"},
}

// wrongField returns the invalid field, or "" if there are not five fields.
func wrongField(schedule string) string {
	parts := strings.Fields(schedule)
	if len(parts) != len(fields) {
		return ""
	}
	for i, part := range parts {
		alone := []string{"*", "*", "*", "*", "*"}
		alone[i] = part
		if _, err := parser.Parse(strings.Join(alone, " ")); err != nil {
			return fmt.Sprintf("has %.40q for the %s; use *, or values of %s as a list, as a range, or with a step such as */2", part, fields[i].name, fields[i].values)
		}
	}
	return ""
}

// ParseZone parses the IANA name of a time zone, "" for UTC. Its error is a *FieldError.
func ParseZone(name string) (*time.Location, error) {
	if name == "Local" { // "Local" is the zone of the process
		return nil, &FieldError{Field: FieldZone, Problem: notAZone}
	}
	zone, err := time.LoadLocation(name)
	if err != nil {
		return nil, &FieldError{Field: FieldZone, Problem: notAZone}
	}
	return zone, nil
}

const notAZone = "must be the IANA name of a time zone, such as Europe/Paris"

// maxYears limits how far ahead Next searches.
const maxYears = 5

// Next returns the first tick after a time, in UTC, or the zero time if there is none within five
// years.
//
// Between two changes of the clocks a zone has a constant offset from UTC. Next searches each such
// period separately, by local time. A skipped local time is in no period, and a repeated one is in
// two. So ticks never go back.
func (s Schedule) Next(after time.Time) time.Time {
	if s.ticks == nil {
		return time.Time{}
	}
	begin := after.In(s.zone)
	for last := begin.Year() + maxYears; begin.Year() <= last; {
		_, seconds := begin.Zone()
		offset := time.Duration(seconds) * time.Second
		shown := s.ticks.Next(after.UTC().Add(offset)) // UTC never changes, so it can represent the zone's clock
		if shown.IsZero() {
			return time.Time{}
		}
		end := endOfPeriod(begin)
		if tick := shown.Add(-offset); end.IsZero() || tick.Before(end) {
			return tick
		}
		begin, after = end, end.Add(-time.Nanosecond)
	}
	return time.Time{}
}

// endOfPeriod returns the time until which the offset at moment applies, or an earlier time after
// moment. It returns the zero time if the offset never changes again.
func endOfPeriod(moment time.Time) time.Time {
	_, end := moment.ZoneBounds()
	if !end.IsZero() && !end.After(moment) { // Go ends a leap year one day early
		return moment.Add(24 * time.Hour)
	}
	return end
}

// Latest returns the newest tick from from to now, or the zero time. Its cost does not depend on
// the number of ticks.
func (s Schedule) Latest(from, now time.Time) time.Time {
	first := s.Next(from.Add(-time.Nanosecond))
	if first.IsZero() || first.After(now) {
		return time.Time{}
	}
	// A tick follows early and none follows late. Each step halves the interval.
	early, late := from.Add(-time.Nanosecond), now
	for late.Sub(early) > time.Second {
		middle := early.Add(late.Sub(early) / 2)
		if next := s.Next(middle); !next.IsZero() && !next.After(now) {
			early = middle
		} else {
			late = middle
		}
	}
	return s.Next(early)
}

// Input is the input of a tick for the agents.
type Input struct {
	// ScheduledAt is the time of the tick, in UTC.
	ScheduledAt time.Time `json:"scheduled_at"`
	// Prompt is the connector's prompt, or "".
	Prompt string `json:"prompt"`
	// Payload is the connector's payload, a JSON object, or {}.
	Payload json.RawMessage `json:"payload"`
}

// JSON returns the input as it is stored, at most MaxInput bytes. Its error is a *FieldError.
func (i Input) JSON() ([]byte, error) {
	if len(i.Payload) == 0 || string(i.Payload) == "null" {
		i.Payload = json.RawMessage("{}")
	}
	var object map[string]json.RawMessage
	if len(i.Payload) > MaxInput {
		return nil, &FieldError{Field: FieldPayload, Problem: tooLarge}
	}
	if err := json.Unmarshal(i.Payload, &object); err != nil {
		return nil, &FieldError{Field: FieldPayload, Problem: "must be a JSON object"}
	}
	if err := jsonscan.Check(i.Payload); err != nil {
		return nil, &FieldError{Field: FieldPayload, Problem: "must be JSON that agents can read: " + err.Error()}
	}
	i.ScheduledAt = i.ScheduledAt.UTC()
	var out bytes.Buffer
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(false) // a model reads it
	if err := encoder.Encode(i); err != nil {
		return nil, &FieldError{Field: FieldPayload, Problem: "must be a JSON object"}
	}
	text := bytes.TrimSuffix(out.Bytes(), []byte("\n"))
	if len(text) > MaxInput {
		return nil, &FieldError{Field: FieldPayload, Problem: tooLarge}
	}
	return text, nil
}

var tooLarge = fmt.Sprintf("must keep the input of a run, prompt and payload as JSON, within %d bytes", MaxInput)

// Check returns all problems of a cron connector by field. The tags of package connector limit the lengths.
func Check(schedule, zone, prompt string, payload json.RawMessage) (wrong []*FieldError) {
	note := func(err error) {
		var field *FieldError
		if errors.As(err, &field) {
			wrong = append(wrong, field)
		}
	}
	_, err := Parse(schedule, "")
	note(err)
	_, err = ParseZone(zone)
	note(err)
	_, err = Input{ScheduledAt: longest, Prompt: prompt, Payload: payload}.JSON()
	note(err)
	if err == nil {
		note(checkNumbers(payload))
	}
	return wrong
}

// longest is a tick time with the longest text.
var longest = time.Date(2026, 1, 1, 0, 0, 0, 999_999_999, time.UTC)
