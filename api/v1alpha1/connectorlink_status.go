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

// SpecID returns spec.id, "" where it is not set.
func (l *ConnectorLink) SpecID() string { return string(l.Spec.ID) }

// CommonStatus returns what every status has.
func (l *ConnectorLink) CommonStatus() *ObjectStatus { return &l.Status.ObjectStatus }

// DefinedInCode says whether the link mirrors one of a file of the project's repository,
// where alone it is changed.
func (l *ConnectorLink) DefinedInCode() bool { return l.Labels[LabelDefinedInCode] == "true" }

// Activation is the rank of the activation that a link of the code mirrors; 0 of others.
func (l *ConnectorLink) Activation() int64 { return activationOf(l.Labels) }

// SourceConnectors are the names of the connectors of whose runs alone it sends the results.
func (l *ConnectorLink) SourceConnectors() []ConnectorName {
	if l.Spec.Outbound == nil {
		return nil
	}
	return l.Spec.Outbound.SourceConnectors
}

// readyWas: ReferencesResolved names what is missing.
func (l *ConnectorLink) readyWas(reason, message string) {
	if reason == ReasonReferenceMissing || reason == ReasonAgentUnknown {
		set(l, ConditionReferencesResolved, metav1.ConditionFalse, reason, message)
	}
}

// MarkReferencesResolved: connector, environment and agent are there.
func (l *ConnectorLink) MarkReferencesResolved() {
	set(l, ConditionReferencesResolved, metav1.ConditionTrue, ReasonSucceeded, "connector and agent are there")
}

// MarkAgentUndecided: no deployment is live, so nobody knows whether it has the agent.
func (l *ConnectorLink) MarkAgentUndecided(environment string) {
	set(l, ConditionReferencesResolved, metav1.ConditionUnknown, ReasonProgressing,
		fmt.Sprintf("Environment %q has no live deployment that could have the agent", environment))
}

// ShownAgents is how many names of agents a message has at most.
const ShownAgents = 10

// MarkAgentUnknown: the live deployment, which has these agents, has no such one; a
// later one may.
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

// MarkInvalid: the spec asks for something that cannot have an effect, as problem says.
func (l *ConnectorLink) MarkInvalid(problem string) {
	MarkStalled(l, ReasonInvalidSpec, problem+"; what was valid before, if anything, stays in effect")
}

// MarkTooMany: the connector has limit other links.
func (l *ConnectorLink) MarkTooMany(limit int) {
	MarkStalled(l, ReasonLimitReached, fmt.Sprintf("Connector %q has %d links, which is as many runs as one event may start; delete one, "+
		"or link the agent to another Connector", l.Spec.Connector, limit))
}

// MarkDuplicate: holder, another link, joins the same connector and agent.
func (l *ConnectorLink) MarkDuplicate(holder string) {
	MarkStalled(l, ReasonDuplicateLink, fmt.Sprintf("%s links agent %q to Connector %q already, and one event starts an agent once; delete one of the two",
		holder, l.Spec.Agent, l.Spec.Connector))
}

// MarkActionTaken: holder, another link, gives the agent a tool of that name in the environment.
func (l *ConnectorLink) MarkActionTaken(name, holder string) {
	MarkStalled(l, ReasonActionNameTaken, fmt.Sprintf("%s gives agent %q a tool %q already; give one of the two another spec.outbound.actionName",
		holder, l.Spec.Agent, name))
}

// MarkTooManyOutbound: the agent has limit other links to outbound connectors of the environment.
func (l *ConnectorLink) MarkTooManyOutbound(limit int) {
	MarkStalled(l, ReasonLimitReached, fmt.Sprintf("agent %q has %d links to outbound connectors in this environment, as many as it may have; delete one",
		l.Spec.Agent, limit))
}
