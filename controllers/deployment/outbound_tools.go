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

// tool is a tool name of an agent that sends to an outbound connector.
type tool struct {
	agent v1alpha1.AgentName
	name  string
}

// outboundTools describes outbound tools and links of an environment's agents, and the connectors that start
// runs.
type outboundTools struct {
	// tools has the connectors that each tool sends to.
	tools map[tool]string
	// links is the number of links to outbound connectors per agent. beyond has the agent whose limit
	// of links a connector exceeds, by the name of the connector.
	links     map[v1alpha1.AgentName]int
	overLimit map[string]v1alpha1.AgentName
	// startsRuns has the connectors that start runs, by name.
	startsRuns map[v1alpha1.ConnectorName]bool
}

// outboundToolsAfter returns the state after the given changes. It adds connectors of users first, then connectors
// that fail and stay unchanged, then new ones.
func (s activationState) outboundToolsAfter(changes []change) outboundTools {
	out := outboundTools{
		tools: map[tool]string{}, links: map[v1alpha1.AgentName]int{}, overLimit: map[string]v1alpha1.AgentName{}, startsRuns: map[v1alpha1.ConnectorName]bool{},
	}
	effective := map[string]*v1alpha1.Connector{} // connectors that are not retired, now and after the changes
	for name, c := range s.connectors {
		if !projection.IsMirror(c, s.environment) && c.Spec.Environment == s.environment {
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
		out.startsRuns[v1alpha1.ConnectorName(name)] = !c.Sends()
		for _, link := range s.links[name] {
			if !projection.IsMirror(link, s.environment) && !isWaiting(link) {
				out.addLink(c, link)
			}
		}
	}
	for _, c := range changes {
		name := v1alpha1.CodeConnectorName(s.environment, c.key)
		for _, link := range s.links[name] {
			if existing := effective[name]; c.action == actionFailed && existing != nil && projection.IsMirror(link, s.environment) {
				out.addLink(existing, link)
			}
		}
	}
	for _, c := range changes {
		if c.mirror == nil {
			continue
		}
		for _, link := range c.mirror.Links {
			out.addLink(c.mirror.Connector, link)
		}
	}
	return out
}

// isWaiting reports whether a link is not in effect because another link has its tool name or its agent
// and connector, or because its agent has too many links.
func isWaiting(link *v1alpha1.ConnectorLink) bool {
	stalled := link.Status.Condition(v1alpha1.ConditionStalled)
	return v1alpha1.IsStalled(link) && slices.Contains([]string{v1alpha1.ReasonActionNameTaken, v1alpha1.ReasonLimitReached, v1alpha1.ReasonDuplicateLink}, stalled.Reason)
}

// addLink counts a link, and records its tool unless another link has the name.
func (s outboundTools) addLink(c *v1alpha1.Connector, link *v1alpha1.ConnectorLink) {
	policy := projection.Policy(link, c, nil)
	if policy == nil || len(link.Unsupported()) > 0 {
		return
	}
	agent := link.Spec.Agent
	if s.links[agent]++; s.links[agent] > store.MaxOutboundLinks {
		s.overLimit[c.Name] = agent
	}
	if of := (tool{agent, policy.ActionName}); policy.Mode == store.LinkAgentTool && s.tools[of] == "" {
		s.tools[of] = c.Name
	}
}

// problem returns the reason why a connector of the code cannot send as configured, or "".
func (s outboundTools) problem(m *projection.Mirror) string {
	if agent := s.overLimit[m.Connector.Name]; agent != "" {
		return fmt.Sprintf("agent %q would have more than %d links to outbound connectors in the environment; remove it from the file, or delete another link", agent, store.MaxOutboundLinks)
	}
	for _, link := range m.Links {
		policy := projection.Policy(link, m.Connector, nil)
		if policy == nil {
			continue
		}
		holder := s.tools[tool{link.Spec.Agent, policy.ActionName}]
		if policy.Mode == store.LinkAgentTool && holder != m.Connector.Name {
			return fmt.Sprintf("agent %q already has a tool %q from Connector %q; set another outbound.action_name", link.Spec.Agent, policy.ActionName, holder)
		}
		for _, source := range link.SourceConnectors() {
			if !s.startsRuns[source] {
				return fmt.Sprintf("outbound.source_connectors: no Connector %q starts runs; use the file name of a connector in connectors/ without its ending", source)
			}
		}
	}
	return ""
}
