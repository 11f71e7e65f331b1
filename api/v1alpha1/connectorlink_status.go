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

// MarkReady: the link is in effect as asked. An empty message gets a plain one.
func (l *ConnectorLink) MarkReady(message string) { markReady(l, message) }

// MarkReconciling: work is under way.
func (l *ConnectorLink) MarkReconciling(reason, message string) {
	markReconciling(l, metav1.ConditionUnknown, reason, message)
}

// MarkStalled: nothing goes on until somebody changes something.
func (l *ConnectorLink) MarkStalled(reason, message string) { markStalled(l, reason, message) }

// MarkIDTaken: the id is held by holder, `Kind namespace/name`.
func (l *ConnectorLink) MarkIDTaken(holder string) { markIDTaken(l, holder) }

// MarkReferenceMissing: an object that the spec names does not exist (yet).
func (l *ConnectorLink) MarkReferenceMissing(kind, name string) {
	markReferenceMissing(l, kind, name)
	set(l, ConditionReferencesResolved, metav1.ConditionFalse, ReasonReferenceMissing, l.Status.Condition(ConditionReady).Message)
}

// MarkSecretMissing: a Secret that the spec names does not exist (yet).
func (l *ConnectorLink) MarkSecretMissing(name string) { markSecretMissing(l, name) }

// MarkSecretInvalid: a Secret that the spec names cannot be used.
func (l *ConnectorLink) MarkSecretInvalid(name, problem string) { markSecretInvalid(l, name, problem) }

// MarkProjectMissing: the namespace has no Project that is ready (yet).
func (l *ConnectorLink) MarkProjectMissing() { markProjectMissing(l) }

// MarkStoreUnavailable: the data store does not answer; it is tried again.
func (l *ConnectorLink) MarkStoreUnavailable() { markStoreUnavailable(l) }

// IsReady says whether Ready is True for the current generation.
func (l *ConnectorLink) IsReady() bool { return isTrueNow(l, ConditionReady) }

// IsStalled says whether Stalled is True for the current generation.
func (l *ConnectorLink) IsStalled() bool { return isTrueNow(l, ConditionStalled) }

// MarkReferencesResolved: connector, environment and agent are there.
func (l *ConnectorLink) MarkReferencesResolved() {
	set(l, ConditionReferencesResolved, metav1.ConditionTrue, ReasonSucceeded, "connector and agent are there")
}

// MarkAgentUndecided: no deployment is live, so nobody knows whether it has the agent.
func (l *ConnectorLink) MarkAgentUndecided(environment string) {
	set(l, ConditionReferencesResolved, metav1.ConditionUnknown, ReasonProgressing,
		fmt.Sprintf("Environment %q has no live deployment that could have the agent", environment))
}

// shownAgents is how many names of agents a message has at most.
const shownAgents = 10

// MarkAgentUnknown: the live deployment of the environment, which has these
// agents, has no such one; a later one may.
func (l *ConnectorLink) MarkAgentUnknown(environment string, agents []string) {
	known := strings.Join(agents[:min(len(agents), shownAgents)], ", ")
	if len(agents) > shownAgents {
		known += " and others"
	}
	message := fmt.Sprintf("agent %q is not in the live deployment of Environment %q, which has %s; deploy it, or create a link with the right name",
		l.Spec.Agent, environment, cmp.Or(known, "none"))
	set(l, ConditionReferencesResolved, metav1.ConditionFalse, ReasonAgentUnknown, message)
	markWaiting(l, ReasonAgentUnknown, message)
}

// MarkTooMany: the connector has limit other links.
func (l *ConnectorLink) MarkTooMany(limit int) {
	markStalled(l, ReasonLimitReached, fmt.Sprintf("Connector %q has %d links, which is as many runs as one event may start; delete one, "+
		"or link the agent to another Connector", l.Spec.Connector, limit))
}

// MarkDuplicate: holder, another link, joins the same connector and agent.
func (l *ConnectorLink) MarkDuplicate(holder string) {
	markStalled(l, ReasonDuplicateLink, fmt.Sprintf("%s links agent %q to Connector %q already, and one event starts an agent once; delete one of the two",
		holder, l.Spec.Agent, l.Spec.Connector))
}
