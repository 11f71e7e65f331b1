// SPDX-License-Identifier: Apache-2.0

package telemetry

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/internal/runtrace"
)

// The text of a report of progress is a content, which a project can leave out. Its numbers are not.
func TestEventsOf_HidesTextOfProgress(t *testing.T) {
	t.Parallel()
	span := &runtrace.Span{Events: []runtrace.Event{{
		Name: "agentplatform.progress", Attributes: map[string]any{"agentplatform.progress.value": 1.0, runtrace.ProgressMessage: canary},
	}}}
	for name, withContent := range map[string]bool{"no content": false, "with content": true} {
		t.Run(name, func(t *testing.T) {
			got := eventsOf(span, withContent)
			require.Len(t, got, 1)
			require.Contains(t, got[0].Attributes, attribute("agentplatform.progress.value", 1.0))
			if withContent {
				require.Contains(t, got[0].Attributes, attribute(runtrace.ProgressMessage, canary))
				return
			}
			require.NotContains(t, got[0].String(), canary)
		})
	}
}
