// SPDX-License-Identifier: Apache-2.0

package expr

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/types"
)

// maxConditionCost limits the evaluation of a condition on one of many runs: enough to search some
// hundred KiB of text.
const maxConditionCost = 100_000

// ErrNoCondition means that a text is not a condition: it does not parse, uses unknown names, or
// does not return a bool.
var ErrNoCondition = errors.New("not a condition on runs")

// onRuns are the names of a condition on a run: the names of a verdict, the run's input and more of
// its data.
var onRuns = slices.Concat(onEnds, []cel.EnvOption{
	cel.Variable("input", cel.DynType),
	cel.Variable("agent_name", cel.StringType), cel.Variable("test_name", cel.StringType), cel.Variable("error_code", cel.StringType),
	cel.Variable("deployment_id", cel.StringType), cel.Variable("connector_id", cel.StringType),
	cel.Variable("attempt", cel.IntType), cel.Variable("duration_ms", cel.IntType),
})

// Names are the names that a condition can use.
var Names = func() (names []string) {
	for _, v := range spoken.Variables() {
		names = append(names, v.Name())
	}
	slices.Sort(names)
	return names
}()

var (
	// spoken recognizes conditions, conditions rejects some of them.
	spoken     = mustEnv(onRuns)
	conditions = mustEnv(slices.Concat(onRuns, []cel.EnvOption{cel.ASTValidators(written{})}))
)

// Condition is an expression that selects runs.
type Condition struct {
	evaluation *evaluation
	checked    *ast.AST
}

// NewCondition compiles an expression over input, output, error, status, context and the other
// names. It returns a bool and uses at least one name. For any other text it returns
// ErrNoCondition. Another error describes an invalid condition.
func NewCondition(expression string) (*Condition, error) {
	checked, err := checkExpression(spoken, expression)
	switch {
	case err != nil:
		return nil, fmt.Errorf("%w: %w", ErrNoCondition, err)
	case checked.OutputType().Kind() != types.BoolKind:
		return nil, fmt.Errorf("%w: it returns a %s", ErrNoCondition, checked.OutputType())
	}
	c := &Condition{checked: checked.NativeRep()}
	if !slices.ContainsFunc(Names, c.LooksAt) {
		return nil, fmt.Errorf("%w: it uses no field of a run", ErrNoCondition)
	}
	if checked, err = checkExpression(conditions, expression); err != nil {
		return nil, err
	}
	c.evaluation, err = planned(conditions, checked, maxConditionCost)
	return c, err
}

// LooksAt reports whether the condition uses a variable.
func (c *Condition) LooksAt(name string) bool {
	for _, reference := range c.checked.ReferenceMap() {
		if reference.Name == name {
			return true
		}
	}
	return false
}

// Expr returns the parsed and checked condition.
func (c *Condition) Expr() ast.Expr { return c.checked.Expr() }

// Holds reports whether the condition is true for the values of a run. It returns an error if the
// condition cannot be evaluated, costs too much, or if the context ends.
func (c *Condition) Holds(ctx context.Context, values map[string]any) (bool, error) {
	value, _, err := c.evaluation.evaluate(ctx, values)
	if err != nil {
		return false, err
	}
	holds, _ := value.Value().(bool) // its type was checked
	return holds, nil
}

// Input decodes a JSON input for expressions.
func Input(text []byte) (any, error) { return decodeInput(text) }
