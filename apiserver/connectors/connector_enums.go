// SPDX-License-Identifier: Apache-2.0

package connectors

import (
	"github.com/danielgtaylor/huma/v2"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
	"github.com/agentplatform/agentplatform/apiserver/rest"
	"github.com/agentplatform/agentplatform/store"
)

// Enums are types of their own, so that the description has each of them once. Clients must accept new values.

// OutboundMode is when a link sends.
type OutboundMode string

func (OutboundMode) Schema(r huma.Registry) *huma.Schema {
	return rest.Enumeration(r, "OutboundMode", "When a link sends something: automatic sends the result of each run when it ends; agent_tool lets the agent "+
		"send a payload with a tool while it runs; middleware lets the agent's middleware send a payload with send_connector.",
		v1alpha1.LinkAutomatic.EnumValue(), v1alpha1.LinkAgentTool.EnumValue(), v1alpha1.LinkMiddleware.EnumValue())
}

// LinkStatus is a status whose results an automatic link sends.
type LinkStatus string

func (LinkStatus) Schema(r huma.Registry) *huma.Schema {
	return rest.Enumeration(r, "LinkStatus", "What an automatic link sends: results of runs with this status; delivery_failed sends reports of failed deliveries of "+
		"the environment's other connectors.", v1alpha1.LinkCompleted.EnumValue(), v1alpha1.LinkFailed.EnumValue(), v1alpha1.LinkCancelled.EnumValue(),
		v1alpha1.LinkDeliveryFailed.EnumValue())
}

// DeliveringState is the state of deliveries.
type DeliveringState string

func (DeliveringState) Schema(r huma.Registry) *huma.Schema {
	return rest.Enumeration(r, "DeliveringState", "The state of an outbound connector's deliveries. failing: at least the last five attempts have failed; one delivery at a time "+
		"is retried until one succeeds, and the others wait. rejecting: the destination rejected the last delivery; new deliveries are still sent. "+
		"paused: the destination refused further deliveries. stopped: the connector does not work; disabled_reason gives the reason. "+
		"Paused and stopped connectors skip deliveries.",
		string(store.DestinationDelivering), string(store.DestinationFailing), string(store.DestinationRejecting), string(store.DestinationPaused), deliveringStopped)
}
