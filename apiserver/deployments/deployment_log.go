// SPDX-License-Identifier: Apache-2.0

package deployments

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humachi"

	"github.com/agentplatform/agentplatform/apiserver/rest"
	"github.com/agentplatform/agentplatform/internal/httpserver"
	"github.com/agentplatform/agentplatform/internal/pause"
	"github.com/agentplatform/agentplatform/internal/quota"
	"github.com/agentplatform/agentplatform/store"
)

// LogStreamInput is the request to follow a build's log.
type LogStreamInput struct {
	DeploymentPath
	LastEventID int64 `header:"Last-Event-ID" minimum:"0" maximum:"1000000000" doc:"The ID of the last event that the client read. The stream continues after it." example:"3"`
}

// LogText is the data of an event log.
type LogText struct {
	Text string `json:"text" doc:"Text of the log: a part of a line, or several lines."`
}

// LogEnd is the data of the event end.
type LogEnd struct {
	Status DeploymentStatus `json:"status" doc:"The final status of the deployment."`
}

var streamDeploymentLogs = rest.Handle((*API).streamDeploymentLog, rest.Endpoint{
	Method: rest.Get, Path: "/deployments/{deployment_id}/logs", ID: "streamDeploymentLogs",
	Permissions: rest.Requires("deployments.view"), Errors: rest.ReadErrors,
	Stream:  true,
	Summary: "Follow a build log",
	Doc: "Streams the log as server-sent events, from its beginning, while the build writes it. Each `log` event has the data " +
		"`{\"text\": \"…\"}`. The last event, `end`, has the data `{\"status\": \"deployed\"}`, or another final status, and ends the " +
		"stream.\n\n" +
		"To resume, send the ID of the last event as `Last-Event-ID`. An idle stream gets a comment every fifteen seconds. A " +
		"stream lasts at most fifteen minutes. It also ends when the service stops, and when the key is revoked or changed. " +
		"Connect again if the stream ends without an `end` event. Returns 429 if the project has too many open streams.",
	Example: rest.Example{Path: "/deployments/{deployment}/logs"},
})

// streamDeploymentLog sends the log of a build while it is written.
func (s *API) streamDeploymentLog(ctx context.Context, c *rest.Caller, in *LogStreamInput) (rest.Response[func(huma.Context)], error) {
	d, err := s.Deployment(ctx, c, in.DeploymentID)
	if err != nil {
		return rest.Response[func(huma.Context)]{}, err
	}
	if err := quota.Refusal(s.Streams.Take(c.ProjectID, 1), errManyStreams(http.StatusTooManyRequests), errManyStreams(http.StatusServiceUnavailable)); err != nil {
		return rest.Response[func(huma.Context)]{}, err
	}
	gone := rest.ClientGone(ctx)
	return rest.Response[func(huma.Context)]{Body: func(ctx huma.Context) {
		defer s.Streams.Give(c.ProjectID, 1)
		within, cancel := context.WithTimeout(context.WithoutCancel(ctx.Context()), streamTime)
		defer cancel()
		_, w := humachi.Unwrap(ctx)
		follow := logStream{events: newEvents(w), api: s, caller: c, key: d.Key(), next: in.LastEventID, gone: gone}
		if err := follow.run(within); err != nil { // the client reconnects and resumes
			s.Service.Logger.WarnContext(within, "following the log of a deployment", "deployment", d.ID, "error", err)
		}
	}}, nil
}

func errManyStreams(status int) rest.Problem {
	code := httpserver.CodeBusy
	if status == http.StatusTooManyRequests {
		code = httpserver.CodeRateLimited
	}
	p := rest.NewProblem(status, code, "too many open log streams; close one or retry later")
	p.RetryAfter = streamRetry
	return p
}

// logStream sends a log to a client.
type logStream struct {
	*events
	api    *API
	caller *rest.Caller
	key    store.Key
	next   int64 // the first chunk to send
	// gone is closed if the client disconnects.
	gone <-chan struct{}
}

// run sends the log until the deployment has ended, the client disconnects or loses its permission, the facade stops, or
// ctx ends. It reads the store at each notification, or after streamPoll.
func (l *logStream) run(ctx context.Context) error {
	hints, stop := l.api.Store.Subscribe(store.TopicDeployment)
	defer stop()
	check, poll := time.NewTicker(streamCheck), time.NewTicker(streamPoll)
	defer check.Stop()
	defer poll.Stop()
	if l.beat() != nil { // the client learns at once that the stream exists
		return nil
	}
	for {
		if ended, err := l.send(ctx); ended || err != nil {
			return err
		}
		if !l.wait(ctx, hints, check.C, poll.C) || pause.For(ctx, streamPace) != nil {
			return nil
		}
	}
}

// wait returns at the next read. It returns false if the stream ends.
func (l *logStream) wait(ctx context.Context, hints <-chan store.Hint, check, poll <-chan time.Time) bool {
	for {
		select {
		case <-ctx.Done():
			return false
		case <-l.gone:
			return false
		case <-l.api.Stopping:
			return false
		case hint, open := <-hints:
			if !open {
				return false // the store is closed
			}
			if hint.Key == l.key || hint.Key == (store.Key{}) {
				return true
			}
		case <-poll:
			return l.beat() == nil
		case <-check:
			if !l.api.isStillAllowed(ctx, l.caller) {
				return false
			}
		}
	}
}

// send sends new log lines. done reports that the log is complete.
func (l *logStream) send(ctx context.Context) (ended bool, err error) {
	part, err := l.api.Store.BuildLogFrom(ctx, l.key, l.next)
	switch {
	case errors.Is(err, store.ErrNotFound):
		return false, nil // the deployment is not in the store yet, or the project was deleted with its keys
	case err != nil:
		return false, fmt.Errorf("reading the log: %w", err)
	}
	if part.Text != "" {
		l.next = part.Next
		if l.event("log", l.next, LogText{part.Text}) != nil {
			return true, nil // the client has disconnected
		}
	}
	if !part.Status.Terminal() {
		return false, nil
	}
	_ = l.event("end", l.next, LogEnd{DeploymentStatus(part.Status)}) // the client may have disconnected
	return true, nil
}

// isStillAllowed reports whether the caller's key is valid and unchanged since the stream began. If it changed, the
// stream ends, and the next request is authorized again. The informers have the key.
func (s *API) isStillAllowed(ctx context.Context, c *rest.Caller) bool {
	now, err := s.Service.Index.Current(ctx, c.Key)
	if err != nil || now == nil || !s.Service.IsValidKey(now) || now.Generation != c.Key.Generation {
		return false
	}
	return s.Service.Require(ctx, c, c.Endpoint.Permissions[0].Permission) == nil
}
