// SPDX-License-Identifier: Apache-2.0

package apiserver_test

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/apiserver/apiservertest"
	"github.com/agentplatform/agentplatform/apiserver/rest"
	"github.com/agentplatform/agentplatform/internal/unsupported"
)

// Each unsupported parameter is rejected by name, and none is described.
func TestUnsupported_RejectsParameters(t *testing.T) {
	t.Parallel()
	w := apiservertest.NewProjectWithHistory(t)
	key := w.CreateKey(t, nil)
	agent := "/agents/hello?environment_id={environment}&"
	takes := map[string][]string{
		"guardrail_outcome": {agent, "/runs?"}, "status_filter": {agent, "/runs?"},
	}
	names := unsupported.At(unsupported.Query)
	require.NotEmpty(t, names)
	for _, name := range names {
		require.NotEmpty(t, takes[name.Field], "where may %s be sent?", name)
		value := name.Value
		if value == "" {
			value = "CANARY"
		}
		for _, path := range takes[name.Field] {
			status, body := w.Call(t, key, http.MethodGet, apiservertest.FillPath(t, path+name.Field+"="+value, w.IDs), "")
			require.Equal(t, http.StatusUnprocessableEntity, status, "%s: %s", name, body)
			require.NotContains(t, string(body), "CANARY")
			found := apiservertest.Decode[rest.Problem](t, body).Errors
			require.Len(t, found, 1)
			require.Regexp(t, `^query\.`+name.Field+`(\[0\])?$`, found[0].Location)
			require.Equal(t, "is not supported in this release", found[0].Message)
		}
	}
}
