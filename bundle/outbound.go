// SPDX-License-Identifier: Apache-2.0

package bundle

import (
	"cmp"
	"reflect"
	"slices"

	"github.com/agentplatform/agentplatform/connector"
)

// validPolicy returns a policy without values that the decoder has rejected.
func validPolicy(policy connector.Policy) connector.Policy {
	fields := fieldsOf(reflect.TypeFor[connector.Policy]()).byName
	if policy.Mode != "" && !slices.Contains(fields["mode"].enum, policy.Mode) {
		return connector.Policy{}
	}
	policy.Statuses = slices.DeleteFunc(slices.Clone(policy.Statuses), func(status string) bool {
		return status != "" && !slices.Contains(fields["statuses"].enum, status)
	})
	return policy
}

// linkOutbound checks the references of outbound connectors to other connectors, and the number and names of the tools
// that they give to an agent.
func (p *repoParser) linkOutbound() {
	type tool struct{ agent, name string }
	starts, sends, tools := map[string]bool{}, map[string]int{}, map[tool]string{}
	for _, c := range p.project.Connectors {
		starts[c.Key] = !c.Kind().Sends()
	}
	for _, c := range p.project.Connectors {
		if !c.Kind().Sends() {
			continue
		}
		p.linkActions(c)
		for _, l := range c.AllLinks() {
			if sends[l.Agent]++; sends[l.Agent] == connector.MaxLinks+1 {
				p.problems.add(c.At("links"), "agent %q is linked to more than %d outbound connectors", l.Agent, connector.MaxLinks)
			}
			if l.Outbound == nil {
				continue
			}
			p.linkMiddleware(c, l)
			for _, source := range l.Outbound.SourceConnectors {
				if !starts[source] {
					p.problems.add(c.At("links"),
						`"outbound.source_connectors": no %s connector has the file connectors/%s.yaml`, connector.NamesOf(connector.Kind.StartsRuns, "or"), source)
				}
			}
			of := tool{l.Agent, c.ActionName(l)}
			if other := tools[of]; other != "" && of.name != "" {
				p.problems.add(c.At("links"), "%s gives agent %q the tool %q already; choose another \"outbound.action_name\"", other, l.Agent, of.name)
			}
			tools[of] = c.SourcePath
		}
	}
}

// linkMiddleware rejects a link in the mode middleware over which nothing sends.
func (p *repoParser) linkMiddleware(c *Connector, l Link) {
	file := middlewareFolder.name + "/" + l.Agent + ".star"
	if l.Outbound.Mode != connector.Middleware || p.project.byName[l.Agent] == nil || p.project.SendsByMiddleware(l.Agent) {
		return
	}
	if p.hasFile(file) && p.project.starlark[file] == nil {
		return // The parser has reported the script.
	}
	p.problems.add(c.At("links"), `"outbound.mode": no middleware of agent %q calls %s; write the call in %s, or choose another mode`,
		l.Agent, SendConnector, file)
}

// linkActions reports links that give a tool to an agent without a model, which never calls it.
func (p *repoParser) linkActions(c *Connector) {
	for i, l := range c.Links {
		if c.ActionName(l) == "" || p.project.byName[l.Agent] == nil || p.hasModel(l.Agent) {
			continue
		}
		p.problems.add(c.atLinkMode(i), `"links[%d].outbound.mode": agent %q runs no agent with a model, so nothing calls the tool; use automatic, or link another agent`, i, l.Agent)
	}
}

// hasModel reports whether an agent, one of its A/B variants or one of their steps has a model.
func (p *repoParser) hasModel(agent string) bool {
	return slices.ContainsFunc(p.project.Agents, func(a *Agent) bool {
		return (a.Name == agent || a.VariantOf == agent) &&
			slices.ContainsFunc(p.project.Steps(a.Name), func(step *Agent) bool { return step.Model != "" })
	})
}

// Title returns the connector's name for people: DisplayName, or Key without one.
func (c *Connector) Title() string { return cmp.Or(c.DisplayName, c.Key) }

// ActionName returns the name of the tool that a link gives to its agent, or "". It is the same in every environment and
// in tests.
func (c *Connector) ActionName(l Link) string {
	if !c.Kind().Sends() || l.Outbound == nil || l.Outbound.Mode != connector.AgentTool {
		return ""
	}
	return cmp.Or(l.Outbound.ActionName, connector.DefaultActionName(c.Title()))
}

// Action is a tool that sends to an outbound connector of the repository.
type Action struct{ Name, Connector string }

// Actions returns the tools that the links of the repository give to an agent.
func (p *Project) Actions(agent string) (out []Action) {
	for _, c := range p.Connectors {
		for _, l := range c.AllLinks() {
			if name := c.ActionName(l); name != "" && l.Agent == agent {
				out = append(out, Action{Name: name, Connector: c.Title()})
			}
		}
	}
	return out
}
