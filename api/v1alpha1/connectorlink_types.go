// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// ConnectorLink ties an agent to a connector: an inbound or sync connector
// starts the agent, an outbound one sends its results.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:shortName=clink,categories=agents
// +kubebuilder:subresource:status
// +kubebuilder:selectablefield:JSONPath=`.spec.id`
// +kubebuilder:selectablefield:JSONPath=`.spec.connector`
// +kubebuilder:selectablefield:JSONPath=`.spec.agent`
// +kubebuilder:selectablefield:JSONPath=`.status.id`
// +kubebuilder:printcolumn:name="Connector",type=string,JSONPath=`.spec.connector`
// +kubebuilder:printcolumn:name="Agent",type=string,JSONPath=`.spec.agent`
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Status",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].message`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="ID",type=string,JSONPath=`.status.id`,priority=1
type ConnectorLink struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Spec is what the link is asked to be.
	//
	// +required
	Spec ConnectorLinkSpec `json:"spec"`

	// Status is what the controllers have found and done.
	//
	// +optional
	// +kubebuilder:default={"observedGeneration":-1}
	Status ConnectorLinkStatus `json:"status,omitempty"`
}

// ConnectorLinkSpec is what a link is asked to be.
//
// +kubebuilder:validation:XValidation:rule="has(self.id) == has(oldSelf.id) && (!has(self.id) || self.id == oldSelf.id)",message="id is immutable: it can be given when the ConnectorLink is created, and neither set, changed nor removed later"
// +kubebuilder:validation:XValidation:rule="self.connector == oldSelf.connector",message="connector is immutable: create another ConnectorLink"
// +kubebuilder:validation:XValidation:rule="self.agent == oldSelf.agent",message="agent is immutable: create another ConnectorLink"
// +kubebuilder:validation:XValidation:rule="!has(self.outbound) || !has(self.filesRequired)",message="filesRequired is for links of inbound and sync connectors, outbound for those of outbound connectors: set one of them"
type ConnectorLinkSpec struct {
	// ID is the link's id in the REST API. Without it the id derives from the
	// project's id and the object's name. It is immutable.
	//
	// +optional
	ID UUID `json:"id,omitempty"`

	// Connector is the name of the Connector. It is immutable.
	//
	// +required
	Connector ConnectorName `json:"connector"`

	// Agent is the name of the agent, as its YAML file gives it. It is immutable.
	//
	// +required
	Agent AgentName `json:"agent"`

	// FilesRequired makes a run of this agent fail before it begins when an
	// attachment is missing or was left out (inbound, sync). Without it the
	// connector's own setting holds.
	//
	// +optional
	FilesRequired *bool `json:"filesRequired,omitempty"`

	// Outbound says when and how results are sent, for an outbound connector.
	// Without it: automatically, for every completed run.
	//
	// +optional
	Outbound *OutboundLink `json:"outbound,omitempty"`
}

// OutboundMode says who sends to an outbound connector.
//
// +kubebuilder:validation:Enum=automatic;agent_tool;middleware
type OutboundMode string

// Modes of outbound links.
const (
	// OutboundAutomatic sends whenever a run of the agent ends.
	OutboundAutomatic OutboundMode = "automatic"
	// OutboundAgentTool gives the agent a tool that sends.
	OutboundAgentTool OutboundMode = "agent_tool"
	// OutboundMiddleware lets middleware send with send_connector.
	OutboundMiddleware OutboundMode = "middleware"
)

// RunOutcome is a state in which an agent run ends.
//
// +kubebuilder:validation:Enum=completed;failed;cancelled
type RunOutcome string

// Outcomes of agent runs.
const (
	RunCompleted RunOutcome = "completed"
	RunFailed    RunOutcome = "failed"
	RunCancelled RunOutcome = "cancelled"
)

// OutboundLink says when and how an agent's results are sent.
//
// +kubebuilder:validation:XValidation:rule="!has(self.actionName) || self.mode != 'automatic'",message="actionName is for the modes agent_tool and middleware"
// +kubebuilder:validation:XValidation:rule="self.mode == 'automatic' || !(has(self.sourceConnectors) || has(self.statuses))",message="sourceConnectors and statuses are for the mode automatic"
type OutboundLink struct {
	// Mode is automatic (every run that ends is sent), agent_tool (the agent has
	// a tool that sends) or middleware (send_connector sends).
	//
	// +optional
	// +kubebuilder:default=automatic
	Mode OutboundMode `json:"mode,omitempty"`

	// ActionName is the name of the agent's tool, or of the action in
	// send_connector. Without it: send_to_<connector name>.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:XValidation:rule="self.matches('^[A-Za-z_][A-Za-z0-9_-]*$')",message="must be letters, digits, '_' and '-', beginning with a letter or '_'"
	ActionName string `json:"actionName,omitempty"`

	// SourceConnectors are the names of the Connectors whose runs are sent.
	// Without it: all runs of the agent.
	//
	// +optional
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=64
	SourceConnectors []ConnectorName `json:"sourceConnectors,omitempty"`

	// Statuses are the states of ended runs that are sent. Without it: completed.
	//
	// +optional
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=3
	Statuses []RunOutcome `json:"statuses,omitempty"`
}

// ConnectorLinkStatus is what the controllers have found and done.
type ConnectorLinkStatus struct {
	ObjectStatus `json:",inline"`

	// Environment is the name of the Environment of connector and agent.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=253
	Environment string `json:"environment,omitempty"`
}

// ConnectorLinkList is a list of ConnectorLinks.
//
// +kubebuilder:object:root=true
type ConnectorLinkList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []ConnectorLink `json:"items"`
}
