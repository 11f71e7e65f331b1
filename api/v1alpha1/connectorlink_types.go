// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// ConnectorLink joins a connector and an agent. Events of the connector start the agent, or the
// connector delivers the agent's results.
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

	// Spec is the desired state of the link.
	//
	// +required
	Spec ConnectorLinkSpec `json:"spec"`

	// Status is the observed state.
	//
	// +optional
	// +kubebuilder:default={"observedGeneration":-1}
	Status ConnectorLinkStatus `json:"status,omitempty"`
}

// ConnectorLinkSpec is the desired state of a link.
//
// +kubebuilder:validation:XValidation:rule="has(self.id) == has(oldSelf.id) && (!has(self.id) || self.id == oldSelf.id)",message="id is immutable: set it when the ConnectorLink is created"
// +kubebuilder:validation:XValidation:rule="self.connector == oldSelf.connector",message="connector is immutable: create another ConnectorLink"
// +kubebuilder:validation:XValidation:rule="self.agent == oldSelf.agent",message="agent is immutable: create another ConnectorLink"
type ConnectorLinkSpec struct {
	// ID is the link's ID in the REST API. If it is not set, the ID derives from the project's ID
	// and the object's name. It is immutable.
	//
	// +optional
	ID UUID `json:"id,omitempty"`

	// Connector is the name of the Connector. It is immutable.
	//
	// +required
	Connector ConnectorName `json:"connector"`

	// Agent is the name of the agent in its YAML file. It is immutable.
	//
	// +required
	Agent AgentName `json:"agent"`

	// FilesRequired fails the agent's run of an event without an attachment, or with an omitted
	// one. It adds to filesRequired of the Connector.
	//
	// +optional
	FilesRequired bool `json:"filesRequired,omitempty"`

	// Outbound configures a link to an outbound connector. Default: the results of all completed
	// runs of the agent.
	//
	// +optional
	Outbound *OutboundLink `json:"outbound,omitempty"`
}

// LinkMode selects when a link to an outbound connector sends.
//
// +kubebuilder:validation:Enum=Automatic;AgentTool;Middleware
type LinkMode string

// Modes of links to outbound connectors.
const (
	// LinkAutomatic sends the result of each matching run when it ends.
	LinkAutomatic LinkMode = "Automatic"
	// LinkAgentTool gives the agent a tool that sends during the run.
	LinkAgentTool LinkMode = "AgentTool"
	// LinkMiddleware lets the agent's middleware send during the run.
	LinkMiddleware LinkMode = "Middleware"
)

// LinkStatus is a status of runs (Completed, Failed or Cancelled) or DeliveryFailed.
//
// +kubebuilder:validation:Enum=Completed;Failed;Cancelled;DeliveryFailed
type LinkStatus string

// Run statuses that a link can send.
const (
	LinkCompleted LinkStatus = "Completed"
	LinkFailed    LinkStatus = "Failed"
	LinkCancelled LinkStatus = "Cancelled"
	// LinkDeliveryFailed sends notifications about failed deliveries of other connectors of the
	// environment.
	LinkDeliveryFailed LinkStatus = "DeliveryFailed"
)

// ActionName is the name of a tool.
//
// +kubebuilder:validation:MinLength=1
// +kubebuilder:validation:MaxLength=64
// +kubebuilder:validation:XValidation:rule="self.matches('^[a-zA-Z_][a-zA-Z0-9_-]*$')",message="must consist of letters, digits, underscores and dashes, and begin with a letter or an underscore, as model services require"
type ActionName string

// OutboundLink selects the data that a link to an outbound connector sends.
//
// +kubebuilder:validation:XValidation:rule="!has(self.actionName) || self.mode == 'AgentTool'",message="actionName is for the mode AgentTool: other modes have no tool"
// +kubebuilder:validation:XValidation:rule="self.mode == 'Automatic' || !has(self.sourceConnectors) && !has(self.statuses)",message="sourceConnectors and statuses are for the mode Automatic: in other modes the agent or its middleware chooses the payload"
type OutboundLink struct {
	// Mode is Automatic, to send the result of each run when it ends, AgentTool, to let the agent
	// send by a tool during the run, or Middleware, to let the agent's middleware send during the
	// run with send_connector.
	//
	// +optional
	// +kubebuilder:default=Automatic
	Mode LinkMode `json:"mode,omitempty"`

	// ActionName is the name of the tool, unique for the agent in its environment. Default:
	// send_to_ and the connector's name, in lower-case letters, digits and underscores.
	//
	// +optional
	ActionName ActionName `json:"actionName,omitempty"`

	// SourceConnectors limits the link to runs that these Connectors started. Default: all runs of
	// the agent.
	//
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=32
	SourceConnectors []ConnectorName `json:"sourceConnectors,omitempty"`

	// Statuses selects the run statuses to send. DeliveryFailed sends notifications about failed
	// deliveries. Default: Completed.
	//
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=4
	Statuses []LinkStatus `json:"statuses,omitempty"`
}

// ConnectorLinkStatus is the observed state of a link.
type ConnectorLinkStatus struct {
	ObjectStatus `json:",inline"`

	// Environment is the name of the Environment of the connector.
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
