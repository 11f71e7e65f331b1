// SPDX-License-Identifier: Apache-2.0

package push

import (
	"fmt"
	"testing"

	"github.com/agentplatform/agentplatform/internal/testenv/refpage"
)

// The page docs/reference/limits.md states the limits of push webhooks.
func TestReference_ListsLimits(t *testing.T) {
	refpage.CheckPart(t, "limits.md", "push webhooks", refpage.LimitTable("Resource", []refpage.Limit{
		{
			Resource: "Bodies of [push webhooks](../spec/project.md#push-webhook). The gateway does not keep them.",
			Value: fmt.Sprintf("%d. A project gets %d and at most half of what the others leave. Each has at most %s and must arrive within %s.",
				maxBodies, maxBodies/projectShare, refpage.Bytes(maxBody), refpage.Time(pace.Most)),
			Beyond: "The caller gets its response. The gateway closes the connection without reading the rest.",
		},
		{
			Resource: fmt.Sprintf("Calls for unknown projects. The gateway reads the IDs of all projects, at most %s, at its start and every %s.",
				refpage.Count(maxKnown), refpage.Time(idInterval)),
			Value: refpage.Count(maxStrangers), Beyond: "503 `too_many_unknown_urls`",
		},
		{
			Resource: "Store queries of all push webhooks",
			Value:    fmt.Sprintf("One read every %s. One transaction if a poll of the repository is not requested yet.", refpage.Time(batchInterval)),
			Beyond:   fmt.Sprintf("They wait for the next read, at most %s.", refpage.Time(storeTimeout)),
		},
	}))
}
