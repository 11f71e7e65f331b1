// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"github.com/danielgtaylor/huma/v2"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
	"github.com/agentplatform/agentplatform/store"
)

// Enumerations are types of their own, so that the description names each once. They
// grow: a client must bear a value that it does not know in an answer.
type (
	RunStatus          string
	RunStatusFilter    string
	ConnectorRunStatus string
	DeploymentStatus   string
	DeploymentPhase    string
	FailureReason      string
	CommitState        string
	SourceType         string
	ConnectorAction    string
	EnvironmentKind    string
	ConnectorType      string
	ConnectorMode      string
	Authentication     string
	MissedTicks        string
	OutboundMode       string
	LinkStatus         string
	TriggerType        string
	EndedStatus        string
	ReplayStatus       string
	DeliveryKind       string
	DeliveringState    string
	TimeRange          string
	AgentTimeRange     string
	AgentDeployment    string
	SpanKind           string
	LogLevel           string
	AuditActorKind     string
	Permission         string
	Currency           string
)

// schemas is where the description keeps what has a name.
const schemas = "#/components/schemas/"

// enumeration refers to the component of that name, and makes it.
func enumeration(r huma.Registry, name, doc string, values ...string) *huma.Schema {
	if _, there := r.Map()[name]; !there {
		s := &huma.Schema{Type: huma.TypeString, Description: doc}
		for _, v := range values {
			s.Enum = append(s.Enum, v)
		}
		s.PrecomputeMessages()
		r.Map()[name] = s
	}
	return &huma.Schema{Ref: schemas + name}
}

// Schema describes the type.
func (RunStatus) Schema(r huma.Registry) *huma.Schema {
	return enumeration(r, "RunStatus", "Where an agent run stands. completed, failed and cancelled are final.",
		"scheduled", "queued", "running", "awaiting_approval", "completed", "failed", "cancelled")
}

// Schema describes the type.
func (RunStatusFilter) Schema(r huma.Registry) *huma.Schema {
	return enumeration(r, "RunStatusFilter", "A status that agent runs are chosen by. No run stands as scheduled or awaiting_approval in this release.",
		"queued", "running", "completed", "failed", "cancelled")
}

// Schema describes the type.
func (ConnectorRunStatus) Schema(r huma.Registry) *huma.Schema {
	return enumeration(r, "ConnectorRunStatus", "Where an event or a delivery stands. pending: the next attempt to deliver is due later. "+
		"An event has failed where an agent run of it did, else has completed where one did, else all were cancelled. skipped: nothing was to be done, and error says why.",
		"pending", "running", "completed", "failed", "skipped", "cancelled")
}

// Schema describes the type.
func (DeploymentStatus) Schema(r huma.Registry) *huma.Schema {
	return enumeration(r, "DeploymentStatus", "Where a deployment stands. deployed, failed and cancelled are final.",
		"pending", "building", "deployed", "failed", "cancelled")
}

// Schema describes the type.
func (DeploymentPhase) Schema(r huma.Registry) *huma.Schema {
	return enumeration(r, "DeploymentPhase", "What a building deployment is at.", "fetching", "packing", "testing", "connecting")
}

// Schema describes the type.
func (FailureReason) Schema(r huma.Registry) *huma.Schema {
	return enumeration(r, "FailureReason", "Why a deployment failed. store_restored: it is newer than the backup that the store was restored from.",
		"build_failed", "tests_failed", "connectors_failed", "deadline_exceeded", "store_restored")
}

// Schema describes the type.
func (CommitState) Schema(r huma.Registry) *huma.Schema {
	return enumeration(r, "CommitState", "What a repository's provider knows of a commit.", "pending", "success", "failure", "error")
}

// Schema describes the type.
func (SourceType) Schema(r huma.Registry) *huma.Schema {
	return enumeration(r, "SourceType", "Where a deployment's code came from.", "git", "upload")
}

// Schema describes the type.
func (ConnectorAction) Schema(r huma.Registry) *huma.Schema {
	return enumeration(r, "ConnectorAction", "What a deployment did with a connector of its code.",
		"created", "updated", "unchanged", "retired", "skipped", "failed")
}

// Schema describes the type.
func (EnvironmentKind) Schema(r huma.Registry) *huma.Schema {
	return enumeration(r, "EnvironmentKind", "What an environment is for.", "standard", "test")
}

// Schema describes the type.
func (ConnectorType) Schema(r huma.Registry) *huma.Schema {
	return enumeration(r, "ConnectorType", "What a connector is: webhook takes events at a URL, cron makes them by a schedule.", "webhook", "cron")
}

// Schema describes the type.
func (ConnectorMode) Schema(r huma.Registry) *huma.Schema {
	return enumeration(r, "ConnectorMode", "inbound answers an event with run ids at once, sync with the agent's result; outbound "+
		"sends results.", "inbound", "sync", "outbound")
}

// Schema describes the type.
func (Authentication) Schema(r huma.Registry) *huma.Schema {
	return enumeration(r, "Authentication", "How callers of a webhook prove themselves: by sending the connector's secret, by a provider's signature "+
		"with it, or not at all; then the URL is the only secret.", authentications()...)
}

