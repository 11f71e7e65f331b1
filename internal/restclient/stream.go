// SPDX-License-Identifier: Apache-2.0

package restclient

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"net/http"
	"strings"
)

// maxEventLine is the size limit of a line of an event stream in bytes.
const maxEventLine = 2 << 20

// DeploymentLog returns the log of a build part by part, as it is written, until the deployment has ended. A stream that
// breaks off is resumed after the last part.
func (a *API) DeploymentLog(ctx context.Context, deploymentID string) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		s := &logStream{api: a, deployment: deploymentID, yield: yield}
		for attempt := 1; ; attempt++ {
			before := s.lastEvent
			err := s.readEvents(ctx)
			if s.done {
				return
			}
			if s.lastEvent != before {
				attempt = 0
			}
			if err := a.waitToRetry(ctx, err, attempt); err != nil {
				yield("", err)
				return
			}
		}
	}
}

// logStream is the log of a deployment that is being read.
type logStream struct {
	api        *API
	deployment string
	yield      func(string, error) bool

	// lastEvent is the ID of the last event that was read. done is true after the last event, and after the consumer stopped.
	lastEvent string
	done      bool
}

// readEvents opens the stream after lastEvent and reads it until it breaks off or is done.
func (s *logStream) readEvents(ctx context.Context) error {
	request, err := NewStreamDeploymentLogsRequest(s.api.server, s.api.project, s.deployment, nil)
	if err != nil {
		return fmt.Errorf("making a request: %w", err)
	}
	request.Header.Set("Authorization", "Bearer "+s.api.key)
	request.Header.Set("Accept", "text/event-stream")
	if s.lastEvent != "" {
		request.Header.Set("Last-Event-ID", s.lastEvent)
	}
	response, err := s.api.HTTP.Do(request.WithContext(ctx))
	if err != nil {
		return s.api.explain(err)
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return readProblem(response)
	}
	var event, id string
	lines := bufio.NewScanner(response.Body)
	lines.Buffer(nil, maxEventLine)
	for !s.done && lines.Scan() {
		field, value, _ := strings.Cut(lines.Text(), ":")
		value = strings.TrimPrefix(value, " ")
		switch field {
		case "event":
			event = value
		case "id":
			id = value
		case "data":
			if err := s.handleEvent(event, []byte(value)); err != nil {
				return err
			}
			s.lastEvent = id
		}
	}
	return lines.Err()
}

// handleEvent passes an event of the stream to the consumer.
func (s *logStream) handleEvent(event string, data []byte) error {
	switch event {
	case "log":
		var part struct {
			Text string `json:"text"`
		}
		if err := json.Unmarshal(data, &part); err != nil {
			return fmt.Errorf("reading the log: %w", err)
		}
		s.done = !s.yield(part.Text, nil)
	case "end":
		s.done = true
	}
	return nil
}
