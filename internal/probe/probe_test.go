// SPDX-License-Identifier: Apache-2.0

package probe_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/internal/httpserver"
	"github.com/agentplatform/agentplatform/internal/probe"
)

func ask(t *testing.T, ready probe.Check, path string) (int, httpserver.Problem) {
	t.Helper()
	mux := http.NewServeMux()
	probe.Register(mux, ready)
	answer := httptest.NewRecorder()
	mux.ServeHTTP(answer, httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, nil))
	var problem httpserver.Problem
	if answer.Code != http.StatusOK {
		require.NoError(t, json.Unmarshal(answer.Body.Bytes(), &problem))
	}
	return answer.Code, problem
}

// A process is alive from the start. It is ready when its check succeeds.
func TestReadiness_UsesCheckAfterStart(t *testing.T) {
	t.Parallel()
	var r probe.Readiness
	status, problem := ask(t, r.Check, "/readyz")
	require.Equal(t, http.StatusServiceUnavailable, status)
	require.Equal(t, "Not ready: the process is starting.", problem.Detail)

	for _, c := range []struct {
		err  error
		want int
		code httpserver.Code
	}{
		{nil, http.StatusOK, ""},
		{errors.New("the caches are empty"), http.StatusServiceUnavailable, "not_ready"},
		{httpserver.NewProblem(http.StatusServiceUnavailable, httpserver.CodeStopping, "Stopping."), http.StatusServiceUnavailable, httpserver.CodeStopping},
	} {
		t.Run(fmt.Sprint(c.err), func(t *testing.T) {
			r.Set(func(context.Context) error { return c.err })
			status, problem := ask(t, r.Check, "/readyz")
			require.Equal(t, c.want, status, c.err)
			require.Equal(t, c.code, problem.Code)
			status, _ = ask(t, r.Check, "/healthz")
			require.Equal(t, http.StatusOK, status, "alive whatever it waits for")
		})
	}
}
