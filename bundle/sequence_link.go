// SPDX-License-Identifier: Apache-2.0

package bundle

import (
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/agentplatform/agentplatform/internal/expr"
)

// stepLinker checks the steps of an agent and compiles their expressions.
type stepLinker struct {
	*repoParser
	agent *Agent
	// results are the numbers of the steps by the names of their results.
	results   map[string]int
	variables *expr.Variables
}

// linkSteps checks the steps of a sequential agent and compiles their expressions.
func (p *repoParser) linkSteps(a *Agent) {
	if len(a.Steps) == 0 {
		if a.Output.IsWritten() {
			p.problems.add(a.At("output"), `"output" is for agents with "steps"; remove it`)
		}
		return
	}
	l := &stepLinker{repoParser: p, agent: a, results: map[string]int{}}
	l.eachAction(l.nameResult)
	var err error
	if l.variables, err = expr.NewVariables(slices.Concat(stepVariables, slices.Sorted(maps.Keys(l.results)))); err != nil {
		p.problems.add(a.At("steps"), "%v", err) // Impossible: all names are variables.
		return
	}
	l.eachAction(l.linkAction)
	l.checkParallel()
	last := &a.Steps[len(a.Steps)-1]
	switch {
	case a.Output.IsWritten():
		l.compile(&a.Output, len(a.Steps), "output")
	case len(last.Parallel) > 0:
		p.problems.add(a.stepNode(len(a.Steps)-1).pos, `the last step has several results; write the "output" of the agent`)
	}
}

// actionAt is an action with its position.
type actionAt struct {
	*StepAction
	node *node
	// path is the path of the action in problems, step the number of its step.
	path string
	step int
}

// eachAction calls visit for the actions of all steps, in order.
func (l *stepLinker) eachAction(visit func(actionAt)) {
	for i := range l.agent.Steps {
		step, n, path := &l.agent.Steps[i], l.agent.stepNode(i), fmt.Sprintf("steps[%d]", i)
		if n.kind != kindMap {
			continue // reported already
		}
		if len(step.Parallel) == 0 {
			visit(actionAt{StepAction: &step.StepAction, node: n, path: path, step: i})
			continue
		}
		for j := range step.Parallel {
			if member := n.findNode("parallel").items[j]; member.kind == kindMap {
				visit(actionAt{StepAction: &step.Parallel[j], node: member, path: fmt.Sprintf("%s.parallel[%d]", path, j), step: i})
			}
		}
	}
}

// stepNode returns the value of a step.
func (a *Agent) stepNode(i int) *node { return a.source.findNode("steps").items[i] }

// AtStep returns the position of a step.
func (a *Agent) AtStep(i int) Position { return a.stepNode(i).pos }

// at returns the position of a key of the action, or of the action if the key is missing.
func (a actionAt) at(key string) Position {
	if e := a.node.findEntry(key); e != nil {
		return e.pos
	}
	return a.node.pos
}

// nameResult notes the name of the result of an action, and reports a name that expressions cannot use.
func (l *stepLinker) nameResult(a actionAt) {
	name := a.As
	_, taken := l.results[name]
	switch {
	case name == "":
	case slices.Contains(stepVariables, name) || !expr.IsVariable(name):
		l.problems.add(a.at("as"), `%q cannot be the name of the result of %q, because it means something else in expressions; write another name as "as"`, name, a.path)
	case taken:
		l.problems.add(a.at("as"), `%q is the result of an earlier step already; write another name as "as"`, name)
	default:
		l.results[name] = a.step
	}
}

// linkAction checks an action and compiles its expressions.
func (l *stepLinker) linkAction(a actionAt) {
	misplaced := func(key, remedy string) {
		if a.node.hasValue(key) {
			l.problems.add(a.at(key), "%q has no effect here; %s", joinPath(a.path, key), remedy)
		}
	}
	if a.Agent != "" {
		l.linkAgentName(a.at("agent"), a.Agent)
		misplaced("with", `the arguments of an agent are its "input"`)
	}
	if a.Tool != "" {
		l.checkTool(l.agent, a.at("tool"), true, a.Tool)
		misplaced("input", `the input of a tool are its arguments, "with"`)
		misplaced("share_history", "a tool has no conversation")
	}
	if a.Script != "" {
		l.checkStepScript(a.at("script"), a.Script)
		misplaced("with", `a script gets "input" and the results so far`)
		misplaced("share_history", "a script has no conversation")
	}
	if l.compile(&a.When, a.step, joinPath(a.path, "when")) {
		if err := a.When.value.CheckCondition(); err != nil {
			l.problems.add(a.When.node.pos, "%q: %v", joinPath(a.path, "when"), err)
		}
	}
	l.compileKeys(a.With, a.step, joinPath(a.path, "with"))
	l.compile(&a.Input.Whole, a.step, joinPath(a.path, "input"))
	l.compileKeys(a.Input.Keys, a.step, joinPath(a.path, "input"))
}

