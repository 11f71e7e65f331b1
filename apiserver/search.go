// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"cmp"
	"context"
	"time"

	"github.com/google/uuid"

	"github.com/agentplatform/agentplatform/internal/search"
	"github.com/agentplatform/agentplatform/store"
)

// searchTime is how long a search takes, all that it waits for included.
const searchTime = 2 * time.Second

// search is what a parameter of that name looks for; nil where it is left out.
func (s *Server) search(text string) (*store.Search, error) {
	if text == "" {
		return nil, nil
	}
	q, err := search.Parse(text)
	if err != nil {
		return nil, invalid(FieldError{Location: "query.search", Message: err.Error()})
	}
	until := s.now().Add(searchTime)
	of := &store.Search{
		Words: q.Words, AgentName: q.Equal["agent_name"], Status: store.RunStatus(q.Equal["status"]),
		Match: func(ctx context.Context, run store.Searched) bool { return q.Match(ctx, searched(run)) },
		Left:  func() time.Duration { return until.Sub(s.now()) },
	}
	if name, known := q.Equal["test_name"]; known {
		of.TestName = cmp.Or(name, store.BaseRuns)
	}
	return of, nil
}

// searched is what of a run is searched: nothing but what getRun shows.
func searched(run store.Searched) search.Run {
	out := search.Run{
		AgentName: run.AgentName, TestName: run.TestName, Status: string(run.Status), DeploymentID: textOf(run.DeploymentID), ConnectorID: textOf(run.ConnectorID),
		Attempt: run.Attempt, Error: run.Error, ErrorCode: string(run.ErrorCode), Output: run.Output,
		ContentType: run.ContentType, Input: run.Input, Headers: run.Headers,
	}
	if ms := elapsed(run.StartedAt, run.EndedAt); ms != nil {
		out.Duration = time.Duration(*ms) * time.Millisecond
	}
	return out
}

func textOf(id *uuid.UUID) string {
	if id == nil {
		return ""
	}
	return id.String()
}
