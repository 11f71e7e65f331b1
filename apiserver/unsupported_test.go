// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/internal/httpserver"
)

func TestParametersThatHaveNoEffectAreRefused(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	key := w.key(t, nil)
	agent := "/agents/hello?environment_id=" + w.environmentID("production")
	for _, name := range unsupportedAgentQuery {
		status, body := w.call(t, key, http.MethodGet, agent+"&"+name+"=CANARY", "")
		require.Equal(t, http.StatusUnprocessableEntity, status, "%s: %s", name, body)
		require.NotContains(t, string(body), "CANARY")
		require.Equal(t, httpserver.Fields{notSupported("query." + name)}, decode[Problem](t, body).Errors)
	}
}