// checkParallel checks the keys beside "parallel", and the number of its steps.
func (l *stepLinker) checkParallel() {
	for i, step := range l.agent.Steps {
		if len(step.Parallel) == 0 {
			continue
		}
		n := l.agent.stepNode(i)
		for _, f := range fieldsOf(reflect.TypeFor[SequenceStep]()).ordered {
			if f.choice == "" && n.hasValue(f.name) {
				l.problems.add(n.findEntry(f.name).pos, `"steps[%d].%s" has no effect beside "parallel"; move it into the steps of "parallel"`, i, f.name)
			}
		}
		if len(step.Parallel) > MaxParallelSteps {
			l.problems.add(n.findEntry("parallel").pos, `"steps[%d].parallel" has %d steps, at most %d are allowed`, i, len(step.Parallel), MaxParallelSteps)
		}
	}
}

// compileKeys compiles the expressions of a map in place.
func (l *stepLinker) compileKeys(expressions map[string]Expression, step int, path string) {
	for _, key := range slices.Sorted(maps.Keys(expressions)) {
		e := expressions[key]
		if !e.IsWritten() && e.node != nil {
			l.problems.add(e.node.pos, "%q is empty; write an expression, such as null", joinPath(path, key))
			continue
		}
		l.compile(&e, step, joinPath(path, key))
		expressions[key] = e
	}
}

// compile compiles an expression of a step, which can use the results of earlier steps. It reports whether the expression
// is written and valid.
func (l *stepLinker) compile(e *Expression, step int, path string) bool {
	if !e.IsWritten() {
		return false
	}
	value := l.compileExpression(e, l.variables, path, l.namesBefore(step))
	if value == nil {
		return false
	}
	for _, use := range value.Uses() {
		if of, isResult := l.results[use.Name]; isResult && of >= step {
			l.reportInside(e, path, use.Line, use.Column, fmt.Sprintf("%s is not known yet, because it is the result of steps[%d]; use one of %s",
				use.Name, of, strings.Join(l.namesBefore(step), ", ")))
			return false
		}
	}
	e.value = value
	return true
}

// compileExpression compiles an expression that can use the variables with the names. It reports a problem and returns nil
// if the expression is invalid.
func (p *repoParser) compileExpression(e *Expression, variables *expr.Variables, path string, names []string) *expr.Value {
	if p.expressions++; p.expressions > maxExpressions {
		if p.expressions == maxExpressions+1 {
			p.problems.add(e.node.pos, "all agents have more than %d expressions and conditions together; use fewer", maxExpressions)
		}
		return nil
	}
	value, err := variables.NewValue(e.text)
	if err == nil {
		return value
	}
	var problem *expr.Problem
	if !errors.As(err, &problem) {
		p.problems.add(e.node.pos, "%q: %v", path, err)
		return nil
	}
	message := strings.TrimSuffix(problem.Message, " (in container '')")
	if strings.HasPrefix(message, "undeclared reference") {
		message += "; use one of " + strings.Join(names, ", ")
	}
	p.reportInside(e, path, problem.Line, problem.Column, message)
	return nil
}

// namesBefore returns the names that the expressions of a step can use.
func (l *stepLinker) namesBefore(step int) []string {
	names := slices.Clone(stepVariables)
	for name, of := range l.results {
		if of < step {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// reportInside reports a problem at a position inside an expression: in the file if the file has the text of the
// expression as it is, in one line, else in the message.
func (p *repoParser) reportInside(e *Expression, path string, line, column int, message string) {
	at := e.node.pos
	lines := strings.Split(string(p.files[at.File]), "\n")
	if !strings.Contains(e.text, "\n") && at.Line <= len(lines) {
		written := []rune(strings.TrimSuffix(lines[at.Line-1], "\r"))
		if at.Column <= len(written) {
			rest := string(written[at.Column-1:])
			quoted := strings.TrimLeft(rest[:1], `'"`) == ""
			if quoted {
				rest = rest[1:]
			}
			if strings.HasPrefix(rest, e.text) {
				at.Column += column - 1
				if quoted {
					at.Column++
				}
				p.problems.add(at, "%q: %s", path, message)
				return
			}
		}
	}
	p.problems.add(at, "%q, at line %d, column %d: %s", path, line, column, message)
}
