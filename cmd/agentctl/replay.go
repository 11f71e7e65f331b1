// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/spf13/cobra"

	"github.com/agentplatform/agentplatform/internal/httpserver"
)

const (
	// maxReplayed is how many connector runs one command names at most, maxNamedRate how many of
	// them it replays in a minute: the API takes 120 calls of a project in that time, of which others need some.
	maxReplayed  = 10_000
	maxNamedRate = 100
	// maxReplayRate is how many a minute the platform replays of those that it chooses.
	maxReplayRate = 6000
	replayPage    = 100
	// maxResume is the most characters of --resume.
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
	api *rest
}

// connectorRun is what the API says of a connector run.
type connectorRun struct {
	ID string `json:"id"`
}

func newReplayCommand() *cobra.Command {
	o := &replayOptions{now: time.Now}
	cmd := &cobra.Command{
		Use:   "replay --connector CONNECTOR [CONNECTOR-RUN...]",
		Short: "Let events of a connector, or its deliveries, happen again",
		Long: `Let events of a connector, or its deliveries, happen again.

Each becomes a connector run of its own: an event starts the agents that are
linked now, of an outbound connector the same result is sent once more. The
originals do not change. A delivery that is named and waits for its next attempt
becomes no other one: that attempt is due now.

Those to replay are chosen by --status with --since: the platform replays them
by itself, oldest first, without those that are replays themselves, at most
100,000. The command shows how far it has come until it ends, and prints the
replay's id first; when the command is broken off, the replay goes on. Look at
it with --show, end it with --cancel. It waits where the project has no room,
or the connector is disabled or paused.

Or they are named: then the command replays one after the other, and
waits where the platform has no room for a while. What is not stored any more is
told and passed over; anything else ends it. When it is broken off, --resume with
the name that it has printed goes on without replaying anything twice: with the
same API key, within a day.

The command fails where something could not be replayed.`,
		Example: `  agentctl replay --connector results 0199f3c2-...
  agentctl replay --connector results --status failed --since 24h --dry-run
  agentctl replay --connector results --status failed,skipped --since 2026-07-01T00:00:00Z --rate 300
  agentctl replay --connector results --show 5c1e09aa-...
  agentctl replay --connector results --cancel 5c1e09aa-...`,
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			if o.api, err = o.client(); err != nil {
				return err
			}
			return o.run(cmd.Context(), args, cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	flags := cmd.Flags()
	o.bind(flags)
	flags.StringVar(&o.connector, "connector", "", "name or id of the connector")
	bindWithin(flags, &o.environment)
	flags.StringSliceVar(&o.status, "status", nil, "replay those that have ended so: completed, failed, skipped, cancelled, or several of them with commas")
	flags.StringVar(&o.trigger, "trigger", "", "of those only the ones with this cause: webhook, cron or outbound")
	flags.StringVar(&o.since, "since", "", "of those only the ones that began since: a duration such as 24h, or a time such as 2026-07-01T00:00:00Z")
	flags.StringVar(&o.until, "until", "", "of those only the ones that began before, likewise; without it now")
	flags.BoolVar(&o.dryRun, "dry-run", false, "say how many would be replayed, or which of those that are named, and change nothing")
	flags.IntVar(&o.rate, "rate", 600, "how many a minute, 1 to 6000; of those that are named never more than 100")
	flags.StringVar(&o.resume, "resume", "", "name of a replay of named ones that was broken off, to go on with it")
	flags.StringVar(&o.show, "show", "", "id of a replay: show how far it has come until it ends")
	flags.StringVar(&o.cancel, "cancel", "", "id of a replay to end")
	return cmd
}

func (o *replayOptions) run(ctx context.Context, args []string, out, messages io.Writer) error {
	if err := o.check(args); err != nil {
		return err
	}
	id, err := o.api.connectorID(ctx, "--connector", o.environment, o.connector)
	if err != nil {
		return err
	}
	o.connector = id
	switch {
	case o.cancel != "":
		return o.end(ctx, messages)
	case o.show != "":
		return o.follow(ctx, o.show, messages)
	case len(args) == 0:
		return o.many(ctx, out, messages)
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
		fmt.Fprintf(messages, "replaying %d, at most %d a minute; go on with --resume %s where this is broken off\n", len(args), o.rate, name)
	}
	return o.replay(ctx, args, name, out, messages)
}

// check says which flags are wrong.
func (o *replayOptions) check(args []string) error {
	for _, id := range args {
		if _, err := uuid.Parse(id); err != nil {
			return fmt.Errorf("%s: must be the id of a connector run", id)
		}
	}
	known := o.show + o.cancel
	if _, err := uuid.Parse(known); known != "" && err != nil {
		return errors.New("--show, --cancel: must be the id of a replay, and one of the two")
	}
	chosen := len(o.status) > 0 || o.trigger != "" || o.since != "" || o.until != ""
	unknown := func(status string) bool {
		return !slices.Contains([]string{"completed", "failed", "skipped", "cancelled"}, status)
	}
	switch {
	case known != "" && (chosen || len(args) > 0 || o.dryRun || o.resume != ""):
		return errors.New("--show and --cancel are about a replay that is there: nothing else goes with them")
	case known != "":
		return nil
	case len(args) > 0 && chosen:
		return errors.New("name connector runs, or choose them by --status; not both")
	case len(args) == 0 && (len(o.status) == 0 || slices.ContainsFunc(o.status, unknown)):
		return errors.New("name connector runs, or choose them by --status completed, failed, skipped or cancelled")
	case len(args) == 0 && o.since == "":
		return errors.New("--since: is needed with --status")
	case len(args) == 0 && o.resume != "":
		return errors.New("--resume: is for connector runs that are named; a replay of those that --status chooses goes on by itself, look at it with --show")
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
		err := o.api.call(ctx, http.MethodPost, "/connectors/"+o.connector+"/runs/"+id+"/replay", "agentctl-"+name+"-"+strings.ToLower(id), nil, &again)
		var problem *restError
		switch {
		case err == nil:
			fmt.Fprintf(out, "%s %s\n", id, again.ID)
			if strings.EqualFold(id, again.ID) {
				fmt.Fprintf(messages, "%s: its next attempt is due now\n", id)
			}
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
