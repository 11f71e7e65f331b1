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

// maxConditionCost bounds the evaluation of a condition on one of many runs: to look through
// some hundred KiB of text.
const maxConditionCost = 100_000

// ErrNoCondition says that a text is no condition at all: it does not parse, names what runs do
// not have, or yields something else than a bool.
var ErrNoCondition = errors.New("no condition on runs")

// onRuns is what a condition on a run may name: what a verdict may, the run's input, and more of
// what is known of it.
var onRuns = slices.Concat(onEnds, []cel.EnvOption{
	cel.Variable("input", cel.DynType),
	cel.Variable("agent_name", cel.StringType), cel.Variable("test_name", cel.StringType), cel.Variable("error_code", cel.StringType),
	cel.Variable("deployment_id", cel.StringType), cel.Variable("connector_id", cel.StringType),
	cel.Variable("attempt", cel.IntType), cel.Variable("duration_ms", cel.IntType),
})

// Names are what a condition may name.
var Names = func() (names []string) {
	for _, v := range spoken.Variables() {
		names = append(names, v.Name())
	}
	slices.Sort(names)
	return names
}()

var (
	// spoken tells conditions from other texts, conditions refuses some of them.
	spoken     = mustEnv(onRuns)
	conditions = mustEnv(slices.Concat(onRuns, []cel.EnvOption{cel.ASTValidators(written{})}))
)

// Condition is an expression that says whether a run is one of those that are looked for.
type Condition struct {
	evaluation *evaluation
	checked    *ast.AST
}

// NewCondition compiles an expression over input, output, error, status, context and what else a
// condition may name. It yields a bool and names one of them at least; ErrNoCondition of any
// other text. Another error says what is wrong with a condition.
func NewCondition(expression string) (*Condition, error) {
	checked, err := check(spoken, expression)
	switch {
	case err != nil:
		return nil, fmt.Errorf("%w: %w", ErrNoCondition, err)
	case checked.OutputType().Kind() != types.BoolKind:
		return nil, fmt.Errorf("%w: it yields a %s", ErrNoCondition, checked.OutputType())
	}
	c := &Condition{checked: checked.NativeRep()}
	if !slices.ContainsFunc(Names, c.LooksAt) {
		return nil, fmt.Errorf("%w: it names nothing of a run", ErrNoCondition)
	}
	if checked, err = check(conditions, expression); err != nil {
		return nil, err
	}
	c.evaluation, err = planned(conditions, checked, maxConditionCost)
	return c, err
}

// LooksAt says whether the condition names a variable.
func (c *Condition) LooksAt(name string) bool {
	for _, reference := range c.checked.ReferenceMap() {
		if reference.Name == name {
			return true
		}
	}
	return false
}

// Expr is the condition as it was read and checked.
func (c *Condition) Expr() ast.Expr { return c.checked.Expr() }

// Holds says whether the condition is true of a run, whose values are those of a condition's
// names, unless the context ends before. An error is of what it cannot be told of, or not
// within the cost that it may have.
func (c *Condition) Holds(ctx context.Context, values map[string]any) (bool, error) {
	value, _, err := c.evaluation.on(ctx, values)
	if err != nil {
		return false, err
	}
	holds, _ := value.Value().(bool) // its type was checked
	return holds, nil
}

// Input is the value of an input that is JSON, as expressions have it.
func Input(text []byte) (any, error) { return read(text) }
