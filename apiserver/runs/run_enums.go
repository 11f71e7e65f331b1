// SPDX-License-Identifier: Apache-2.0

package runs

import (
	"github.com/danielgtaylor/huma/v2"

	"github.com/agentplatform/agentplatform/apiserver/rest"
	"github.com/agentplatform/agentplatform/internal/runtrace"
	"github.com/agentplatform/agentplatform/store"
)

// Enums are types of their own, so that the description has each of them once. Clients must accept new values.

// RunStatus is the status of an agent run.
type RunStatus string

func (RunStatus) Schema(r huma.Registry) *huma.Schema {
	return rest.Enumeration(r, "RunStatus", "The status of an agent run. completed, failed and cancelled are final.",
		"scheduled", "queued", "running", "awaiting_approval", "completed", "failed", "cancelled")
}

// ConnectorRunStatus is the status of a connector run.
type ConnectorRunStatus string

func (ConnectorRunStatus) Schema(r huma.Registry) *huma.Schema {
	return rest.Enumeration(r, "ConnectorRunStatus", "The status of an event or a delivery. pending: the next delivery attempt is due later. "+
		"An event has failed if one of its agent runs failed, else completed if one completed, else all were cancelled. "+
		"skipped: there was nothing to do; error gives the reason.",
		"pending", "running", "completed", "failed", "skipped", "cancelled")
}

// TriggerType is the cause of a connector run.
type TriggerType string

func (TriggerType) Schema(r huma.Registry) *huma.Schema {
	var values []string
	for _, t := range store.TriggerTypes {
		values = append(values, string(t))
	}
	return rest.Enumeration(r, "TriggerType", "The cause of a connector run.", values...)
}

// EndedStatus is a final status of a connector run.
type EndedStatus string

func (EndedStatus) Schema(r huma.Registry) *huma.Schema {
	return rest.Enumeration(r, "EndedStatus", "The final status of a connector run.", "completed", "failed", "skipped", "cancelled")
}

// ReplayStatus is the status of a replay.
type ReplayStatus string

func (ReplayStatus) Schema(r huma.Registry) *huma.Schema {
	return rest.Enumeration(r, "ReplayStatus", "The status of a replay. completed, cancelled and failed are final. dry_run: only the matches were counted.",
		"running", "completed", "cancelled", "failed", "dry_run")
}

// DeliveryKind is what a delivery carries.
type DeliveryKind string

func (DeliveryKind) Schema(r huma.Registry) *huma.Schema {
	return rest.Enumeration(r, "DeliveryKind", "What a delivery carries: the result of a run, a payload that a run sends with a tool, a report of another failed "+
		"delivery, or a test.", string(store.DeliverResult), string(store.DeliverPayload), string(store.DeliverFailure), string(store.DeliverTest))
}

// TimeRange is a window that ends now.
type TimeRange string

func (TimeRange) Schema(r huma.Registry) *huma.Schema {
	return rest.Enumeration(r, "TimeRange", "A window that ends now.", "1h", "6h", "24h", "7d", "30d")
}

// SpanKind is the kind of a step.
type SpanKind string

func (SpanKind) Schema(r huma.Registry) *huma.Schema {
	return rest.Enumeration(r, "SpanKind", "The kind of a step. run: the run itself. agent, model, tool, mcp: an agent, a model request, a call of a tool "+
		"or of an MCP server. effect: an effect or a read of a script. middleware, hook, guardrail, step: a script or a check. wait: a pause "+
		"without a runner.", spanKinds()...)
}

// LogLevel is the severity of a log line.
type LogLevel string

func (LogLevel) Schema(r huma.Registry) *huma.Schema {
	return rest.Enumeration(r, "LogLevel", "The severity of a log line.", "debug", "info", "warning", "error")
}

func spanKinds() (kinds []string) {
	for _, kind := range runtrace.Kinds() {
		kinds = append(kinds, string(kind))
	}
	return kinds
}
