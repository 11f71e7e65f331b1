// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/internal/httpserver"
	"github.com/agentplatform/agentplatform/internal/later"
)

// TestParametersOfALaterRelease: each is refused by its name wherever it may be sent, and none is
// described.
func TestParametersOfALaterRelease(t *testing.T) {
	t.Parallel()
	w := newPast(t)
	key := w.key(t, nil)
	agent := "/agents/hello?environment_id={environment}&"
	takes := map[string][]string{
		"guardrail_outcome": {agent, "/runs?"}, "status_filter": {agent, "/runs?"},
	}
	names := later.At(later.Query)
	require.NotEmpty(t, names)
	for _, name := range names {
		require.NotEmpty(t, takes[name.Field], "where may %s be sent?", name)
		value := name.Value
		if value == "" {
			value = "CANARY"
		}
		for _, path := range takes[name.Field] {
			status, body := w.call(t, key, http.MethodGet, sample{path: path + name.Field + "=" + value}.fill(t, w.ids), "")
			require.Equal(t, http.StatusUnprocessableEntity, status, "%s: %s", name, body)
			require.NotContains(t, string(body), "CANARY")
			found := decode[Problem](t, body).Errors
			require.Len(t, found, 1)
			require.Regexp(t, `^query\.`+name.Field+`(\[0\])?$`, found[0].Location)
			require.Equal(t, notSupported("").Message, found[0].Message)
		}
	}
}

// TestFieldsOfALaterRelease: each is refused by its name.
func TestFieldsOfALaterRelease(t *testing.T) {
	t.Parallel()
	w := newPast(t)
	key := w.key(t, nil)
	bodies := map[string]string{"outbound.mode: middleware": `{"agent_name":"hello","outbound":{"mode":"middleware"}}`}
	for _, name := range later.At(later.Body) {
		require.NotEmpty(t, bodies[name.String()], "which body has %s?", name)
		status, body := w.call(t, key, http.MethodPost, sample{path: "/connectors/{connector}/links"}.fill(t, w.ids), bodies[name.String()])
		require.Equal(t, http.StatusUnprocessableEntity, status, "%s: %s", name, body)
		require.Equal(t, httpserver.Fields{notSupported("body." + name.Field)}, decode[Problem](t, body).Errors)
		delete(bodies, name.String())
	}
	require.Empty(t, bodies)
}
