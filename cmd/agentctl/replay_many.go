// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"crypto/rand"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"
)

// replayPoll is how often it is asked how far a replay has come.
const replayPoll = 5 * time.Second

// manyReplayed is what the API says of a replay of many.
type manyReplayed struct {
	ID       string           `json:"id"`
	Status   string           `json:"status"`
	Matched  int64            `json:"matched"`
	AtLeast  bool             `json:"at_least"`
	Replayed int64            `json:"replayed"`
	Refused  int64            `json:"refused"`
	Refusals map[string]int64 `json:"refusals"`
	Reason   string           `json:"reason"`
	Detail   string           `json:"detail"`
}

// String says how far it has come.
func (r manyReplayed) String() string {
	text := fmt.Sprintf("%d of %s replayed", r.Replayed, r.matched())
	if r.Refused > 0 {
		var reasons []string
		for _, reason := range slices.Sorted(maps.Keys(r.Refusals)) {
			reasons = append(reasons, fmt.Sprintf("%s %d", reason, r.Refusals[reason]))
		}
		text += fmt.Sprintf(", %d not (%s)", r.Refused, strings.Join(reasons, ", "))
	}
	switch {
	case r.Status != "running":
		text += ", " + r.Status
	case r.Reason != "":
		text += ", waiting"
	}
	if r.Reason != "" {
		text += ": " + printable(r.Detail)
	}
	return text
}

func (r manyReplayed) matched() string {
	if r.AtLeast {
		return fmt.Sprintf("at least %d", r.Matched)
	}
	return fmt.Sprint(r.Matched)
}

// replays is the path of the connector's replays.
func (o *replayOptions) replays() string { return "/connectors/" + o.connector + "/replays" }

// many lets the platform replay what the filter finds.
func (o *replayOptions) many(ctx context.Context, out, messages io.Writer) error {
	body := map[string]any{"status": o.status, "dry_run": o.dryRun, "rate_per_minute": o.rate}
	for flag, value := range map[string]string{"since": o.since, "until": o.until} {
		at, err := o.moment(flag, value)
		if err != nil {
			return err
		}
		if !at.IsZero() {
			body[flag] = at.UTC().Format(time.RFC3339Nano)
		}
	}
	if o.trigger != "" {
		body["trigger_type"] = o.trigger
	}
	var r manyReplayed
	if err := o.api.call(ctx, http.MethodPost, o.replays(), "agentctl-"+strings.ToLower(rand.Text()), body, &r); err != nil {
		return fmt.Errorf("replaying: %w", err)
	}
	if o.dryRun {
		fmt.Fprintf(messages, "%s would be replayed\n", r.matched())
		return nil
	}
	fmt.Fprintln(out, r.ID)
	return o.follow(ctx, r.ID, messages)
}

// follow shows how far a replay has come until it ends.
func (o *replayOptions) follow(ctx context.Context, id string, messages io.Writer) error {
	said := ""
	for {
		var r manyReplayed
		err := o.api.call(ctx, http.MethodGet, o.replays()+"/"+id, "", nil, &r)
		if err == nil {
			if text := r.String(); text != said {
				fmt.Fprintln(messages, text)
				said = text
			}
			switch {
			case r.Status != "running" && (r.Status != "completed" || r.Refused > 0):
				return fmt.Errorf("replay %s: %s", id, r)
			case r.Status != "running":
				return nil
			}
			err = o.api.wait(ctx, replayPoll)
		}
		if err != nil {
			return fmt.Errorf("replay %s may be going on; look at it with agentctl replay --connector %s --show %s, end it with --cancel %s: %w", id, o.connector, id, id, err)
		}
	}
}

// end cancels a replay.
func (o *replayOptions) end(ctx context.Context, messages io.Writer) error {
	var r manyReplayed
	if err := o.api.call(ctx, http.MethodPost, o.replays()+"/"+o.cancel+"/cancel", "agentctl-"+strings.ToLower(rand.Text()), nil, &r); err != nil {
		return fmt.Errorf("cancelling replay %s: %w", o.cancel, err)
	}
	fmt.Fprintln(messages, r)
	return nil
}
