// SPDX-License-Identifier: Apache-2.0

// Package cron reads the schedules of cron connectors and tells their ticks. It is the one
// place that says what a schedule, a time zone and the input of a tick may be: the kinds,
// the REST API and the files of a repository all ask here.
package cron

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"
	_ "time/tzdata" // images hold no time zones

	"github.com/robfig/cron/v3"

	"github.com/agentplatform/agentplatform/internal/jsonscan"
)

// Bounds of what a cron connector is made of.
const (
	// MaxSchedule and MaxZone are in bytes.
	MaxSchedule, MaxZone = 256, 64
	// MaxPrompt is in characters.
	MaxPrompt = 16 << 10
	// MaxInput is how many bytes the input of a tick has at most, prompt and payload
	// together, as JSON.
	MaxInput = 64 << 10
)

// Missed says what becomes of ticks that came while nobody could run them.
type Missed string

// Ways to go on after missed ticks.
const (
	// MissedSkip: nothing; the schedule goes on.
	MissedSkip Missed = "skip"
	// MissedLatest: the newest of them is run, once.
	MissedLatest Missed = "latest"
)

// ParseMissed reads a way to go on, "" for MissedSkip. Any error is a *FieldError.
func ParseMissed(word string) (Missed, error) {
	switch missed := Missed(word); missed {
	case "":
		return MissedSkip, nil
	case MissedSkip, MissedLatest:
		return missed, nil
	}
	return "", &FieldError{Field: FieldMissed, Problem: "must be skip or latest"}
}

// Field is a part of a cron connector, as the REST API and the files of a repository name it.
type Field string

// Fields.
const (
	FieldSchedule Field = "schedule"
	FieldZone     Field = "timezone"
	FieldMissed   Field = "missed_ticks"
	FieldPrompt   Field = "prompt"
	FieldPayload  Field = "payload"
)

// FieldError says what is wrong with a field. It never repeats the field's value.
type FieldError struct {
	Field Field
	// Problem goes on after the field's name: "must be …".
	Problem string
}

// Error is the field and its problem.
func (e *FieldError) Error() string { return string(e.Field) + " " + e.Problem }

// Schedule tells the ticks of a schedule in a time zone. The zero value has none.
//
// Ticks have the rules of Kubernetes' CronJob: a tick whose time the clocks skip when they go
// forward does not come that day, one whose time they show twice comes twice. A schedule
// with both a day of the month and a day of the week comes on either.
type Schedule struct {
	// ticks are those in UTC: Next of the library loses ticks in other zones, on days on which the clocks change.
	ticks cron.Schedule
	zone  *time.Location
}

// parser reads five fields, or a word such as @hourly. The zone stands in a field of its
// own, and there is no @every: its ticks would depend on when somebody began to count.
var parser = cron.NewParser(cron.Minute | cron.Hour | cron.Dom | cron.Month | cron.Dow | cron.Descriptor)

// leapYear is the year before one with all days: a schedule that does not come within five
// years of it never comes.
var leapYear = time.Date(2023, 1, 1, 0, 0, 0, 0, time.UTC)

// Parse reads a schedule and a time zone, "" for UTC. Any error is a *FieldError.
func Parse(schedule, zone string) (Schedule, error) {
	in, err := ParseZone(zone)
	if err != nil {
		return Schedule{}, err
	}
	ticks, err := parse(schedule)
	if err != nil {
		return Schedule{}, &FieldError{Field: FieldSchedule, Problem: err.Error()}
	}
	return Schedule{ticks: ticks, zone: in}, nil
}

const notASchedule = `must have five fields, such as "0 6 * * 1-5", or be one of @yearly, @annually, @monthly, @weekly, @daily, @midnight and @hourly`

// parse reads a schedule without a zone.
func parse(schedule string) (cron.Schedule, error) {
	switch {
	case len(schedule) > MaxSchedule:
		return nil, fmt.Errorf("must have at most %d bytes", MaxSchedule)
	case strings.Contains(schedule, "TZ="):
		return nil, errors.New("must not name a time zone: it has a field of its own")
	case strings.HasPrefix(schedule, "@every"):
		return nil, errors.New("must not be @every: its ticks would depend on when it began; write five fields")
	case strings.Trim(schedule, " \t\r\n") != schedule, strings.ContainsAny(schedule, "\t\r\n"):
		return nil, errors.New("must have its fields on one line, with spaces between and none around them")
	}
	ticks, err := parser.Parse(schedule)
	if err != nil {
		return nil, errors.New(cmp.Or(wrongField(schedule), notASchedule))
	}
	if ticks.Next(leapYear).IsZero() {
		return nil, errors.New("must come at some time: no month has all that it asks for")
	}
	return ticks, nil
}

