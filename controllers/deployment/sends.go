// SPDX-License-Identifier: Apache-2.0

package deployment

import (
	"fmt"
	"maps"
	"slices"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
	"github.com/agentplatform/agentplatform/controllers/projection"
	"github.com/agentplatform/agentplatform/store"
)

// tool is one by which an agent sends.
type tool struct {
	agent v1alpha1.AgentName
	name  string
}

// sends is by what the agents of an environment would send, and what could start them.
type sends struct {
	// tools are the names of the connectors that each tool sends to.
	tools map[tool]string
	// links is how many links to outbound connectors each agent has; beyond has the agent of a
	// link of a connector that is one too many.
	links  map[v1alpha1.AgentName]int
	beyond map[string]v1alpha1.AgentName
	// starts are the connectors that start runs, by their names.
	starts map[v1alpha1.ConnectorName]bool
}

// sends says so once these changes are made: first of what somebody has made, then of what fails
// and stays as it is, then of what is new.
func (s situation) sends(changes []change) sends {
	out := sends{
		tools: map[tool]string{}, links: map[v1alpha1.AgentName]int{}, beyond: map[string]v1alpha1.AgentName{}, starts: map[v1alpha1.ConnectorName]bool{},
	}
	effective := map[string]*v1alpha1.Connector{} // which are not retired, nor will be
	for name, c := range s.connectors {
		if !projection.IsOurs(c, s.environment) && c.Spec.Environment == s.environment {
			effective[name] = c
		}
	}
	for _, c := range changes {
		name := v1alpha1.CodeConnectorName(s.environment, c.key)
		if existing := s.connectors[name]; c.action == actionFailed && existing != nil && !existing.Retired() {
			effective[name] = existing
		}
		if c.mirror != nil {
			effective[name] = c.mirror.Connector
		}
	}
	for _, name := range slices.Sorted(maps.Keys(effective)) {
		c := effective[name]
		out.starts[v1alpha1.ConnectorName(name)] = !c.Sends()
		for _, link := range s.links[name] {
			if !projection.IsOurs(link, s.environment) && !waits(link) {
				out.take(c, link)
			}
		}
	}
	for _, c := range changes {
		name := v1alpha1.CodeConnectorName(s.environment, c.key)
		for _, link := range s.links[name] {
			if existing := effective[name]; c.action == actionFailed && existing != nil && projection.IsOurs(link, s.environment) {
				out.take(existing, link)
			}
		}
	}
	for _, c := range changes {
		if c.mirror == nil {
			continue
		}
		for _, link := range c.mirror.Links {
			out.take(c.mirror.Connector, link)
		}
	}
	return out
}

// waits says whether a link is not in effect, for another one has what it asks for.
func waits(link *v1alpha1.ConnectorLink) bool {
	stalled := link.Status.Condition(v1alpha1.ConditionStalled)
	return v1alpha1.IsStalled(link) && slices.Contains([]string{v1alpha1.ReasonActionNameTaken, v1alpha1.ReasonLimitReached, v1alpha1.ReasonDuplicateLink}, stalled.Reason)
}

// take notes what a link lets its agent do, unless another one does already.
func (s sends) take(c *v1alpha1.Connector, link *v1alpha1.ConnectorLink) {
	policy := projection.Policy(link, c, nil)
	if policy == nil || len(link.Unsupported()) > 0 {
		return
	}
	agent := link.Spec.Agent
	if s.links[agent]++; s.links[agent] > store.MaxOutboundLinks {
		s.beyond[c.Name] = agent
	}
	if of := (tool{agent, policy.ActionName}); policy.Mode == store.LinkAgentTool && s.tools[of] == "" {
		s.tools[of] = c.Name
	}
}

// problem says what keeps a connector of the code from sending as it is to.
func (s sends) problem(m *projection.Mirror) string {
	if agent := s.beyond[m.Connector.Name]; agent != "" {
		return fmt.Sprintf("agent %q would have more than %d links to outbound connectors in the environment: take it out of the file, or delete another link", agent, store.MaxOutboundLinks)
	}
	for _, link := range m.Links {
		policy := projection.Policy(link, m.Connector, nil)
		if policy == nil {
			continue
		}
		holder := s.tools[tool{link.Spec.Agent, policy.ActionName}]
		if policy.Mode == store.LinkAgentTool && holder != m.Connector.Name {
			return fmt.Sprintf("agent %q has a tool %q by Connector %q already: give the link another outbound.action_name", link.Spec.Agent, policy.ActionName, holder)
		}
		for _, source := range link.SourceConnectors() {
			if !s.starts[source] {
				return fmt.Sprintf("outbound.source_connectors names what is to be Connector %q, and there is none that starts runs: name the stem of a file in connectors/", source)
			}
		}
	}
	return ""
}
