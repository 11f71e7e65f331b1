// SPDX-License-Identifier: Apache-2.0

package outbound

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

// Link is the configuration of a link to an outbound connector.
type Link struct {
	// Mode is one of the modes above; "" means Automatic.
	Mode string
	// ActionName is the name of the tool; "" means DefaultActionName.
	ActionName string
	// Sources identify connectors, by name or ID.
	Sources  []string
	Statuses []string
}

// Fields of a link.
const (
	FieldMode       Field = "mode"
	FieldActionName Field = "action_name"
	FieldSources    Field = "source_connectors"
	FieldStatuses   Field = "statuses"
)

var actionName = regexp.MustCompile(`^[a-zA-Z_][a-zA-Z0-9_-]*$`)

// Check returns the problems of a link.
func (l Link) Check() (wrong []Wrong) {
	if l.Mode != "" && !slices.Contains([]string{Automatic, AgentTool, Middleware}, l.Mode) {
		return []Wrong{{FieldMode, fmt.Sprintf("must be %s, %s or %s, not %q", Automatic, AgentTool, Middleware, l.Mode)}}
	}
	wrong = l.CheckMode()
	if name := l.ActionName; name != "" && (len(name) > MaxActionName || !actionName.MatchString(name)) {
		wrong = append(wrong, Wrong{FieldActionName, fmt.Sprintf("must be at most %d letters, digits, underscores and dashes, no digit or dash first", MaxActionName)})
	}
	if len(l.Sources) > MaxSources {
		wrong = append(wrong, Wrong{FieldSources, fmt.Sprintf("has at most %d connectors", MaxSources)})
	}
	for _, s := range l.Statuses {
		if !slices.Contains(Statuses, s) {
			wrong = append(wrong, Wrong{FieldStatuses, fmt.Sprintf("must contain only %s, not %q", strings.Join(Statuses, ", "), s)})
		}
	}
	if repeats(l.Sources) {
		wrong = append(wrong, Wrong{FieldSources, "has one twice"})
	}
	if repeats(l.Statuses) {
		wrong = append(wrong, Wrong{FieldStatuses, "has one twice"})
	}
	return wrong
}

func repeats(list []string) bool {
	return len(slices.Compact(slices.Sorted(slices.Values(list)))) < len(list)
}

// CheckMode returns the fields that have no effect in the link's mode.
func (l Link) CheckMode() (wrong []Wrong) {
	automatic := l.Mode == "" || l.Mode == Automatic
	if l.ActionName != "" && l.Mode != AgentTool {
		wrong = append(wrong, Wrong{FieldActionName, "is for the mode " + AgentTool})
	}
	if len(l.Sources) > 0 && !automatic {
		wrong = append(wrong, Wrong{FieldSources, "is for the mode " + Automatic})
	}
	if len(l.Statuses) > 0 && !automatic {
		wrong = append(wrong, Wrong{FieldStatuses, "is for the mode " + Automatic})
	}
	return wrong
}