// fields are what the five fields of a schedule say, and the values that each may have.
var fields = []struct{ name, values string }{
	{"minute", "0-59"}, {"hour", "0-23"}, {"day of the month", "1-31"}, {"month", "1-12 or JAN-DEC"}, {"day of the week", "0-6 or SUN-SAT"},
}

// wrongField says which of five fields is wrong; "" where there are not five.
func wrongField(schedule string) string {
	parts := strings.Fields(schedule)
	if len(parts) != len(fields) {
		return ""
	}
	for i, part := range parts {
		alone := []string{"*", "*", "*", "*", "*"}
		alone[i] = part
		if _, err := parser.Parse(strings.Join(alone, " ")); err != nil {
			return fmt.Sprintf("has %q for the %s, which must be * or of %s, as a list, a range or with a step such as */2", part, fields[i].name, fields[i].values)
		}
	}
	return ""
}

// ParseZone reads the IANA name of a time zone, "" for UTC. Any error is a *FieldError.
func ParseZone(name string) (*time.Location, error) {
	if len(name) > MaxZone || name == "Local" { // which would be that of a process
		return nil, &FieldError{Field: FieldZone, Problem: notAZone}
	}
	zone, err := time.LoadLocation(name)
	if err != nil {
		return nil, &FieldError{Field: FieldZone, Problem: notAZone}
	}
	return zone, nil
}

const notAZone = "must be the IANA name of a time zone, such as Europe/Paris"

// maxYears is how many years ahead Next looks for a tick.
const maxYears = 5

// Next is the first tick after a moment, in UTC; the zero time where none comes within five
// years.
//
// Between two changes of the clocks, a zone's time differs from UTC by one amount. Next searches
// each such period on its own, by the time that the clocks show in it: a time that they skip is in
// no period, and a time that they show twice is in two. So ticks only ever go forward.
func (s Schedule) Next(after time.Time) time.Time {
	if s.ticks == nil {
		return time.Time{}
	}
	begin := after.In(s.zone)
	for last := begin.Year() + maxYears; begin.Year() <= last; {
		_, seconds := begin.Zone()
		offset := time.Duration(seconds) * time.Second
		shown := s.ticks.Next(after.UTC().Add(offset)) // UTC's clocks never change, so they stand for the zone's
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

// endOfPeriod is the moment until which the clocks of a moment's zone differ from UTC by as much as
// they do then, or an earlier one that lies after the moment; the zero time if they never change again.
func endOfPeriod(moment time.Time) time.Time {
	_, end := moment.ZoneBounds()
	if !end.IsZero() && !end.After(moment) { // Go takes a leap year to end a day early
		return moment.Add(24 * time.Hour)
	}
	return end
}

// Latest is the newest of the ticks that come at from or later, and not after now; the zero
// time where there is none. It costs little, however many they are.
func (s Schedule) Latest(from, now time.Time) time.Time {
	first := s.Next(from.Add(-time.Nanosecond))
	if first.IsZero() || first.After(now) {
		return time.Time{}
	}
	// A tick follows early and none follows late; what is between is halved.
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

// Input is what a tick hands to the agents.
type Input struct {
	// ScheduledAt is the tick's time, in UTC.
	ScheduledAt time.Time `json:"scheduled_at"`
	// Prompt is the connector's, "" without one.
	Prompt string `json:"prompt"`
	// Payload is the connector's, a JSON object; {} without one.
	Payload json.RawMessage `json:"payload"`
}

// JSON is the input as it is stored, at most MaxInput bytes. Any error is a *FieldError.
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
	encoder.SetEscapeHTML(false) // it is read by a model
	if err := encoder.Encode(i); err != nil {
		return nil, &FieldError{Field: FieldPayload, Problem: "must be a JSON object"}
	}
	text := bytes.TrimSuffix(out.Bytes(), []byte("\n"))
	if len(text) > MaxInput {
		return nil, &FieldError{Field: FieldPayload, Problem: tooLarge}
	}
	return text, nil
}

var tooLarge = fmt.Sprintf("must leave the input of a run, which is prompt and payload as JSON, within %d bytes", MaxInput)

// Check says what is wrong with a cron connector, field by field; nil when nothing is.
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
	if len([]rune(prompt)) > MaxPrompt {
		return append(wrong, &FieldError{Field: FieldPrompt, Problem: fmt.Sprintf("must have at most %d characters", MaxPrompt)})
	}
	_, err = Input{ScheduledAt: longest, Prompt: prompt, Payload: payload}.JSON()
	note(err)
	if err == nil {
		note(checkNumbers(payload))
	}
	return wrong
}

// longest is as long as a tick's time can be written.
var longest = time.Date(2026, 1, 1, 0, 0, 0, 999_999_999, time.UTC)
