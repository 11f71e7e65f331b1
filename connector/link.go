// SPDX-License-Identifier: Apache-2.0

package connector

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

const (
	// MaxSources limits the source connectors of a link.
	MaxSources = 32
	// MaxLinks limits an agent's links to outbound connectors in an environment.
	MaxLinks = 32
)

// Modes of links.
const (
	Automatic  = "automatic"
	AgentTool  = "agent_tool"
	Middleware = "middleware"
)

// Statuses are the run statuses that an automatic link can send.
var Statuses = []string{"completed", "failed", "cancelled", "delivery_failed"}

// Policy has the settings of a link to an outbound connector.
type Policy struct {
	// Mode is one of the modes above; "" means Automatic.
	Mode string `yaml:"mode" enum:"automatic,agent_tool,middleware" without:"automatic" doc:"Trigger of a delivery: 'automatic' is the end of a run, 'agent_tool' a tool of the agent, 'middleware' a call of 'send_connector' in the agent's middleware."`
	// ActionName is the name of the tool; "" means DefaultActionName.
	ActionName string `yaml:"action_name" without:"send_to_ and the connector's name" doc:"Name of the tool, for the mode 'agent_tool'."`
	// SourceConnectors identify connectors: by the stem of a file, by name or by ID.
	SourceConnectors []string `yaml:"source_connectors" without:"all" doc:"Connectors whose runs are sent, by the stems of their files."`
	Statuses         []string `yaml:"statuses" enum:"completed,failed,cancelled,delivery_failed" without:"completed" doc:"Final statuses of the runs to send. 'delivery_failed' reports deliveries that fail."`
}

var actionName = regexp.MustCompile(`^[a-zA-Z_][a-zA-Z0-9_-]*$`)

// Check returns the problems of the settings.
func (p Policy) Check() (problems []FieldError) {
	if p.Mode != "" && !slices.Contains([]string{Automatic, AgentTool, Middleware}, p.Mode) {
		return []FieldError{{"mode", fmt.Sprintf("must be %s, %s or %s, not %q", Automatic, AgentTool, Middleware, p.Mode)}}
	}
	problems = p.CheckMode()
	if name := p.ActionName; name != "" && (len(name) > MaxActionName || !actionName.MatchString(name)) {
		problems = append(problems, FieldError{"action_name", fmt.Sprintf("must be at most %d letters, digits, underscores and dashes, no digit or dash first", MaxActionName)})
	}
	if len(p.SourceConnectors) > MaxSources {
		problems = append(problems, FieldError{"source_connectors", fmt.Sprintf("has at most %d connectors", MaxSources)})
	}
	for _, s := range p.Statuses {
		if !slices.Contains(Statuses, s) {
			problems = append(problems, FieldError{"statuses", fmt.Sprintf("must contain only %s, not %q", strings.Join(Statuses, ", "), s)})
		}
	}
	if repeats(p.SourceConnectors) {
		problems = append(problems, FieldError{"source_connectors", "has one twice"})
	}
	if repeats(p.Statuses) {
		problems = append(problems, FieldError{"statuses", "has one twice"})
	}
	return problems
}

func repeats(list []string) bool {
	return len(slices.Compact(slices.Sorted(slices.Values(list)))) < len(list)
}

// CheckMode returns the fields that have no effect in the link's mode.
func (p Policy) CheckMode() (problems []FieldError) {
	automatic := p.Mode == "" || p.Mode == Automatic
	if p.ActionName != "" && p.Mode != AgentTool {
		problems = append(problems, FieldError{"action_name", "is for the mode " + AgentTool})
	}
	if len(p.SourceConnectors) > 0 && !automatic {
		problems = append(problems, FieldError{"source_connectors", "is for the mode " + Automatic})
	}
	if len(p.Statuses) > 0 && !automatic {
		problems = append(problems, FieldError{"statuses", "is for the mode " + Automatic})
	}
	return problems
}
