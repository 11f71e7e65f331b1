// SPDX-License-Identifier: Apache-2.0

package ingress

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/internal/httpserver"
	"github.com/agentplatform/agentplatform/store"
)

// scales is a store.Loads that counts the measurements of each project.
type scales struct {
	load     store.ProjectLoad
	err      error
	measured map[uuid.UUID]int
	took     func()
}

func (s *scales) ProjectLoad(_ context.Context, project uuid.UUID) (store.ProjectLoad, error) {
	if s.took != nil {
		s.took()
	}
	s.measured[project]++
	return s.load, s.err
}

func TestLoads_RejectFullProjects(t *testing.T) {
	t.Parallel()
	environment, other := uuid.New(), uuid.New()
	limits := store.ProjectLimits{BacklogRuns: 10, BacklogInput: 100, Storage: 1000}
	for name, c := range map[string]struct {
		stored  int64
		backlog store.Backlog
		limits  store.ProjectLimits
		// inbound is the code for inbound and deferred requests, sync that for sync requests.
		inbound, sync httpserver.Code
	}{
		"nothing":                  {0, store.Backlog{}, limits, "", ""},
		"below all limits":         {999, store.Backlog{Runs: 9, Input: 99}, limits, "", ""},
		"runs":                     {0, store.Backlog{Runs: 10}, limits, httpserver.CodeBacklogFull, ""},
		"input":                    {0, store.Backlog{Input: 100}, limits, httpserver.CodeBacklogFull, ""},
		"storage":                  {1000, store.Backlog{}, limits, httpserver.CodeStorageFull, httpserver.CodeStorageFull},
		"runs at twice the limit":  {0, store.Backlog{Runs: 20}, limits, httpserver.CodeBacklogFull, httpserver.CodeBacklogFull},
		"input at twice the limit": {0, store.Backlog{Input: 200}, limits, httpserver.CodeBacklogFull, httpserver.CodeBacklogFull},
		"below twice the limits":   {0, store.Backlog{Runs: 19, Input: 199}, limits, httpserver.CodeBacklogFull, ""},
		"without any limits":       {1 << 40, store.Backlog{Runs: 1 << 40, Input: 1 << 40}, store.ProjectLimits{}, "", ""},
		"storage before runs":      {1000, store.Backlog{Runs: 10}, limits, httpserver.CodeStorageFull, httpserver.CodeStorageFull},
	} {
		t.Run(name, func(t *testing.T) {
			s := &scales{measured: map[uuid.UUID]int{}, load: store.ProjectLoad{
				Limits: c.limits, Stored: c.stored, Backlog: map[uuid.UUID]store.Backlog{environment: c.backlog},
			}}
			l := newLoadCache(s, slog.Default(), time.Now)
			code := func(environment uuid.UUID, class store.Class) httpserver.Code {
				p := l.quotaError(project, environment, class)
				if p == nil {
					return ""
				}
				require.Equal(t, http.StatusTooManyRequests, p.Status)
				require.NotZero(t, p.RetryAfter)
				require.NotEmpty(t, p.Detail)
				return p.Code
			}
			require.Empty(t, code(environment, store.ClassInbound), "not known yet")
			l.measure(t.Context())
			require.Equal(t, c.inbound, code(environment, store.ClassInbound))
			require.Equal(t, c.inbound, code(environment, store.ClassDeferred))
			require.Equal(t, c.sync, code(environment, store.ClassSync))
			elsewhere := c.inbound
			if elsewhere == httpserver.CodeBacklogFull {
				elsewhere = ""
			}
			require.Equal(t, elsewhere, code(other, store.ClassInbound), "each environment has its own backlog")
		})
	}
}

// TestLoads_MeasureActiveProjects: at most once a second, less often if it is slow, and not without
// requests.
func TestLoads_MeasureActiveProjects(t *testing.T) {
	t.Parallel()
	now := time.Unix(0, 0)
	s := &scales{measured: map[uuid.UUID]int{}}
	l := newLoadCache(s, slog.Default(), func() time.Time { return now })
	round := func(asked bool) int {
		now = now.Add(measureEvery)
		if asked {
			require.Nil(t, l.quotaError(project, uuid.Nil, store.ClassInbound))
		}
		l.measure(t.Context())
		return s.measured[project]
	}
	require.Zero(t, round(false))
	require.Equal(t, 1, round(true))
	require.Equal(t, 2, round(true))
	require.Equal(t, 2, round(false), "nobody asked")
	require.Equal(t, 3, round(true))
	s.took = func() { now = now.Add(measureEvery / 2) }
	require.Equal(t, 4, round(true))
	for range 3 {
		require.Equal(t, 4, round(true), "it took half a second")
	}
	require.Equal(t, 5, round(true))
	for range int(loadTTL / measureEvery) {
		round(false)
	}
	require.Empty(t, l.projects)
}

// TestLoads_KeepValuesWhileStoreIsUnavailable: a full project stays full while it cannot be
// measured.
func TestLoads_KeepValuesWhileStoreIsUnavailable(t *testing.T) {
	t.Parallel()
	now := time.Unix(0, 0)
	s := &scales{measured: map[uuid.UUID]int{}, load: store.ProjectLoad{Limits: store.ProjectLimits{Storage: 1}, Stored: 1}}
	l := newLoadCache(s, slog.New(slog.DiscardHandler), func() time.Time { return now })
	full := func() bool { return l.quotaError(project, uuid.Nil, store.ClassInbound) != nil }
	require.False(t, full())
	l.measure(t.Context())
	require.True(t, full())
	s.err = errors.New("away")
	for range 10 {
		now = now.Add(loadTTL / 2)
		l.measure(t.Context())
		require.True(t, full())
	}
}

// ProjectLoad implements Store, without limits.
func (*keeper) ProjectLoad(context.Context, uuid.UUID) (store.ProjectLoad, error) {
	return store.ProjectLoad{}, nil
}

// TestLoads_FullProjectAnswersDuplicates: a duplicate gets its response, and a new request is
// rejected before its body is read.
func TestLoads_FullProjectAnswersDuplicates(t *testing.T) {
	t.Parallel()
	k := &keeper{mode: "inbound", verdict: store.Repeated}
	h := serving(t, k)
	h.loads.projects[project] = &measuredLoad{at: time.Now(), load: store.ProjectLoad{Limits: store.ProjectLimits{Storage: 1}, Stored: 1}}
	for _, header := range [][]string{nil, {"Idempotency-Key", "a"}, {"Idempotency-Key", "\x01"}} {
		answer, p := post(t, h, unreadable{t}, header...)
		require.Equal(t, "300", answer.Header().Get("Retry-After"))
		refused(t, withRetry(p), http.StatusTooManyRequests, httpserver.CodeStorageFull)
	}
	require.Empty(t, k.events)
	k.known = true
	answer, _ := post(t, h, strings.NewReader(`{}`), "Idempotency-Key", "a")
	require.Equal(t, http.StatusOK, answer.Code)
}

// unreadable is a body that must not be read.
type unreadable struct{ t *testing.T }

func (u unreadable) Read([]byte) (int, error) {
	u.t.Error("the body is read")
	return 0, io.EOF
}
