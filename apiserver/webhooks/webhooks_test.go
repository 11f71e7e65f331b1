// SPDX-License-Identifier: Apache-2.0

package webhooks

import (
	"encoding/json"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/apiserver/rest"
	"github.com/agentplatform/agentplatform/internal/webhookapi"
)

// `make generate` writes the file. Each schema, field and error has a description.
func TestWebhooks_MatchFile(t *testing.T) {
	t.Parallel()
	document, err := Document("")
	require.NoError(t, err)
	written, err := os.ReadFile("../../docs/webhooks.json")
	require.NoError(t, err)
	require.Equal(t, string(written), string(document), "run make generate")
	var parts rest.Node
	require.NoError(t, json.Unmarshal(document, &parts))
	all := parts["components"].(rest.Node)["schemas"].(rest.Node)
	for name, schema := range all {
		require.NotEmpty(t, schema.(rest.Node)["description"], name)
		for field, property := range schema.(rest.Node)["properties"].(rest.Node) {
			require.NotEmpty(t, property.(rest.Node)["description"], "%s.%s", name, field)
		}
	}
	require.Len(t, aboutWebhookSchemas, len(all))
	for status := range webhookapi.Problems {
		require.NotEmpty(t, aboutWebhookProblems[status], status)
	}
	require.Len(t, aboutWebhookProblems, len(webhookapi.Problems))
	for status := range webhookapi.PushProblems {
		require.NotEmpty(t, aboutPushProblems[status], status)
	}
	require.Len(t, aboutPushProblems, len(webhookapi.PushProblems))
}
