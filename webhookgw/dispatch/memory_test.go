// SPDX-License-Identifier: Apache-2.0

package dispatch

import (
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/internal/dispatchapi"
)

func sized(size int64) *http.Request {
	return &http.Request{Method: http.MethodPost, ContentLength: size}
}

// TestMemory_LimitsRequests: a project has a share, all projects together have a limit, and
// released memory is available again.
func TestMemory_LimitsRequests(t *testing.T) {
	t.Parallel()
	h := handlerOf(&fake{})
	var releases []func()
	take := func(project uuid.UUID, size int64) error {
		release, err := h.holdRequest(project, sized(size))
		if err == nil {
			releases = append(releases, release)
		}
		return err
	}
	greedy := uuid.New()
	require.NoError(t, take(greedy, maxInFlight/projectShare-dispatchapi.MaxRequest))
	require.NoError(t, take(greedy, -1), "a request of unknown size counts the maximum")
	require.Equal(t, errProjectInFlight, take(greedy, smallRequest+1))
	require.NoError(t, take(greedy, smallRequest), "small requests do not count")
	for range 3 {
		other := uuid.New()
		require.NoError(t, take(other, dispatchapi.MaxRequest))
		for take(other, dispatchapi.MaxRequest) == nil {
		}
	}
	require.NoError(t, take(uuid.New(), 1<<20), "another project finds free memory")
	var err error
	for err == nil {
		err = take(uuid.New(), smallRequest+1)
	}
	require.Equal(t, errInFlight, err, "the total limit, not the share of a project")
	for _, release := range releases {
		release()
	}
	require.Zero(t, h.inFlight.Taken())
}

// TestMemory_RejectsBeforeBody: the sender gets a temporary error.
func TestMemory_RejectsBeforeBody(t *testing.T) {
	t.Parallel()
	h := New(Options{Store: &oneToken{}, Logger: slog.New(slog.DiscardHandler)})
	for range maxInFlight / projectShare / dispatchapi.MaxRequest {
		_, err := h.holdRequest(uuid.Nil, sized(dispatchapi.MaxRequest))
		require.NoError(t, err)
	}
	_, err := h.holdRequest(uuid.Nil, sized(maxInFlight/projectShare%dispatchapi.MaxRequest))
	require.NoError(t, err)
	r := httptest.NewRequest(http.MethodPost, "/v1/runs/"+uuid.NewString()+"/journal", strings.NewReader(strings.Repeat(" ", smallRequest+1)))
	r.Header.Set("Authorization", "Bearer token")
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	require.Equal(t, http.StatusTooManyRequests, w.Code, w.Body.String())
	require.Equal(t, "1", w.Header().Get("Retry-After"))
}
