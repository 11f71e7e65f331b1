// SPDX-License-Identifier: Apache-2.0

package bundle

import (
	"fmt"
	"slices"

	"github.com/agentplatform/agentplatform/internal/expr"
)

// toolVariables are the variables of the conditions of tools.
var toolVariables = mustDeclare(stepVariables)

// mustDeclare declares variables of expressions.
func mustDeclare(names []string) *expr.Variables {
	variables, err := expr.NewVariables(names)
	if err != nil {
		panic(err.Error()) // it depends on no input
	}
	return variables
}

// compileConditions compiles the conditions of tools in place. key is the key of the agent that has the tools. Tools with equal
// conditions share one, because files of defaults repeat them.
func (p *repoParser) compileConditions(key string, tools []Tool) {
	for i := range tools {
		e := &tools[i].Condition
		if !e.IsWritten() {
			continue
		}
		value, known := p.conditions[e.text]
		if !known {
			value = p.compileCondition(e, fmt.Sprintf("%s[%d]", key, i))
			p.conditions[e.text] = value
		}
		e.value = value
	}
}

// compileCondition compiles a condition. It reports a problem and returns nil if the condition is invalid.
func (p *repoParser) compileCondition(e *Expression, path string) *expr.Value {
	value := p.compileExpression(e, toolVariables, path, slices.Sorted(slices.Values(stepVariables)))
	if value == nil {
		return nil
	}
	if err := value.CheckCondition(); err != nil {
		p.problems.add(e.node.pos, "%q: %v", path, err)
		return nil
	}
	return value
}
