// SPDX-License-Identifier: Apache-2.0

package bundle

import (
	"cmp"
	"reflect"
	"slices"

	"github.com/agentplatform/agentplatform/internal/later"
)

// things are the structs whose keys internal/later names, by its names for them.
var things = map[string]reflect.Type{"agent": reflect.TypeFor[Agent](), "case": reflect.TypeFor[Case]()}

// isUnsupported reports whether a key of a struct does nothing in this release, whatever its value is. A key
// that is only for types of agents that are unsupported does nothing either.
func isUnsupported(t reflect.Type, key string) bool {
	for thing, known := range things {
		if !t.ConvertibleTo(known) {
			continue
		}
		if later.Has(later.File, thing+"."+key, "") {
			return true
		}
		types, ofAgent := typesOf[key]
		return ofAgent && thing == "agent" && len(supportedTypes(types)) == 0
	}
	return false
}

// supportedTypes are the types of agents among some that this release runs.
func supportedTypes(types []AgentType) []AgentType {
	return slices.DeleteFunc(slices.Clone(types), func(t AgentType) bool {
		return later.Has(later.File, "agent.type", string(t))
	})
}

// Unsupported says which keys of the agent this release does not do.
func (a *Agent) Unsupported() Problems {
	return unsupportedIn(a.source, later.FieldsOf(later.File, "agent"))
}

// Unsupported says which keys of the case this release does not do.
func (c *Case) Unsupported() Problems {
	return unsupportedIn(c.source, later.FieldsOf(later.File, "case"))
}

// unsupportedIn are problems that cover the values of keys: how a value is written does not matter, because
// the remedy is to remove it.
func unsupportedIn(n *node, keys []string) (problems Problems) {
	for _, key := range keys {
		if !n.has(key) {
			continue
		}
		e := n.get(key)
		problem := Problem{Position: e.pos, Message: `"` + key + `" is not supported by this release; remove it`}
		problem.end = e.value.last(e.pos)
		problems = append(problems, problem)
	}
	return problems
}

// last is the furthest place of a value and of what is inside it, in the file of a position and from there on.
func (n *node) last(from Position) Position {
	if n.pos.File == from.File && comparePositions(n.pos, from) > 0 {
		from = n.pos
	}
	for _, item := range n.items {
		from = item.last(from)
	}
	for _, e := range n.entries {
		if e.pos.File == from.File && comparePositions(e.pos, from) > 0 {
			from = e.pos
		}
		from = e.value.last(from)
	}
	return from
}

// covers reports whether a place lies in what a problem is about as a whole.
func (p Problem) covers(at Position) bool {
	return p.end.File != "" && p.File == at.File && comparePositions(p.Position, at) <= 0 && comparePositions(at, p.end) <= 0
}

// comparePositions orders places of one file.
func comparePositions(a, b Position) int {
	return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column))
}
