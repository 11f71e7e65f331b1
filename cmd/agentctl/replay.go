// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/spf13/cobra"

	"github.com/agentplatform/agentplatform/internal/httpserver"
)

const (
	// maxReplayed is how many connector runs one command replays at most.
	maxReplayed = 10_000
	// maxReplayRate is how many a minute at most: the API takes 120 calls of a project in
	// that time, of which others need some.
	maxReplayRate = 100
	replayPage    = 100
	// maxResume is the most characters of --resume.
	maxResume = 64
)

// replayRanges are the windows by which the API lists connector runs, shortest first.
var replayRanges = []struct {
	name   string
	length time.Duration
}{
	{"1h", time.Hour}, {"6h", 6 * time.Hour}, {"24h", 24 * time.Hour}, {"7d", 7 * 24 * time.Hour}, {"30d", 30 * 24 * time.Hour},
}

// replayOptions are the flags of `replay`.
type replayOptions struct {
	restOptions

	connector, status, trigger, since, until, resume string
	dryRun                                           bool
	rate                                             int

	now func() time.Time
	api *rest
}

// connectorRun is what a list says of a connector run.
type connectorRun struct {
	ID        string    `json:"id"`
	Status    string    `json:"status"`
	StartedAt time.Time `json:"started_at"`
	ReplayOf  *string   `json:"replay_of"`
}

