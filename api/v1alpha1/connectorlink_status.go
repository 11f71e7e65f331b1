// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"cmp"
	"fmt"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// ObjectKind returns "ConnectorLink".
func (l *ConnectorLink) ObjectKind() string { return "ConnectorLink" }

// SpecID returns spec.id, or "" if it is not set.
func (l *ConnectorLink) SpecID() string { return string(l.Spec.ID) }

// CommonStatus returns the part of the status that all kinds share.
func (l *ConnectorLink) CommonStatus() *ObjectStatus { return &l.Status.ObjectStatus }

// DefinedInCode reports whether the link mirrors a file of the project's repository.
func (l *ConnectorLink) DefinedInCode() bool { return l.Labels[LabelDefinedInCode] == "true" }

// Activation returns the rank of the activation that a link in code mirrors, or 0 for other links.
func (l *ConnectorLink) Activation() int64 { return activationOf(l.Labels) }

// SourceConnectors returns the names of the connectors whose runs the link is limited to.
func (l *ConnectorLink) SourceConnectors() []ConnectorName {
	if l.Spec.Outbound == nil {
		return nil
	}
	return l.Spec.Outbound.SourceConnectors
}

// readyWas sets ReferencesResolved to the missing reference.
func (l *ConnectorLink) readyWas(reason, message string) {
	if reason == ReasonReferenceMissing || reason == ReasonAgentUnknown || reason == ReasonMiddlewareMissing {
		setCondition(l, ConditionReferencesResolved, metav1.ConditionFalse, reason, message)
	}
}

// MarkReferencesResolved reports that connector, environment and agent exist.
func (l *ConnectorLink) MarkReferencesResolved() {
	setCondition(l, ConditionReferencesResolved, metav1.ConditionTrue, ReasonSucceeded, "connector and agent exist")
}

// MarkAgentUndecided reports that no deployment is live, so it is unknown whether the agent exists.
func (l *ConnectorLink) MarkAgentUndecided(environment string) {
	setCondition(l, ConditionReferencesResolved, metav1.ConditionUnknown, ReasonProgressing,
		fmt.Sprintf("Environment %q has no live deployment yet", environment))
}

// ShownAgents limits the names of agents in a message.
const ShownAgents = 10

// MarkAgentUnknown reports that the live deployment, with the given agents, does not have the
// link's agent. A later deployment can have it.
func (l *ConnectorLink) MarkAgentUnknown(agents []string) {
	known := strings.Join(agents[:min(len(agents), ShownAgents)], ", ")
	if len(agents) > ShownAgents {
		known += " and others"
	}
	message := fmt.Sprintf("agent %q is not in the environment's live deployment, which has %s; "+
		"deploy it, or create a link with the right name",
		l.Spec.Agent, cmp.Or(known, "none"))
	MarkWaiting(l, ReasonAgentUnknown, message)
}

// MarkMiddlewareMissing reports that nothing sends over a link in the mode Middleware. A later
// deployment can have the script.
func (l *ConnectorLink) MarkMiddlewareMissing() {
	MarkWaiting(l, ReasonMiddlewareMissing, fmt.Sprintf("spec.outbound.mode is Middleware, and no middleware of agent %q in the environment's live "+
		"deployment calls send_connector; deploy middleware/%s.star with that call, or set another mode", l.Spec.Agent, l.Spec.Agent))
}

// MarkInvalid reports a spec that cannot have an effect.
func (l *ConnectorLink) MarkInvalid(problem string) {
	MarkStalled(l, ReasonInvalidSpec, InvalidSpecMessage(problem))
}

// MarkTooMany reports that the connector is at its limit of links.
func (l *ConnectorLink) MarkTooMany(limit int) {
	MarkStalled(l, ReasonLimitReached, fmt.Sprintf("Connector %q has %d links, the limit of runs per event; delete one, "+
		"or link the agent to another Connector", l.Spec.Connector, limit))
}

// MarkDuplicate reports that holder, another link, joins the same connector and agent.
func (l *ConnectorLink) MarkDuplicate(holder string) {
	MarkStalled(l, ReasonDuplicateLink, fmt.Sprintf("%s already links agent %q to Connector %q, and an event starts an agent once; delete one of the two",
		holder, l.Spec.Agent, l.Spec.Connector))
}

// MarkActionTaken reports that holder, another link, gives the agent a tool with the same name in
// the environment.
func (l *ConnectorLink) MarkActionTaken(name, holder string) {
	MarkStalled(l, ReasonActionNameTaken, fmt.Sprintf("%s already gives agent %q a tool %q; set another spec.outbound.actionName in one of the two",
		holder, l.Spec.Agent, name))
}

// MarkTooManyOutbound reports that the agent is at its limit of links to outbound connectors of the
// environment.
func (l *ConnectorLink) MarkTooManyOutbound(limit int) {
	MarkStalled(l, ReasonLimitReached, fmt.Sprintf("agent %q has %d links to outbound connectors in this environment, which is the limit; delete one",
		l.Spec.Agent, limit))
}
