// SPDX-License-Identifier: Apache-2.0

// Package history limits searches of runs and resolves time ranges, for lists and statistics of runs.
package history

import (
	"cmp"
	"context"
	"time"

	"github.com/google/uuid"

	"github.com/agentplatform/agentplatform/apiserver/rest"
	"github.com/agentplatform/agentplatform/internal/quota"
	"github.com/agentplatform/agentplatform/internal/search"
	"github.com/agentplatform/agentplatform/store"
)

const (
	// MaxSearches limits the concurrent searches. SearchShare is the divisor of a project's part. A search uses a MiB
	// for reads of the store and a few MiB for the evaluation of a condition, so that all searches use about 64 MiB.
	MaxSearches = 16
	SearchShare = 4
	// searchRetry is the Retry-After if there are too many searches.
	searchRetry = rest.SearchTime
)

// Searches limits and starts searches of runs.
type Searches struct {
	Service *rest.Service
	// Slots are the slots of searches in progress.
	Slots *quota.SlotSet
}

// NewSearches returns an unused limit of searches.
func NewSearches(service *rest.Service) *Searches {
	return &Searches{Service: service, Slots: quota.NewSlotSet(MaxSearches, SearchShare)}
}

// Begin returns the search for the text of a parameter, or nil if the text is empty. The caller calls end after it has made
// the response.
func (s *Searches) Begin(ctx context.Context, c *rest.Caller, text string) (of *store.Search, end func(), err error) {
	if text == "" {
		return nil, func() {}, nil
	}
	if err := rest.LimitProblem(s.Slots.Take(c.ProjectID, 1), "too many concurrent searches; try again", searchRetry); err != nil {
		return nil, nil, err
	}
	end = func() { s.Slots.Give(c.ProjectID, 1) }
	if of, err = s.searchFor(ctx, text); err != nil {
		end()
	}
	return of, end, err
}

// searchFor returns the search of a text.
func (s *Searches) searchFor(ctx context.Context, text string) (*store.Search, error) {
	q, err := search.Parse(text)
	if err != nil {
		return nil, rest.Invalid(rest.FieldError{Location: "query.search", Message: err.Error()})
	}
	of := &store.Search{
		Words: q.Words, AgentName: q.Equal["agent_name"], Status: store.RunStatus(q.Equal["status"]),
		Match: func(ctx context.Context, run store.Searched) bool { return q.Match(ctx, SearchedRun(run)) },
		Left:  func() time.Duration { return s.Service.SearchTimeLeft(ctx) },
	}
	if name, known := q.Equal["test_name"]; known {
		of.TestName = cmp.Or(name, store.BaseRuns)
	}
	return of, nil
}

// SearchedRun returns the searchable parts of a run, which getRun also shows.
func SearchedRun(run store.Searched) search.Run {
	out := search.Run{
		AgentName: run.AgentName, TestName: run.TestName, Status: string(run.Status), DeploymentID: textOf(run.DeploymentID), ConnectorID: textOf(run.ConnectorID),
		Attempt: run.Attempt, Error: run.Error, ErrorCode: string(run.ErrorCode), Output: run.Output,
		ContentType: run.ContentType, Input: run.Input, Headers: run.Headers, Context: run.Context,
	}
	if ms := rest.ElapsedMS(run.StartedAt, run.EndedAt); ms != nil {
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