func newReplayCommand() *cobra.Command {
	o := &replayOptions{now: time.Now}
	cmd := &cobra.Command{
		Use:   "replay --connector CONNECTOR [CONNECTOR-RUN...]",
		Short: "Let events of a connector, or its deliveries, happen again",
		Long: `Let events of a connector, or its deliveries, happen again.

Each becomes a connector run of its own: an event starts the agents that are
linked now, of an outbound connector the same result is sent once more. The
originals do not change. Those to replay are named, or chosen by --status with
--since: oldest first, without those that are replays themselves, and at most
10,000. It goes on where the platform has no room for a while. What is not
stored any more is told and passed over; anything else ends it.

When it is broken off, --resume with the name that it has printed goes on
without replaying anything twice: with the same API key, within a day.`,
		Example: `  agentctl replay --connector $connector 0199f3c2-...
  agentctl replay --connector $connector --status failed --since 24h --dry-run
  agentctl replay --connector $connector --status skipped --since 2026-07-01T00:00:00Z --rate 30`,
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			if o.api, err = o.client(); err != nil {
				return err
			}
			return o.run(cmd.Context(), args, cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	flags := cmd.Flags()
	o.bind(flags)
	flags.StringVar(&o.connector, "connector", "", "id of the connector")
	flags.StringVar(&o.status, "status", "", "replay those that have this status: completed, failed, skipped or cancelled")
	flags.StringVar(&o.trigger, "trigger", "", "of those only the ones with this cause: webhook, cron or outbound")
	flags.StringVar(&o.since, "since", "", "of those only the ones that began since: a duration such as 24h, or a time such as 2026-07-01T00:00:00Z, of the last 30 days")
	flags.StringVar(&o.until, "until", "", "of those only the ones that began before, likewise")
	flags.BoolVar(&o.dryRun, "dry-run", false, "print those that would be replayed, and change nothing")
	flags.IntVar(&o.rate, "rate", 60, "how many a minute, 1 to 100")
	flags.StringVar(&o.resume, "resume", "", "name of a replay that was broken off, to go on with it")
	return cmd
}

func (o *replayOptions) run(ctx context.Context, args []string, out, messages io.Writer) error {
	if err := o.check(args); err != nil {
		return err
	}
	originals := args
	if len(args) == 0 {
		var err error
		if originals, err = o.chosen(ctx); err != nil {
			return err
		}
	}
	if o.dryRun {
		for _, id := range originals {
			fmt.Fprintln(out, id)
		}
		fmt.Fprintf(messages, "%d would be replayed\n", len(originals))
		return nil
	}
	name := o.resume
	if name == "" {
		name = strings.ToLower(rand.Text())[:12]
	}
	if len(originals) > 1 {
		fmt.Fprintf(messages, "replaying %d, at most %d a minute; go on with --resume %s where this is broken off\n", len(originals), o.rate, name)
	}
	return o.replay(ctx, originals, name, out, messages)
}

// check says which flags are wrong.
func (o *replayOptions) check(args []string) error {
	if _, err := uuid.Parse(o.connector); err != nil {
		return errors.New("--connector: must be the id of a connector")
	}
	for _, id := range args {
		if _, err := uuid.Parse(id); err != nil {
			return fmt.Errorf("%s: must be the id of a connector run", id)
		}
	}
	narrow := o.trigger != "" || o.since != "" || o.until != ""
	switch {
	case len(args) > 0 && (o.status != "" || narrow):
		return errors.New("name connector runs, or choose them by --status; not both")
	case len(args) == 0 && !slices.Contains([]string{"completed", "failed", "skipped", "cancelled"}, o.status):
		return errors.New("name connector runs, or choose them by --status completed, failed, skipped or cancelled")
	case len(args) == 0 && o.since == "":
		return errors.New("--since: is needed with --status")
	case len(args) > maxReplayed:
		return fmt.Errorf("%d connector runs are too many: at most %d are replayed at a time", len(args), maxReplayed)
	case o.rate < 1 || o.rate > maxReplayRate:
		return fmt.Errorf("--rate: must be 1 to %d", maxReplayRate)
	case len(o.resume) > maxResume || strings.ContainsFunc(o.resume, func(c rune) bool { return c <= ' ' || c > '~' }):
		return fmt.Errorf("--resume: must be a name that a replay has printed")
	}
	return nil
}

// moment reads a time, or how long ago one was; the zero time of "".
func (o *replayOptions) moment(flag, value string) (time.Time, error) {
	if value == "" {
		return time.Time{}, nil
	}
	if ago, err := time.ParseDuration(value); err == nil && ago >= 0 {
		return o.now().Add(-ago), nil
	}
	at, err := time.Parse(time.RFC3339, value)
	if err != nil {
		return at, fmt.Errorf("--%s: must be a duration such as 24h or a time such as 2026-07-01T00:00:00Z", flag)
	}
	return at, nil
}

// chosen are the connector runs that the filter finds, oldest first. They are all read
// before the first is replayed, as each replay moves the pages of the list.
func (o *replayOptions) chosen(ctx context.Context) (ids []string, err error) {
	since, err := o.moment("since", o.since)
	if err != nil {
		return nil, err
	}
	until, err := o.moment("until", o.until)
	if err != nil {
		return nil, err
	}
	within := slices.IndexFunc(replayRanges, func(r struct {
		name   string
		length time.Duration
	}) bool {
		return o.now().Sub(since) <= r.length
	})
	if within < 0 {
		return nil, errors.New("--since: is more than 30 days ago, and older connector runs are not listed")
	}
	query := url.Values{"time_range": {replayRanges[within].name}, "status_filter": {o.status}, "limit": {strconv.Itoa(replayPage)}}
	if o.trigger != "" {
		query.Set("trigger_type", o.trigger)
	}
	seen := map[string]bool{}
	for offset := 0; ; offset += replayPage {
		var page struct {
			Items []connectorRun `json:"items"`
		}
		query.Set("offset", strconv.Itoa(offset))
		if err := o.api.call(ctx, http.MethodGet, "/connectors/"+o.connector+"/runs?"+query.Encode(), "", &page); err != nil {
			return nil, fmt.Errorf("listing runs of the connector: %w", err)
		}
		for _, run := range page.Items {
			outside := run.StartedAt.Before(since) || !until.IsZero() && !run.StartedAt.Before(until)
			if run.ReplayOf == nil && !outside && !seen[run.ID] {
				seen[run.ID] = true
				ids = append(ids, run.ID)
			}
		}
		last := len(page.Items) < replayPage || page.Items[len(page.Items)-1].StartedAt.Before(since)
		switch {
		case len(ids) > maxReplayed || !last && offset >= 10*maxReplayed:
			return nil, fmt.Errorf("there are too many: at most %d are replayed at a time; narrow --since and --until", maxReplayed)
		case last:
			slices.Reverse(ids)
			return ids, nil
		}
	}
}

// replay replays one after the other, at the rate.
func (o *replayOptions) replay(ctx context.Context, originals []string, name string, out, messages io.Writer) error {
	gone := 0
	for i, id := range originals {
		if i > 0 {
			if err := o.api.wait(ctx, time.Minute/time.Duration(o.rate)); err != nil {
				return o.brokenOff(i, gone, len(originals), name, err)
			}
		}
		var again connectorRun
		err := o.api.call(ctx, http.MethodPost, "/connectors/"+o.connector+"/runs/"+id+"/replay", "agentctl-"+name+"-"+strings.ToLower(id), &again)
		var problem *restError
		switch {
		case err == nil:
			fmt.Fprintf(out, "%s %s\n", id, again.ID)
		case errors.As(err, &problem) && problem.Code == httpserver.CodeGone:
			gone++
			fmt.Fprintf(messages, "%s: %s\n", id, problem.Detail)
		default:
			return o.brokenOff(i, gone, len(originals), name, fmt.Errorf("replaying %s: %w", id, err))
		}
		if done := i + 1; done%replayPage == 0 {
			fmt.Fprintf(messages, "%d of %d\n", done, len(originals))
		}
	}
	fmt.Fprintf(messages, "%d replayed, %d not\n", len(originals)-gone, gone)
	if gone > 0 {
		return fmt.Errorf("%d of %d could not be replayed", gone, len(originals))
	}
	return nil
}

// brokenOff says how far it came, and how to go on.
func (o *replayOptions) brokenOff(done, gone, all int, name string, err error) error {
	if all == 1 {
		return err
	}
	return fmt.Errorf("%d of %d replayed, go on with --resume %s: %w", done-gone, all, name, err)
}
