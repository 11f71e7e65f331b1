// SPDX-License-Identifier: Apache-2.0

package deployments

import (
	"context"
	"errors"
	"fmt"

	"github.com/danielgtaylor/huma/v2"

	"github.com/agentplatform/agentplatform/apiserver/rest"
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
	log := buildLog{api: s, key: d.Key(), next: in.LastEventID}
	return s.Service.OpenStream(ctx, c, rest.Stream{Topic: store.TopicDeployment, Key: d.Key(), Slots: 1, Send: log.sendPart})
}

// buildLog is a log that is sent.
type buildLog struct {
	api  *API
	key  store.Key
	next int64 // the first chunk that was not sent
}

// sendPart sends the new part of the log, and the end of the deployment.
func (l *buildLog) sendPart(ctx context.Context, to *rest.Events) (complete bool, err error) {
	part, err := l.api.Store.BuildLogFrom(ctx, l.key, l.next)
	switch {
	case errors.Is(err, store.ErrNotFound):
		return false, nil // only Kubernetes knows it yet, or the project is deleted with its keys
	case err != nil:
		return false, fmt.Errorf("reading the log: %w", err)
	}
	if part.Text != "" {
		l.next = part.Next
		if event, err := rest.NewEvent("log", LogText{part.Text}); err != nil || !to.WriteEvent(ctx, event.WithID(l.next)) {
			return true, err
		}
	}
	if !part.Status.Terminal() {
		return false, nil
	}
	event, err := rest.NewEvent("end", LogEnd{DeploymentStatus(part.Status)})
	if err == nil {
		to.WriteEvent(ctx, event.WithID(l.next))
	}
	return true, err
}
