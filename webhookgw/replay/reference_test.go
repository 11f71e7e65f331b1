// SPDX-License-Identifier: Apache-2.0

package replay

import (
	"fmt"
	"testing"

	"github.com/agentplatform/agentplatform/internal/testenv/refpage"
)

// The page docs/reference/limits.md states the limits of replays.
func TestReference_ListsLimits(t *testing.T) {
	refpage.CheckPart(t, "limits.md", "replays", refpage.LimitTable("Resource", []refpage.Limit{{
		Resource: "Replays by filter",
		Value:    fmt.Sprintf("%d at a time, each at its rate and for at most %s", replaysAtOnce, refpage.Time(replayTurnTime)),
		Beyond:   "The others wait for their turn. New events have priority over replays.",
	}}))
}
