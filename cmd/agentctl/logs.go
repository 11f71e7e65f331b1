// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"

	"github.com/spf13/cobra"
)

// maxEvent is the most bytes of a line of a stream.
const maxEvent = 2 << 20

func newLogsCommand() *cobra.Command {
	o := &deployOptions{}
	following := false
	cmd := o.command(&cobra.Command{
		Use:   "logs DEPLOYMENT",
		Short: "Show the log of a deployment's build",
		Long: `Show the log of a deployment's build. With -f also what is written until the deployment
has ended, what keeps it, and how it has ended: the command ends with 2 when it failed or
was cancelled.`,
		Example: `  agentctl logs 2fd4e1c6
  agentctl logs -f 2fd4e1c6 --environment production`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return errors.New("name one deployment by its commit or its id, as `agentctl status --environment ENVIRONMENT` shows them")
			}
			return nil
		},
	}, func(ctx context.Context, args []string) error {
		id, err := o.api.deploymentID(ctx, o.wanted, args[0], use{})
		if err != nil {
			return err
		}
		d, err := o.api.deployment(ctx, id)
		if err != nil {
			return err
		}
		if following {
			if d, err = ending(ctx, o.api, d, o.out, o.messages); err != nil {
				return err
			}
			return told(d, o.api.placeOf(ctx, d), o.messages)
		}
		if o.output != outputText {
			return o.write(o.out, map[string]string{"build_logs": d.BuildLogs})
		}
		_, err = io.WriteString(o.out, printableLines(d.BuildLogs))
		return err
	})
	bindWithin(cmd.Flags(), &o.wanted)
	cmd.Flags().BoolVarP(&following, "follow", "f", false, "go on with what is written, until the deployment has ended")
	cmd.MarkFlagsMutuallyExclusive("follow", "output")
	return cmd
}

// follow writes the log of a build until the deployment has ended. A stream that breaks off
// is taken up again where it was.
func follow(ctx context.Context, api *rest, id string, out io.Writer) error {
	last := ""
	for try := 1; ; try++ {
		before := last
		ended, err := api.stream(ctx, "/deployments/"+url.PathEscape(id)+"/logs", &last, func(event string, data []byte) error {
			if event != "log" {
				return nil
			}
			var part struct {
				Text string `json:"text"`
			}
			if err := json.Unmarshal(data, &part); err != nil {
				return fmt.Errorf("reading the log: %w", err)
			}
			_, err := io.WriteString(out, printableLines(part.Text))
			return err
		})
		if ended {
			return nil
		}
		if last != before {
			try = 0 // it has come further
		}
		var problem *restError
		answered := errors.As(err, &problem)
		if ctx.Err() != nil || answered && !problem.later() || try == restTries {
			return fmt.Errorf("following the log of deployment %s: %w", id, errors.Join(err, ctx.Err()))
		}
		after := restPause
		if answered {
			after = min(max(problem.after, restPause), restLongest)
		}
		if err := api.wait(ctx, after); err != nil {
			return err
		}
	}
}

// stream reads server-sent events until the event end, or until it breaks off. last is the
// id of the last event that was read, after which it goes on.
func (r *rest) stream(ctx context.Context, path string, last *string, each func(event string, data []byte) error) (ended bool, err error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, r.base+path, nil)
	if err != nil {
		return false, fmt.Errorf("making a request: %w", err)
	}
	request.Header.Set("Authorization", "Bearer "+r.key)
	request.Header.Set("Accept", "text/event-stream")
	if *last != "" {
		request.Header.Set("Last-Event-ID", *last)
	}
	endless := *r.http
	endless.Timeout = 0 // ctx ends it
	response, err := endless.Do(request)
	if err != nil {
		return false, unreachable(r.base, err)
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return false, problemOf(response)
	}
	var event, id string
	lines := bufio.NewScanner(response.Body)
	lines.Buffer(nil, maxEvent)
	for lines.Scan() {
		field, value, _ := strings.Cut(lines.Text(), ":")
		value = strings.TrimPrefix(value, " ")
		switch field {
		case "event":
			event = value
		case "id":
			id = value
		case "data":
			if err := each(event, []byte(value)); err != nil {
				return false, err
			}
			if *last = id; event == "end" {
				return true, nil
			}
		}
	}
	return false, lines.Err()
}
