// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/agentplatform/agentplatform/internal/restclient"
)

// Names of the events of a run.
const (
	eventStep = "step"
	eventLog  = "log"
	eventEnd  = "end"
)

// followRun prints the events of a run until it has ended. It returns an outcomeError if the run failed or was cancelled.
func (o *runsOptions) followRun(ctx context.Context, id string, out, messages io.Writer, showsSteps bool) error {
	if o.output == outputYAML {
		return errors.New("--output: --follow prints text or json")
	}
	if err := checkRunIDs(id); err != nil {
		return err
	}
	f := runFollower{out: out, showsSteps: showsSteps, asJSON: o.output == outputJSON, depths: spanDepths{}, shown: map[string]string{}}
	for event, err := range o.api.RunEvents(ctx, id) {
		if err == nil {
			err = f.printEvent(event)
		}
		if err != nil {
			return fmt.Errorf("following run %s: %w", id, err)
		}
	}
	run, err := o.api.GetRun(ctx, id)
	if err != nil {
		return fmt.Errorf("reading run %s: %w", id, err)
	}
	if err := runOutcome(run.Value); err != nil {
		return err
	}
	fmt.Fprintln(messages, "the run is "+paintStatus(messages, string(run.Value.Status)))
	return nil
}

// runFollower prints the events of a run.
type runFollower struct {
	out                io.Writer
	showsSteps, asJSON bool
	depths             spanDepths
	// shown is the JSON of the printed steps, by their IDs. A step that comes again unchanged is not printed.
	shown map[string]string
}

// printEvent prints an event, as JSON in one line.
func (f *runFollower) printEvent(event restclient.Event) error {
	switch event.Name {
	case eventStep:
		return f.printStep(event)
	case eventLog:
		var line logLine
		if err := json.Unmarshal(event.Data, &line); err != nil {
			return fmt.Errorf("reading a log line: %w", err)
		}
		return f.printLine(event, line.format())
	case eventEnd:
		return f.printEnd(event)
	}
	return nil // A newer server has more kinds of events.
}

// printLine prints an event: as JSON, or the line for people.
func (f *runFollower) printLine(event restclient.Event, line string) error {
	if f.asJSON {
		line = jsonLine(fmt.Appendf(nil, `{"event":%q,"data":%s}`, event.Name, event.Data))
	}
	_, err := fmt.Fprintln(f.out, line)
	return err
}

func (f *runFollower) printStep(event restclient.Event) error {
	if !f.showsSteps {
		return nil
	}
	var s restclient.Span
	if err := json.Unmarshal(event.Data, &s); err != nil {
		return fmt.Errorf("reading a step: %w", err)
	}
	if data := string(event.Data); f.shown[s.ID] != data {
		f.shown[s.ID] = data
		return f.printLine(event, f.describeStep(&s))
	}
	return nil
}

// describeStep returns the line of a step: the time of the change, the name and the duration, and then the tokens, the cost and
// the error if the step has them.
func (f *runFollower) describeStep(s *restclient.Span) string {
	at := s.StartedAt
	if end := restclient.PointerTo(s.EndedAt); end != nil {
		at = *end
	}
	cells := spanCells(s, f.depths.indent(s))
	line := []string{formatMoment(at), cells.name, cells.duration}
	if cells.tokens != "" {
		line = append(line, cells.tokens+" tokens")
	}
	if cells.cost != "" {
		line = append(line, cells.cost)
	}
	if cells.failure != "" {
		line = append(line, paintAs(f.out, red, cells.failure))
	}
	return strings.Join(line, "  ")
}

// printEnd prints the end as JSON, or how many steps and lines the platform left out.
func (f *runFollower) printEnd(event restclient.Event) error {
	if f.asJSON {
		return f.printLine(event, "")
	}
	var end struct {
		MoreTraces int64 `json:"more_traces"`
		MoreLogs   int64 `json:"more_logs"`
	}
	if err := json.Unmarshal(event.Data, &end); err != nil {
		return fmt.Errorf("reading the end of the run: %w", err)
	}
	if f.showsSteps {
		printOmitted(f.out, end.MoreTraces, "steps")
	}
	printOmitted(f.out, end.MoreLogs, "lines")
	return nil
}
