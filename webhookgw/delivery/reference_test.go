// SPDX-License-Identifier: Apache-2.0

package delivery

import (
	"fmt"
	"testing"

	"github.com/agentplatform/agentplatform/internal/testenv/refpage"
	"github.com/agentplatform/agentplatform/store"
)

// The page docs/reference/limits.md states the limits of deliveries.
func TestReference_ListsLimits(t *testing.T) {
	large := refpage.Bytes(store.MaxInlineText)
	refpage.CheckPart(t, "limits.md", "deliveries", refpage.LimitTable("Resource", []refpage.Limit{
		{
			Resource: "Deliveries in the gateway: being sent, waiting to be sent, or waiting to be recorded",
			Value:    refpage.Count(maxUnderWay) + ". A project gets at most half of the slots that the others leave, and a connector half of the rest.",
			Beyond:   "They stay in the store until there are free slots.",
		},
		{
			Resource: "Deliveries of one connector in all gateways", Value: refpage.Count(maxClaimedPerConnector),
			Beyond: "They stay in the store until others of the connector end.",
		},
		{
			Resource: "Concurrent requests of a gateway to one connector", Value: refpage.Count(maxConcurrentRequests),
			Beyond: "Other deliveries of the connector wait in the gateway.",
		},
		{
			Resource: fmt.Sprintf("Results and payloads of more than %s, in memory while they are sent", large),
			Value: fmt.Sprintf("%d of at most %s. A project gets %d and at most half of what the others leave. A connector gets %d, or %d while another connector waits.",
				maxLarge, refpage.Bytes(store.MaxOutput), largePart, largePart-1, largePart/2),
			Beyond: "They wait. Smaller deliveries of the connector continue.",
		},
		{
			Resource: fmt.Sprintf("Deliveries of more than %s of a project that wait", large),
			Value:    fmt.Sprintf("%d. A connector gets half of what the others leave, at least one.", maxWaiting),
			Beyond:   fmt.Sprintf("They return to the store for about %s, so that another gateway can send them.", refpage.Time(platformPause)),
		},
		{
			Resource: "Time that such a delivery waits", Value: refpage.Time(maxLargeWait),
			Beyond: fmt.Sprintf("It returns to the store for about %s.", refpage.Time(largeRetryDelay)),
		},
	}))
}