// Schema describes the type.
func (MissedTicks) Schema(r huma.Registry) *huma.Schema {
	return enumeration(r, "MissedTicks", "What becomes of ticks of a schedule that could not be run within five minutes: nothing, or the newest "+
		"of them is run, once.", v1alpha1.MissedTicksSkip.Word(), v1alpha1.MissedTicksLatest.Word())
}

// Schema describes the type.
func (OutboundMode) Schema(r huma.Registry) *huma.Schema {
	return enumeration(r, "OutboundMode", "When something goes out over a link: automatic, the result of each run once it ends; agent_tool, what the "+
		"agent sends by a tool while it runs.", v1alpha1.LinkAutomatic.Word(), v1alpha1.LinkAgentTool.Word())
}

// Schema describes the type.
func (LinkStatus) Schema(r huma.Registry) *huma.Schema {
	return enumeration(r, "LinkStatus", "What an automatic link sends: the results of runs that have ended so; delivery_failed, word of deliveries of other "+
		"connectors of the environment that fail.", v1alpha1.LinkCompleted.Word(), v1alpha1.LinkFailed.Word(), v1alpha1.LinkCancelled.Word(),
		v1alpha1.LinkDeliveryFailed.Word())
}

// Schema describes the type.
func (TriggerType) Schema(r huma.Registry) *huma.Schema {
	return enumeration(r, "TriggerType", "What caused a connector run.", "webhook", "cron", "outbound")
}

// Schema describes the type.
func (EndedStatus) Schema(r huma.Registry) *huma.Schema {
	return enumeration(r, "EndedStatus", "With what a connector run has ended.", "completed", "failed", "skipped", "cancelled")
}

// Schema describes the type.
func (ReplayStatus) Schema(r huma.Registry) *huma.Schema {
	return enumeration(r, "ReplayStatus", "Where a replay stands; completed, cancelled and failed are final. dry_run: it is none, and only told how many match.",
		"running", "completed", "cancelled", "failed", "dry_run")
}

// Schema describes the type.
func (DeliveryKind) Schema(r huma.Registry) *huma.Schema {
	return enumeration(r, "DeliveryKind", "What a delivery carries: the result of a run, the payload that a run sends by a tool, word of another delivery "+
		"that has failed, or an example that somebody has sent as a test.", string(store.DeliverResult), string(store.DeliverPayload), string(store.DeliverFailure), string(store.DeliverTest))
}

// Schema describes the type.
func (DeliveringState) Schema(r huma.Registry) *huma.Schema {
	return enumeration(r, "DeliveringState", "How the deliveries of an outbound connector go. failing: the last five attempts or more have failed; one at a time is tried "+
		"until one succeeds, and the others wait. rejecting: the delivery that ended last was not taken; those that come are sent all the same. "+
		"paused: the destination wants no more. stopped: the connector does not work, as disabled_reason says. Of paused and stopped ones deliveries are skipped.",
		string(store.DestinationDelivering), string(store.DestinationFailing), string(store.DestinationRejecting), string(store.DestinationPaused), deliveringStopped)
}

// Schema describes the type.
func (TimeRange) Schema(r huma.Registry) *huma.Schema {
	return enumeration(r, "TimeRange", "A window that ends now.", "1h", "6h", "24h", "7d", "30d")
}

// Schema describes the type.
func (AgentTimeRange) Schema(r huma.Registry) *huma.Schema {
	return enumeration(r, "AgentTimeRange", "A window that ends now, or a period of the calendar in UTC; all has no beginning.",
		"24h", "7d", "30d", "90d", "today", "this_month", "last_month", "this_year", "all")
}

// Schema describes the type.
func (AgentDeployment) Schema(r huma.Registry) *huma.Schema {
	return enumeration(r, "AgentDeploymentStatus", "Whether the live deployment has the agent.", "deployed", "not_deployed")
}

// Schema describes the type.
func (SpanKind) Schema(r huma.Registry) *huma.Schema {
	return enumeration(r, "SpanKind", "What a span is of.", "agent", "model", "tool", "middleware", "guardrail")
}

// Schema describes the type.
func (LogLevel) Schema(r huma.Registry) *huma.Schema {
	return enumeration(r, "LogLevel", "How much a line matters.", "debug", "info", "warning", "error")
}

// Schema describes the type.
func (AuditActorKind) Schema(r huma.Registry) *huma.Schema {
	return enumeration(r, "AuditActorKind", "How somebody acted: through this API, by a command of an operator, or by writing an object "+
		"through the Kubernetes API.", "api_key", "command", "kubernetes")
}

// Schema describes the type.
func (Currency) Schema(r huma.Registry) *huma.Schema {
	return enumeration(r, "Currency", "A currency by its ISO 4217 code.", "EUR", "USD")
}

// Schema describes the type.
func (Permission) Schema(r huma.Registry) *huma.Schema {
	var names []string
	for _, p := range v1alpha1.Permissions() {
		names = append(names, string(p))
	}
	about := "What a key and its owner may do: section and action."
	if without := areasWithoutEndpoint(); len(without) > 0 {
		about += " This release has no endpoint yet for " + listAnd(without) + ": their permissions can be given and are listed, and have no effect."
	}
	return enumeration(r, "Permission", about, names...)
}

// authentications are the words for all ways to authenticate callers.
func authentications() (words []string) {
	for _, a := range v1alpha1.WebhookAuthentications {
		words = append(words, a.Word())
	}
	return words
}
