// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/spf13/cobra"

	"github.com/agentplatform/agentplatform/internal/httpserver"
	"github.com/agentplatform/agentplatform/internal/restclient"
)

const (
	// maxReplayed limits the connector runs that a command can name, and maxNamedRate the replays per minute. The API allows 120
	// calls per minute and project. The rest is for other callers.
	maxReplayed  = 10_000
	maxNamedRate = 100
	// maxReplayRate is how many runs per minute the platform replays at most if --status selects them.
	maxReplayRate = 6000
	// progressEvery is after how many replays the command reports its progress.
	progressEvery = 100
	// maxResume is the maximum length of --resume.
	maxResume = 64
)

// replayOptions are the flags of `replay`.
type replayOptions struct {
	restOptions

	connector, environment, trigger, since, until, resume, show, cancel string
	status                                                              []string
	dryRun                                                              bool
	rate                                                                int

	now func() time.Time
	api *apiClient
}

func newReplayCommand() *cobra.Command {
	o := &replayOptions{now: time.Now}
	cmd := &cobra.Command{
		Use:   "replay --connector CONNECTOR [CONNECTOR-RUN...]",
		Short: "Replay events or deliveries of a connector",
		Long: `Replay events or deliveries of a connector.

Each replay is a new connector run. An event starts the agents that are linked now. A
delivery of an outbound connector sends the same result once more. The originals do not
change. A named delivery that waits for its next attempt is not replayed: its next attempt
is made at once instead.

--status and --since select the runs to replay. The platform then replays them in the
background, oldest first, at most 100,000, without earlier replays. The command prints the
ID of the replay first, and shows the progress until the replay ends. If you interrupt the
command, the replay continues: --show follows it, --cancel ends it. A replay waits while the
backlog of the project is full, or while the connector is disabled or paused.

You can also name connector runs. The command then replays one after the other, and waits
while the backlog of the project is full. It reports and skips runs that are no longer
stored, and stops at any other error. If you interrupt the command, --resume with the name
that it printed continues, and replays nothing twice. This works with the same API key,
within a day.

The command fails if a run could not be replayed.`,
		Example: `  agentctl replay --connector results 0199f3c2-...
  agentctl replay --connector results --status failed --since 24h --dry-run
  agentctl replay --connector results --status failed,skipped --since 2026-07-01T00:00:00Z --rate 300
  agentctl replay --connector results --show 5c1e09aa-...
  agentctl replay --connector results --cancel 5c1e09aa-...`,
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			if o.api, err = o.newClient(); err != nil {
				return err
			}
			return o.replayRuns(cmd.Context(), args, cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	flags := cmd.Flags()
	o.bindFlags(flags)
	flags.StringVar(&o.connector, "connector", "", "name or ID of the connector")
	bindLookup(flags, &o.environment)
	flags.StringSliceVar(&o.status, "status", nil, "replay runs with one of these statuses: completed, failed, skipped, cancelled")
	flags.StringVar(&o.trigger, "trigger", "", "with --status: only runs with this trigger: webhook, cron or outbound")
	flags.StringVar(&o.since, "since", "", "with --status: only runs that began since a time: a duration such as 24h, or a time such as 2026-07-01T00:00:00Z")
	flags.StringVar(&o.until, "until", "", "with --status: only runs that began before a time, in the same formats; default: now")
	flags.BoolVar(&o.dryRun, "dry-run", false, "only show how many runs would be replayed, or which ones if you name them")
	flags.IntVar(&o.rate, "rate", 600, "how many runs per minute, 1 to 6000; at most 100 if you name them")
	flags.StringVar(&o.resume, "resume", "", "name of an interrupted replay of named runs to continue")
	flags.StringVar(&o.show, "show", "", "ID of a replay to follow until it ends")
	flags.StringVar(&o.cancel, "cancel", "", "ID of a replay to cancel")
	return cmd
}

func (o *replayOptions) replayRuns(ctx context.Context, args []string, out, messages io.Writer) error {
	if err := o.checkFlags(args); err != nil {
		return err
	}
	id, err := o.api.findConnector(ctx, "--connector", o.environment, o.connector)
	if err != nil {
		return err
	}
	o.connector = id
	switch {
	case o.cancel != "":
		return o.cancelReplay(ctx, messages)
	case o.show != "":
		return o.followReplay(ctx, o.show, messages)
	case len(args) == 0:
		return o.replaySelected(ctx, out, messages)
	case o.dryRun:
		for _, id := range args {
			fmt.Fprintln(out, id)
		}
		fmt.Fprintf(messages, "%d would be replayed\n", len(args))
		return nil
	}
	name := o.resume
	if name == "" {
		name = strings.ToLower(rand.Text())[:12]
	}
	o.rate = min(o.rate, maxNamedRate)
	if len(args) > 1 {
		fmt.Fprintf(messages, "replaying %d, at most %d per minute; if this is interrupted, continue with --resume %s\n", len(args), o.rate, name)
	}
	return o.replayNamed(ctx, args, name, out, messages)
}

// checkFlags returns an error if flags or arguments are wrong.
func (o *replayOptions) checkFlags(args []string) error {
	for _, id := range args {
		if _, err := uuid.Parse(id); err != nil {
			return fmt.Errorf("%s: must be the ID of a connector run", id)
		}
	}
	existing := o.show + o.cancel
	if _, err := uuid.Parse(existing); existing != "" && err != nil {
		return errors.New("--show, --cancel: give one of the two, with the ID of a replay")
	}
	selects := len(o.status) > 0 || o.trigger != "" || o.since != "" || o.until != ""
	unknown := func(status string) bool {
		return !slices.Contains([]string{"completed", "failed", "skipped", "cancelled"}, status)
	}
	switch {
	case existing != "" && (selects || len(args) > 0 || o.dryRun || o.resume != ""):
		return errors.New("--show and --cancel: need an existing replay; give neither runs nor filters")
	case existing != "":
		return nil
	case len(args) > 0 && selects:
		return errors.New("name connector runs, or select them by --status; not both")
	case len(args) == 0 && (len(o.status) == 0 || slices.ContainsFunc(o.status, unknown)):
		return errors.New("name connector runs, or select them by --status completed, failed, skipped or cancelled")
	case len(args) == 0 && o.since == "":
		return errors.New("--status: needs --since")
	case len(args) == 0 && o.resume != "":
		return errors.New("--resume: needs connector run IDs; a replay by --status resumes automatically, --show follows it")
	case len(args) > maxReplayed:
		return fmt.Errorf("%d connector runs are too many: name at most %d", len(args), maxReplayed)
	case o.rate < 1 || o.rate > maxReplayRate:
		return fmt.Errorf("--rate: must be 1 to %d", maxReplayRate)
	case len(o.resume) > maxResume || strings.ContainsFunc(o.resume, func(c rune) bool { return c <= ' ' || c > '~' }):
		return fmt.Errorf("--resume: must be the name that a replay printed")
	}
	return nil
}

// parseMoment reads a time, or a duration before now. It returns nil for "".
func (o *replayOptions) parseMoment(flag, value string) (*time.Time, error) {
	if value == "" {
		return nil, nil
	}
	if ago, err := time.ParseDuration(value); err == nil && ago >= 0 {
		return new(o.now().Add(-ago).UTC()), nil
	}
	at, err := time.Parse(time.RFC3339, value)
	if err != nil {
		return nil, fmt.Errorf("--%s: must be a duration such as 24h or a time such as 2026-07-01T00:00:00Z", flag)
	}
	return new(at.UTC()), nil
}

// replayNamed replays connector runs one after the other, at the rate.
func (o *replayOptions) replayNamed(ctx context.Context, originals []string, name string, out, messages io.Writer) error {
	gone := 0
	for i, id := range originals {
		if i > 0 {
			if err := o.api.Wait(ctx, time.Minute/time.Duration(o.rate)); err != nil {
				return interrupted(i, gone, len(originals), name, err)
			}
		}
		key := "agentctl-" + name + "-" + strings.ToLower(id)
		replayed, err := o.api.ReplayConnectorRun(ctx, o.connector, id, &restclient.ReplayConnectorRunParams{IdempotencyKey: &key})
		var problem *restclient.ProblemError
		switch {
		case err == nil:
			fmt.Fprintf(out, "%s %s\n", id, replayed.Value.ID)
			if strings.EqualFold(id, replayed.Value.ID) {
				fmt.Fprintf(messages, "%s: its next attempt is due now\n", id)
			}
		case errors.As(err, &problem) && problem.Code == string(httpserver.CodeGone):
			gone++
			fmt.Fprintf(messages, "%s: %s\n", id, printableLines(problem.Detail))
		default:
			return interrupted(i, gone, len(originals), name, fmt.Errorf("replaying %s: %w", id, err))
		}
		if done := i + 1; done%progressEvery == 0 {
			fmt.Fprintf(messages, "%d of %d\n", done, len(originals))
		}
	}
	fmt.Fprintf(messages, "%d replayed, %d not\n", len(originals)-gone, gone)
	if gone > 0 {
		return fmt.Errorf("%d of %d could not be replayed", gone, len(originals))
	}
	return nil
}

// interrupted adds the progress to an error, and how to continue.
func interrupted(done, gone, all int, name string, err error) error {
	if all == 1 {
		return err
	}
	return fmt.Errorf("%d of %d replayed, continue with --resume %s: %w", done-gone, all, name, err)
}

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
