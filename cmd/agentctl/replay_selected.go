// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/agentplatform/agentplatform/internal/restclient"
)

// replayPoll is how often the progress of a replay is read.
const replayPoll = 5 * time.Second

// formatProgress returns the progress of a replay on one line.
func formatProgress(r restclient.Replay) string {
	text := fmt.Sprintf("%d of %s replayed", r.Replayed, formatMatched(r))
	if r.Refused > 0 {
		var reasons []string
		for _, reason := range slices.Sorted(maps.Keys(r.Refusals)) {
			reasons = append(reasons, fmt.Sprintf("%s %d", reason, r.Refusals[reason]))
		}
		text += fmt.Sprintf(", %d not (%s)", r.Refused, strings.Join(reasons, ", "))
	}
	reason := restclient.ValueOf(r.Reason)
	switch {
	case r.Status != restclient.ReplayStatusRunning:
		text += ", " + string(r.Status)
	case reason != "":
		text += ", waiting"
	}
	if reason != "" {
		text += ": " + printable(restclient.ValueOf(r.Detail))
	}
	return text
}

func formatMatched(r restclient.Replay) string {
	if r.AtLeast {
		return fmt.Sprintf("at least %d", r.Matched)
	}
	return fmt.Sprint(r.Matched)
}

// replaySelected starts a replay of the runs that --status selects, and follows it.
func (o *replayOptions) replaySelected(ctx context.Context, out, messages io.Writer) error {
	rate := int64(o.rate)
	body := restclient.ReplayCreate{DryRun: &o.dryRun, RatePerMinute: &rate}
	for _, status := range o.status {
		body.Status = append(body.Status, restclient.EndedStatus(status))
	}
	since, err := o.parseMoment("since", o.since)
	if err != nil {
		return err
	}
	body.Since = *since
	if body.Until, err = o.parseMoment("until", o.until); err != nil {
		return err
	}
	if o.trigger != "" {
		body.TriggerType = new(restclient.TriggerType(o.trigger))
	}
	replay, err := o.api.CreateReplay(ctx, o.connector, nil, body)
	if err != nil {
		return fmt.Errorf("replaying: %w", err)
	}
	if o.dryRun {
		fmt.Fprintf(messages, "%s would be replayed\n", formatMatched(replay.Value))
		return nil
	}
	id := restclient.ValueOf(replay.Value.ID)
	fmt.Fprintln(out, id)
	return o.followReplay(ctx, id, messages)
}

// followReplay shows the progress of a replay until it ends.
func (o *replayOptions) followReplay(ctx context.Context, id string, messages io.Writer) error {
	reported := ""
	for {
		replay, err := o.api.GetReplay(ctx, o.connector, id)
		if err == nil {
			r := replay.Value
			if text := formatProgress(r); text != reported {
				fmt.Fprintln(messages, text)
				reported = text
			}
			switch {
			case r.Status != restclient.ReplayStatusRunning && (r.Status != restclient.ReplayStatusCompleted || r.Refused > 0):
				return fmt.Errorf("replay %s: %s", id, formatProgress(r))
			case r.Status != restclient.ReplayStatusRunning:
				return nil
			}
			err = o.api.Wait(ctx, replayPoll)
		}
		if err != nil {
			return fmt.Errorf("replay %s may still run; follow it with agentctl replay --connector %s --show %s, end it with --cancel %s: %w", id, o.connector, id, id, err)
		}
	}
}

// cancelReplay cancels a replay.
func (o *replayOptions) cancelReplay(ctx context.Context, messages io.Writer) error {
	replay, err := o.api.CancelReplay(ctx, o.connector, o.cancel, nil)
	if err != nil {
		return fmt.Errorf("cancelling replay %s: %w", o.cancel, err)
	}
	fmt.Fprintln(messages, formatProgress(replay.Value))
	return nil
}
