// SPDX-License-Identifier: Apache-2.0

package webhookapi_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/internal/httpserver"
	"github.com/agentplatform/agentplatform/internal/metrics"
	"github.com/agentplatform/agentplatform/internal/webhookapi"
)

// TestProblemsAreThoseThatAreCounted: and those of requests that were accepted.
func TestProblemsAreThoseThatAreCounted(t *testing.T) {
	t.Parallel()
	described := []httpserver.Code{metrics.RequestEnded} // which nobody is answered
	for status, codes := range webhookapi.Problems {
		if status != 504 {
			described = append(described, codes...)
		}
	}
	require.ElementsMatch(t, metrics.WebhookRefusals, described)
}
