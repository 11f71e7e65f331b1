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

// scales are a store.Loads that counts how often each project was measured.
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

func TestWhatIsFullIsRefused(t *testing.T) {
	t.Parallel()
	environment, other := uuid.New(), uuid.New()
	limits := store.ProjectLimits{BacklogRuns: 10, BacklogInput: 100, Storage: 1000}
	for name, c := range map[string]struct {
		stored  int64
		backlog store.Backlog
		limits  store.ProjectLimits
		// inbound is the code for inbound and deferred, sync that for sync.
		inbound, sync httpserver.Code
	}{
		"nothing":             {0, store.Backlog{}, limits, "", ""},
		"almost":              {999, store.Backlog{Runs: 9, Input: 99}, limits, "", ""},
		"runs":                {0, store.Backlog{Runs: 10}, limits, httpserver.CodeBacklogFull, ""},
		"input":               {0, store.Backlog{Input: 100}, limits, httpserver.CodeBacklogFull, ""},
		"storage":             {1000, store.Backlog{}, limits, httpserver.CodeStorageFull, httpserver.CodeStorageFull},
		"runs, twice":         {0, store.Backlog{Runs: 20}, limits, httpserver.CodeBacklogFull, httpserver.CodeBacklogFull},
		"input, twice":        {0, store.Backlog{Input: 200}, limits, httpserver.CodeBacklogFull, httpserver.CodeBacklogFull},
		"almost twice":        {0, store.Backlog{Runs: 19, Input: 199}, limits, httpserver.CodeBacklogFull, ""},
		"without any limits":  {1 << 40, store.Backlog{Runs: 1 << 40, Input: 1 << 40}, store.ProjectLimits{}, "", ""},
		"storage before runs": {1000, store.Backlog{Runs: 10}, limits, httpserver.CodeStorageFull, httpserver.CodeStorageFull},
	} {
		t.Run(name, func(t *testing.T) {
			s := &scales{measured: map[uuid.UUID]int{}, load: store.ProjectLoad{
				Limits: c.limits, Stored: c.stored, Backlog: map[uuid.UUID]store.Backlog{environment: c.backlog},
			}}
			l := newLoads(s, slog.Default(), time.Now)
			code := func(environment uuid.UUID, class store.Class) httpserver.Code {
				p := l.refusal(project, environment, class)
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
			require.Equal(t, elsewhere, code(other, store.ClassInbound), "another environment has a backlog of its own")
		})
	}
}

// TestProjectsAreMeasuredWhileTheyTakeWebhooks: at most once a second, a dear one less
// often, and not at all when nobody asks.
func TestProjectsAreMeasuredWhileTheyTakeWebhooks(t *testing.T) {
	t.Parallel()
	now := time.Unix(0, 0)
	s := &scales{measured: map[uuid.UUID]int{}}
	l := newLoads(s, slog.Default(), func() time.Time { return now })
	round := func(asked bool) int {
		now = now.Add(measureEvery)
		if asked {
			require.Nil(t, l.refusal(project, uuid.Nil, store.ClassInbound))
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
	for range int(measureFor / measureEvery) {
		round(false)
	}
	require.Empty(t, l.projects)
}

// TestWhatWasMeasuredCountsWhileTheStoreIsAway: what is full does not become empty
// because it takes long to see that it is.
func TestWhatWasMeasuredCountsWhileTheStoreIsAway(t *testing.T) {
	t.Parallel()
	now := time.Unix(0, 0)
	s := &scales{measured: map[uuid.UUID]int{}, load: store.ProjectLoad{Limits: store.ProjectLimits{Storage: 1}, Stored: 1}}
	l := newLoads(s, slog.New(slog.DiscardHandler), func() time.Time { return now })
	full := func() bool { return l.refusal(project, uuid.Nil, store.ClassInbound) != nil }
	require.False(t, full())
	l.measure(t.Context())
	require.True(t, full())
	s.err = errors.New("away")
	for range 10 {
		now = now.Add(measureFor / 2)
		l.measure(t.Context())
		require.True(t, full())
	}
}

// ProjectLoad implements Store: nothing limits a project.
func (*keeper) ProjectLoad(context.Context, uuid.UUID) (store.ProjectLoad, error) {
	return store.ProjectLoad{}, nil
}

// TestAFullProjectStillAnswersRepetitions: what was decided keeps its meaning; what is
// new is refused before its body is read.
func TestAFullProjectStillAnswersRepetitions(t *testing.T) {
	t.Parallel()
	k := &keeper{mode: modeInbound, verdict: store.Repeated}
	h := serving(t, k)
	h.loads.projects[project] = &measured{at: time.Now(), load: store.ProjectLoad{Limits: store.ProjectLimits{Storage: 1}, Stored: 1}}
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

// unreadable is a body that nobody may read.
type unreadable struct{ t *testing.T }

func (u unreadable) Read([]byte) (int, error) {
	u.t.Error("the body is read")
	return 0, io.EOF
}
