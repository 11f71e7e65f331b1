// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"cmp"
	"context"
	"net/http"
	"time"

	"github.com/google/uuid"

	"github.com/agentplatform/agentplatform/internal/httpserver"
	"github.com/agentplatform/agentplatform/internal/quota"
	"github.com/agentplatform/agentplatform/internal/search"
	"github.com/agentplatform/agentplatform/store"
)

const (
	// searchTime is how long a search takes, from the arrival of its request on.
	searchTime = 2 * time.Second
	// maxSearches is how many searches go on at once, of which a project has one part in searchShare:
	// the store reads a MiB at a time for each, and what a condition is told on one run has a few MiB
	// more, so that all of them have some 64 MiB.
	maxSearches = 16
	searchShare = 4
	// searchRetry is what callers are told who find no place.
	searchRetry = searchTime
)

// search is what a parameter of that name looks for, nil where it is left out, and what ends it: the
// caller does so once the answer is made.
func (s *Server) search(ctx context.Context, c *caller, text string) (of *store.Search, end func(), err error) {
	if text == "" {
		return nil, func() {}, nil
	}
	if err := quota.Refusal(s.searches.Take(c.projectID, 1), errManySearches(http.StatusTooManyRequests), errManySearches(http.StatusServiceUnavailable)); err != nil {
		return nil, nil, err
	}
	end = func() { s.searches.Give(c.projectID, 1) }
	if of, err = s.searchFor(ctx, text); err != nil {
		end()
	}
	return of, end, err
}

// searchLeft returns how much time a search has left, which began when its request arrived.
func (s *Server) searchLeft(ctx context.Context) time.Duration {
	return trailOf(ctx).arrived.Add(searchTime).Sub(s.now())
}

// searchFor is a search for what a text says.
func (s *Server) searchFor(ctx context.Context, text string) (*store.Search, error) {
	q, err := search.Parse(text)
	if err != nil {
		return nil, invalid(FieldError{Location: "query.search", Message: err.Error()})
	}
	of := &store.Search{
		Words: q.Words, AgentName: q.Equal["agent_name"], Status: store.RunStatus(q.Equal["status"]),
		Match: func(ctx context.Context, run store.Searched) bool { return q.Match(ctx, searched(run)) },
		Left:  func() time.Duration { return s.searchLeft(ctx) },
	}
	if name, known := q.Equal["test_name"]; known {
		of.TestName = cmp.Or(name, store.BaseRuns)
	}
	return of, nil
}

func errManySearches(status int) Problem {
	code := httpserver.CodeBusy
	if status == http.StatusTooManyRequests {
		code = httpserver.CodeRateLimited
	}
	p := problem(status, code, "as many searches as may go on at the moment; try again")
	p.RetryAfter = searchRetry
	return p
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
