// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// ConnectorLink ties an agent to a connector, whose events start it, or which sends its
// results.
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

	// FilesRequired lets the agent's run of an event fail that has no attachment, or
	// one that is omitted, also where the Connector does not ask for it.
	//
	// +optional
	FilesRequired bool `json:"filesRequired,omitempty"`

	// Outbound says what goes out over a link to an outbound connector; without it, the
	// results of all completed runs of the agent.
	//
	// +optional
	Outbound *OutboundLink `json:"outbound,omitempty"`
}

// LinkMode says when something goes out over a link.
//
// +kubebuilder:validation:Enum=Automatic;AgentTool;Middleware
type LinkMode string

// Modes of links to outbound connectors.
const (
	// LinkAutomatic sends the result of each run that the link is for, once it ends.
	LinkAutomatic LinkMode = "Automatic"
	// LinkAgentTool gives the agent a tool by which it sends while it runs.
	LinkAgentTool LinkMode = "AgentTool"
	// LinkMiddleware lets the agent's middleware send while it runs.
	LinkMiddleware LinkMode = "Middleware"
)

// LinkStatus is a status of runs, Completed, Failed or Cancelled; or DeliveryFailed.
//
// +kubebuilder:validation:Enum=Completed;Failed;Cancelled;DeliveryFailed
type LinkStatus string

// Statuses of runs whose results a link may send.
const (
	LinkCompleted LinkStatus = "Completed"
	LinkFailed    LinkStatus = "Failed"
	LinkCancelled LinkStatus = "Cancelled"
	// LinkDeliveryFailed lets it send word of deliveries that fail, of other connectors
	// of its environment.
	LinkDeliveryFailed LinkStatus = "DeliveryFailed"
)

// ActionName is the name of a tool.
//
// +kubebuilder:validation:MinLength=1
// +kubebuilder:validation:MaxLength=64
// +kubebuilder:validation:XValidation:rule="self.matches('^[a-zA-Z_][a-zA-Z0-9_-]*$')",message="must consist of letters, digits, underscores and dashes, and begin with a letter or an underscore, as model services want it"
type ActionName string

// OutboundLink says what goes out over a link to an outbound connector.
//
// +kubebuilder:validation:XValidation:rule="!has(self.actionName) || self.mode == 'AgentTool'",message="actionName is for the mode AgentTool: other modes have no tool"
// +kubebuilder:validation:XValidation:rule="self.mode == 'Automatic' || !has(self.sourceConnectors) && !has(self.statuses)",message="sourceConnectors and statuses are for the mode Automatic: in others the agent says what is sent"
type OutboundLink struct {
	// Mode is Automatic, the result of each run goes out once it ends; or AgentTool, the
	// agent sends by a tool while it runs. Middleware is for later releases.
	//
	// +optional
	// +kubebuilder:default=Automatic
	Mode LinkMode `json:"mode,omitempty"`

	// ActionName is the name of the tool, unique for the agent in its environment.
	// Without it send_to_ and the connector's name, in lower-case letters, digits and
	// underscores.
	//
	// +optional
	ActionName ActionName `json:"actionName,omitempty"`

	// SourceConnectors narrow it to results of runs that these Connectors started.
	// Without it all runs of the agent.
	//
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=32
	SourceConnectors []ConnectorName `json:"sourceConnectors,omitempty"`

	// Statuses are those of the runs whose results are sent; DeliveryFailed sends word of
	// deliveries that fail. Without it Completed.
	//
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=4
	Statuses []LinkStatus `json:"statuses,omitempty"`
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
